# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes that a replica's agent publishes through pacemaker-attrd."""
