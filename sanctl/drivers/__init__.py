# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls to the tools and the kernel, one module each: observe a part, and change it."""
