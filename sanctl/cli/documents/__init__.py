# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the fields of the JSON output; cli.views builds their values."""
