"""Runs on the switches and hosts of a lab, over SSH."""
