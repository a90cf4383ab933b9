"""The users' instrument: what the transport reaches here, as ratios measured in one interleaved run."""
