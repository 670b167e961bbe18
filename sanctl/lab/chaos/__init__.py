# SPDX-License-Identifier: GPL-2.0-or-later
"""The fault bench (`sanctl chaos`): breaks a laboratory under load, audits it after each fault."""
