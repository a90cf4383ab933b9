"""How gradients move: the DLCP engine, kernel TCP, and the parameter server over either."""
