"""What transports and patterns agree on: endpoints, bounds, tensors, packets, codepoints."""
