# SPDX-License-Identifier: GPL-2.0-or-later
"""Recovery of a replica or pool: disk errors, shut-down filesystems, diverged or lost data."""
