"""The fault bench: breaks a laboratory under load, and audits what is left after each fault."""
