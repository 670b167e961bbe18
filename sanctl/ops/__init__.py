# SPDX-License-Identifier: GPL-2.0-or-later
"""The use-cases, one function each."""
