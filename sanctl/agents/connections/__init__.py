# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD connections of a replica: to which peers, and connecting again after a drop."""
