# SPDX-License-Identifier: GPL-2.0-or-later
"""What is wrong, told from the cluster's state."""
