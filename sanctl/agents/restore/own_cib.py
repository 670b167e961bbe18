# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this node's disk has the CIB as its Pacemaker has it: what a loss of all power leaves.

Pacemaker writes the CIB some time after it has changed it. Until then a node that loses its power
comes back with what was said before: that a device is a copy which it may not be any more.
"""

from __future__ import annotations

import time

from sanctl.drivers import own_disk
from sanctl.errors import SanctlError
from sanctl.plan.health.own_disk_limits import is_behind
from sanctl.system.runner import Runner

_POLL_S = 0.05


def is_on_disk(runner: Runner, *, wait_s: float) -> bool:
    """Whether what this node's Pacemaker has as the CIB now is on its disk, or comes there soon.

    False also where that is not known.
    """
    deadline = time.monotonic() + wait_s
    try:
        live = own_disk.live_cib_version(runner)
        while live is not None:
            if not is_behind(own_disk.written_cib_version(), live):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
    except (SanctlError, OSError):
        return False
    return False
