# SPDX-License-Identifier: GPL-2.0-or-later
"""A storage node as a host of its own cluster's devices: logs in, logs out, waits for a map."""
