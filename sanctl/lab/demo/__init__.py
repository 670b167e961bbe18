# SPDX-License-Identifier: GPL-2.0-or-later
"""The main job in one command: a device that survives the crash of its node, measured."""
