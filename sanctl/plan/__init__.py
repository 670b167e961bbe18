# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions as pure functions over frozen values: no file, process, network or clock."""
