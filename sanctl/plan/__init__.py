"""Pure decisions: same input, same steps."""
