"""One module per tool: observe, and typed verbs."""
