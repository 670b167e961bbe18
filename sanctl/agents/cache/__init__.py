# SPDX-License-Identifier: GPL-2.0-or-later
"""Write cache and read cache of a replica, and the DRBD options that go with them."""
