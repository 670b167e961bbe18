# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device complete`: gives devices of an older version the constraints of this version."""

from __future__ import annotations

from sanctl.model.cib_change import CompleteDevice
from sanctl.ops.session import Session
from sanctl.plan.device.upgrade import plan_upgrade


def complete_devices(session: Session) -> tuple[str, ...]:
    """Add the CIB elements that devices of an older version lack; return the changed devices.

    Raises:
        Refused: no quorum.
    """
    changes = session.change(plan_upgrade)
    return tuple(c.device.name.value for c in changes if isinstance(c, CompleteDevice))
