# SPDX-License-Identifier: GPL-2.0-or-later
"""Working with a laboratory: commands on nodes, initiator, load, failovers."""
