# SPDX-License-Identifier: GPL-2.0-or-later
"""Builders of JSON data and table rows of what several commands show."""
