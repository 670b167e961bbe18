# SPDX-License-Identifier: GPL-2.0-or-later
"""How tests, demo, bench and chaos work with a running laboratory: ssh, initiator, failovers."""
