# SPDX-License-Identifier: GPL-2.0-or-later
"""The machines of a laboratory (`sanctl lab`): image, kernel, power, networks, faults, rollout."""
