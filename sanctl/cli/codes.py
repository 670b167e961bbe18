# SPDX-License-Identifier: GPL-2.0-or-later
"""All SAN-... codes with their meanings, for `sanctl explain` and the reference."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from sanctl.cli.agent_codes import CODES as AGENT_CODES
from sanctl.cli.cluster_codes import CODES as CLUSTER_CODES
from sanctl.cli.command_codes import CODES as COMMAND_CODES
from sanctl.cli.device_codes import CODES as DEVICE_CODES
from sanctl.cli.finding_codes import CODES as FINDING_CODES
from sanctl.cli.point_codes import CODES as POINT_CODES
from sanctl.cli.reservation_codes import CODES as RESERVATION_CODES


def all_codes() -> Mapping[str, str]:
    """Return every code with its meaning; those of the laboratory only where it is installed."""
    from sanctl.config.codes import CODES as CONFIG_CODES  # noqa: PLC0415 - only when asked for

    laboratory: Mapping[str, str] = {}
    if importlib.util.find_spec("sanctl.lab") is not None:
        laboratory = importlib.import_module("sanctl.lab.codes").CODES
    found = {
        **AGENT_CODES,
        **CLUSTER_CODES,
        **COMMAND_CODES,
        **DEVICE_CODES,
        **POINT_CODES,
        **RESERVATION_CODES,
        **FINDING_CODES,
        **CONFIG_CODES,
        **laboratory,
    }
    return dict(sorted(found.items()))
