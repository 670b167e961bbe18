# SPDX-License-Identifier: GPL-2.0-or-later
"""Second sites: the copies that a standby makes by schedule."""
