"""Labs: deployments, their records and their recovery; hosts' settings; runs on a lab."""
