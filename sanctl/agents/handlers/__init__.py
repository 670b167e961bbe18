# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs in /usr/lib/sanctl: DRBD's handlers, and the ExecStart of sanctl's systemd units."""
