# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the fields of the JSON output of `sanctl lab` and `sanctl bench`."""
