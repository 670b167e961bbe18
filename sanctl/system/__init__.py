# SPDX-License-Identifier: GPL-2.0-or-later
"""The only place that starts a process, touches a file or looks at the clock."""
