# SPDX-License-Identifier: GPL-2.0-or-later
"""Readers of what tools print (drbdsetup, cibadmin, crm_mon, corosync): text to values. No I/O."""
