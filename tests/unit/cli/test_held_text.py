# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl replicate failback --hold` says at its end."""

from __future__ import annotations

from dataclasses import replace

from sanctl.cli.views.restore import held_text
from sanctl.model.site_takeover import Successor, Takeover
from tests.unit.plan.device.test_held_restore import HELD_ORDER, needing
from tests.unit.plan.device.test_restoring import COPY


def test_the_roles_turn_by_another_devices_copy_alone() -> None:
    seen = needing(HELD_ORDER)
    (device,) = seen.cib.devices
    first, second = held_text(seen, device, COPY).splitlines()
    assert first.endswith("web --from far --copy COPY --takeover'")
    assert second.endswith("'sanctl replicate failback web --release'")
    own = COPY._replace(uuid=device.uuid)
    first, again = held_text(seen, device, own).splitlines()
    assert first.endswith("web --from far --copy COPY --hold'") and again == second
    takeover = Takeover("web", "far", device.uuid, Successor("db", "5" * 32, "before", 1))
    taken = replace(seen, cib=replace(seen.cib, takeovers=(takeover,)))
    assert "giveback web --at far' and then" in held_text(taken, device, COPY)
