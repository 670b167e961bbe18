# SPDX-License-Identifier: GPL-2.0-or-later
"""The note of a restore goes with what it is of, and their number has an end."""

from __future__ import annotations

from sanctl.model.cib_change import RemoveDevice, RemoveRestored, SetRestored, SetSite
from sanctl.model.device_restore import COPYING
from sanctl.model.names import DeviceName
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.site import restored
from sanctl.plan.site.definition import plan_site_removal
from sanctl.plan.site.restored import other_restores, plan_restored, restore_of
from sanctl.render.cib import render_patchset
from tests.unit.model.test_site import SITE
from tests.unit.model.test_site_restore import RECORD
from tests.unit.ops.test_snapshot import Bed, bed
from tests.unit.plan.device.test_restoring import ORDER, SPEC, cluster

__all__ = ["bed"]

COPY = SiteCopy("far", "web", "b" * 32, "to-far-1", "c" * 16, "d" * 64)
FROM_COPY = ORDER._replace(point=str(COPY), state=COPYING)


def test_noted_of_copies_alone() -> None:
    seen = cluster(FROM_COPY)
    (change,) = plan_restored(seen, "web", FROM_COPY, 1720.9)
    assert change == SetRestored(record=RECORD._replace(into="web", size_bytes=64 << 20))
    assert plan_restored(seen, "web", ORDER, 1720) == ()
    assert plan_restored(seen, "gone", FROM_COPY, 1720) == ()


def test_of_own_devices_and_of_others() -> None:
    own, other = RECORD._replace(uuid=SPEC.uuid), RECORD._replace(device="db")
    seen = cluster(None, restored=(own, other, RECORD))
    assert restore_of(seen, "web") == own and restore_of(seen, "gone") is None
    assert other_restores(seen) == (other, RECORD), "also of an earlier device of the name"
    assert restore_of(cluster(None, restored=(RECORD,)), "web") is None


def test_the_oldest_of_others_go() -> None:
    most = restored._MOST_OTHERS
    own = RECORD._replace(uuid=SPEC.uuid, ended_s=1)
    many = tuple(RECORD._replace(device=f"d{n}", ended_s=1000 + n) for n in range(most))
    seen = cluster(FROM_COPY, restored=(own, *many))
    noted, *removed = plan_restored(seen, "web", FROM_COPY, 5000)
    assert isinstance(noted, SetRestored) and removed == [RemoveRestored(record=many[0])]
    # One that takes the place of its own earlier one.
    seen = cluster(FROM_COPY, restored=(own, *many[1:], noted.record))
    assert plan_restored(seen, "web", FROM_COPY, 6000)[1:] == ()


def test_in_the_cib(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    name = device.name.value
    own = RECORD._replace(device=name, uuid=device.uuid)
    other, near = RECORD._replace(device=name), RECORD._replace(device="db", site="near")
    bed.session.change(lambda _: (SetSite(site=SITE),))
    for each in (own, other, near):
        bed.session.change(lambda _, each=each: (SetRestored(record=each),))  # type: ignore[misc]
    assert bed.seen().cib.restored == tuple(sorted((own, other, near)))
    bed.session.change(lambda seen: plan_site_removal(seen, "far"))
    assert bed.seen().cib.restored == (near,)
    for each in (own, other):
        bed.session.change(lambda _, each=each: (SetRestored(record=each),))  # type: ignore[misc]
    bed.session.change(lambda _: (RemoveRestored(record=near),))
    patch = render_patchset(bed.cluster.root, (RemoveDevice(name=DeviceName.parse(name)),))
    assert own.id in patch and other.id not in patch, "another cluster's device of that name"
