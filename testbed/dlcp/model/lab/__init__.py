"""Labs: the inventory of switches and hosts, loaded from an Ansible inventory."""
