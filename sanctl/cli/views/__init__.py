# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON data and table rows of objects that several commands show."""
