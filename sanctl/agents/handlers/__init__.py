# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry points of DRBD's handlers and systemd's units."""
