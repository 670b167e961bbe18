# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of hosts: their names and IQNs, which devices they may use, their CHAP secrets."""
