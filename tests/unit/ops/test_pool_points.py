# SPDX-License-Identifier: GPL-2.0-or-later
"""A node whose pool begins anew is no longer said to have restore points, before their files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import loop, pool_notes
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import SetPoint
from sanctl.model.names import NodeName, PoolName
from sanctl.model.restore_point import RestorePoint
from sanctl.ops.pool_reformat import give_up_points
from sanctl.plan.device.restore_points import plan_pool_emptied
from sanctl.render.cib import render_patchset
from sanctl.system import state_files
from tests.fakes.topology import topology
from tests.unit.ops.test_device import codes
from tests.unit.ops.test_snapshot import Bed, bed

__all__ = ["bed"]

MAIN = PoolName.parse("main")


@pytest.fixture(autouse=True)
def _no_replica_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "backing_files", lambda: ())
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))


def give_up(bed: Bed, node: str) -> tuple[str, ...]:
    told: list[tuple[str, ...]] = []
    give_up_points(bed.session, topology(), MAIN, node, told.append)
    return told[-1]


def noted() -> set[str]:
    return set(pool_notes.read(MAIN, pool_notes.POINTS_GIVEN_UP).split())


def nodes(bed: Bed) -> dict[str, tuple[str, ...]]:
    return {point.name: point.nodes for point in bed.seen().cib.points}


def put(bed: Bed, point: RestorePoint) -> None:
    bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=point),)))


def test_the_node_is_taken_off_and_the_last_one_stays(bed: Bed) -> None:
    bed.create("one")
    bed.create("two", 2)
    assert give_up(bed, "n1") == ("web@one", "web@two")
    assert nodes(bed) == {"one": ("n2",), "two": ("n2",)}
    assert give_up(bed, "n1") == ()
    # What the CIB said before would have let the second node's files go, too.
    with pytest.raises(Refused) as caught:
        give_up(bed, "n2")
    assert codes(caught.value) == ["SAN-SNAP-014"]
    assert nodes(bed) == {"one": ("n2",), "two": ("n2",)}


def test_all_points_of_a_pool_are_one_change(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.create("one")
    bed.create("two", 2)
    patches, patch = list[str](), bed.cluster.patch

    def counted(text: str) -> None:
        patches.append(text)
        patch(text)

    monkeypatch.setattr(bed.cluster, "patch", counted)
    give_up(bed, "n1")
    assert len(patches) == 1


def test_a_replica_that_may_be_needed_keeps_all_as_it_is(bed: Bed) -> None:
    bed.create("one")
    bed.cluster.crash("n2")
    with pytest.raises(Refused) as caught:
        give_up(bed, "n1")
    assert codes(caught.value) == ["SAN-POOL-020"]
    assert nodes(bed) == {"one": ("n1", "n2")}


def test_points_that_are_being_deleted_and_those_elsewhere(bed: Bed) -> None:
    made = bed.create("one")
    put(bed, made._replace(name="fast", pool="fast", token="2" * 16))
    put(bed, made._replace(name="other", nodes=("n2",), token="3" * 16))
    put(bed, made._replace(name="going", is_deleting=True, token="4" * 16))
    put(bed, made._replace(name="gone", nodes=("n1",), is_deleting=True, token="5" * 16))
    assert give_up(bed, "n1") == ("web@one",)
    assert nodes(bed) == {
        "fast": ("n1", "n2"),
        "going": ("n2",),
        "one": ("n2",),
        "other": ("n2",),
    }
    assert noted() == {made.token, "4" * 16, "5" * 16}, "their files are here until they go"


def test_the_only_holder_is_not_taken_off_unchecked(bed: Bed) -> None:
    made = bed.create("one")
    put(bed, made._replace(nodes=("n1",)))
    assert plan_pool_emptied(bed.seen(), MAIN, NodeName.parse("n1")) == ()


def test_points_are_named_and_noted_before_the_change(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, patch = bed.create("one"), bed.cluster.patch
    told: list[tuple[str, ...]] = []

    def late(text: str) -> None:
        assert told == [("web@one",)] and noted() == {made.token}
        patch(text)
        raise CommandError(Problem("SAN-CMD-002", "no answer in 60 s"))

    with monkeypatch.context() as patched:
        patched.setattr(bed.cluster, "patch", late)
        with pytest.raises(CommandError):
            give_up_points(bed.session, topology(), MAIN, "n1", told.append)
    assert nodes(bed) == {"one": ("n2",)}
    # Another run has nothing to give up; what the first one did is known still.
    assert give_up(bed, "n1") == () and noted() == {made.token}
