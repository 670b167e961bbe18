# SPDX-License-Identifier: GPL-2.0-or-later
"""What concerns the node as a whole: votes, cleanup of failures."""
