# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments, options and output of each command: `sanctl device heal` is device_heal.py."""
