# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl: shared block storage that survives losing a server."""

__version__ = "0.1.0"
