# SPDX-License-Identifier: GPL-2.0-or-later
"""The fault bench: breaks a laboratory under load, and audits what is left after each fault."""
