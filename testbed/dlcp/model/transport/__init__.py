"""The settings of a scheme's transport: one file for each part of a transport."""
