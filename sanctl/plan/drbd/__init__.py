# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for DRBD: version limits, data generations, connections, resync order, verify."""
