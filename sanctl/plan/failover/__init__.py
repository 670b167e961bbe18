# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of the failover path: promotion scores, the fence-peer handler, self-reboots."""
