# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-actions.service: forks one process for each action of an agent and each DRBD handler."""
