# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl demo`: a device survives the crash of its node; each pause is measured."""
