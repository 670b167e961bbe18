"""Model to text of the tools. Pure."""
