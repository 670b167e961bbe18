# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: arguments and options, tables, JSON, questions, exit statuses."""
