"""How gradients move: the DLCP engine, kernel TCP, and the parameter server and the ring over either."""
