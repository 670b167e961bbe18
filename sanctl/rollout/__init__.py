# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an Ansible inventory, on the controller; nodes never install this."""
