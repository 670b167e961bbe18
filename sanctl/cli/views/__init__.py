# SPDX-License-Identifier: GPL-2.0-or-later
"""Fills the JSON documents and the table rows that several commands show, by object."""
