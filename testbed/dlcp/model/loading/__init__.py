"""Files of a person → the model: documents, checks, errors with their place and a hint."""
