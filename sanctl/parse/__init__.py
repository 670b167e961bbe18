# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of the tools to model. Pure."""
