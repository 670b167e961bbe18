# SPDX-License-Identifier: GPL-2.0-or-later
"""One module for each command: `sanctl device heal` is device_heal.py."""
