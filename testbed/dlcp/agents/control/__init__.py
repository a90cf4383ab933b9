"""The caller's side of agents: start them on hosts, command them, collect what they made."""
