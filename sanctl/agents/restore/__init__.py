# SPDX-License-Identifier: GPL-2.0-or-later
"""A device goes back to a restore point: hosts are kept out, and the active node copies."""
