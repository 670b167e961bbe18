# SPDX-License-Identifier: GPL-2.0-or-later
"""The write cache and the read cache of a replica."""
