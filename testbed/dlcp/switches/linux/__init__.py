"""A Linux box as a switch: what is carried out, read back and counted on the box, by `python -m
dlcp.switches.linux`."""
