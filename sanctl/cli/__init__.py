# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments, tables, JSON, prompts and exit statuses."""
