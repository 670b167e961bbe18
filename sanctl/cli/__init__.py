"""Arguments, tables, JSON, prompts and exit statuses."""
