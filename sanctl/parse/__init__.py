"""Text of the tools to model. Pure."""
