"""What runs on a host: the agent process, its jobs and background traffic, and the caller's side of it."""
