# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers of what tools read: DRBD resource files, CIB patchsets, corosync.conf. No I/O."""
