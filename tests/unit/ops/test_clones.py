# SPDX-License-Identifier: GPL-2.0-or-later
"""`device create --from`: what it makes, what it refuses, and what has to stay meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import Refused
from sanctl.model.cib_change import SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.ops.snapshot import delete_point
from sanctl.plan.device import clone_needs, cloning, deletion
from sanctl.plan.device.creation import creation_problems, plan_creation
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.render.cib import render_patchset
from tests.fakes.topology import topology, wide_topology
from tests.unit.ops.test_snapshot import NAME, Bed, bed_with_device

N1, N2, N3 = map(NodeName.parse, ("n1", "n2", "n3"))
ASKED = DeviceArguments(name="copy", size="", replicas="2", origin="web@one")
Run = Callable[..., Any]


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """Return a cluster that has device web, whose nodes' releases make clones."""
    made = bed_with_device(monkeypatch)
    for pair in made.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} clones=1")
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bed: Bed) -> Run:
    """Run a command in JSON; return its data, or the codes of its problems."""
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: bed.env)

    def call(line: str, *, status: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["sanctl", *line.split(), "--output", "json"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        found = json.loads(capsys.readouterr().out)
        assert (stop.value.code or 0) == status, found
        return [each["code"] for each in found["problems"]] if status else found["data"]

    return call


def problems(bed: Bed, cluster: Cluster | None = None, **more: Any) -> list[str]:
    request = parse_device_request(replace(ASKED, **more))
    found = creation_problems(
        request, cluster or bed.seen(), topology(), drbd_version=more.pop("drbd", "8.4.11")
    )
    return [problem.code for problem in (*request.malformed, *found)]


def clone_of(bed: Bed, **more: Any) -> DeviceSpec:
    """Return a clone as the CIB would have it until it is first served."""
    request = parse_device_request(replace(ASKED, **more))
    made = plan_creation(request, bed.seen(), topology(), uuid="c" * 32)
    assert isinstance(made, DeviceSpec)
    return made


def with_clone(bed: Bed, **more: Any) -> Cluster:
    seen = bed.seen()
    clone = replace(clone_of(bed), **more)
    return replace(seen, cib=replace(seen.cib, devices=(*seen.cib.devices, clone)))


def test_a_clone_has_the_size_and_an_identity_of_its_own(bed: Bed, run: Run) -> None:
    point = bed.create("one")
    made = run("device create copy --from web@one")
    web = run("device show web")
    assert (made["made_from"], web["made_from"]) == ("web@one", None)
    assert made["size"] == web["size"] == 64 << 20
    assert all(made[key] != web[key] for key in ("uuid", "minor", "target"))
    device = bed.seen().cib.device("copy")
    assert device is not None and device.origin is not None
    assert device.origin.token == point.token
    assert device.origin.nodes == ("n1", "n2")
    assert device.initiators == (), "the hosts of the origin would see two disks with one UUID"
    # Of one restore point many clones can be made, and one of a clone.
    assert [each["name"] for each in run("device create c1 c2 --from web@one")] == ["c1", "c2"]


def test_text_names_the_origin(
    bed: Bed, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.create("one")
    run("device create copy --from web@one")
    monkeypatch.setattr(sys, "argv", ["sanctl", "device", "show", "copy"])
    with pytest.raises(SystemExit):
        main()
    assert "made from:    restore point web@one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "status", "codes"),
    [
        ("copy --from web", 2, ["SAN-SNAP-008"]),
        ("copy --from web@", 2, ["SAN-NAME-008"]),
        ("copy --from @one", 2, ["SAN-NAME-001"]),
        ("copy --from web@none", 4, ["SAN-SNAP-009"]),
        ("copy --from none@one", 4, ["SAN-DEV-002"]),
        ("copy --from web@one --size 1G", 2, ["SAN-CLONE-001"]),
        ("web --from web@one", 4, ["SAN-DEV-001"]),
        ("copy --from web@one --pool other", 4, ["SAN-CLONE-003", "SAN-POOL-011"]),
        ("copy --from web@one --nodes n1,n3", 4, ["SAN-NODE-002"]),
        ("copy --from web@one --read-cache 1G", 4, ["SAN-CACHE-011"]),
        ("copy", 2, ["SAN-CLI-001"]),
    ],
)
def test_what_is_refused(bed: Bed, run: Run, line: str, status: int, codes: list[str]) -> None:
    bed.create("one")
    before = bed.cluster.query()
    assert run(f"device create {line}", status=status) == codes
    assert bed.cluster.query() == before


def test_a_point_that_is_going_is_no_origin(bed: Bed) -> None:
    point = bed.create("one")
    deleting = render_patchset(
        bed.cluster.root, (SetPoint(point=point._replace(is_deleting=True)),)
    )
    seen = bed.seen()
    web = seen.cib.device("web")
    assert web is not None
    stopping = replace(
        seen, cib=replace(seen.cib, devices=(replace(web, is_stopping=True, is_deleting=True),))
    )
    assert problems(bed, stopping) == ["SAN-CLONE-002"]
    bed.cluster.patch(deleting)
    assert problems(bed) == ["SAN-CLONE-002"]
    # A restore point outlives no device, but what is read may be between two changes.
    orphan = cloning.origin_problems(
        replace(seen, cib=replace(seen.cib, devices=())), point, pool=None
    )
    assert [problem.code for problem in orphan] == ["SAN-CLONE-002"]


def test_a_node_of_an_older_release_makes_no_clones(bed: Bed, run: Run) -> None:
    """Its agents would make an empty file, and the first promotion would declare it equal."""
    bed.create("one")
    (published,) = (
        pair.get("value", "")
        for pair in bed.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']")
        if pair.get("id", "").startswith("status-2")
    )
    bed.cluster.attribute("n2", "sanctl-pool-main", published.removesuffix(" clones=1"))
    before = bed.seen().cib
    assert run("device create copy --from web@one", status=4) == ["SAN-CLONE-008"]
    assert bed.seen().cib == before


def test_it_begins_where_the_point_is(bed: Bed) -> None:
    point = bed.create("one")._replace(nodes=("n2",))
    bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=point),)))
    assert problems(bed) == []
    assert clone_of(bed).nodes == (N2, N1), "n2 serves first, and fills n1"
    assert clone_of(bed, replicas="1").nodes == (N2,)
    assert problems(bed, replicas="1", nodes=("n1",)) == ["SAN-CLONE-004"]
    assert problems(bed, prefer="n1") == ["SAN-CLONE-004"]
    assert problems(bed, prefer="n2") == []
    assert problems(bed, nodes=("n1", "n2")) == []
    bed.cluster.crash("n2")
    assert problems(bed, replicas="1") == ["SAN-CLONE-004"]


def test_nodes_that_have_the_point_come_first(bed: Bed) -> None:
    point = bed.create("one")
    assert cloning.clone_candidates(point, (N1, N2, N3), replicas=2) == ((N1, N2), ())
    assert cloning.clone_candidates(point, (N1, N2, N3), replicas=3) == ((N1, N2, N3), (N1, N2))
    only = point._replace(nodes=("n3",))
    assert cloning.clone_candidates(only, (N1, N2, N3), replicas=2) == ((N1, N2, N3), (N3,))
    assert wide_topology().pool(PoolName.parse("main")) is not None


def test_a_restore_point_stays_until_its_clones_are_served(bed: Bed) -> None:
    point = bed.create("one")
    being_made = with_clone(bed)
    for needed in (
        clone_needs.needed_by_clones(being_made, (point,)),
        clone_needs.needed_by_clones(being_made, (point,), on=(N2,)),
    ):
        assert [problem.code for problem in needed] == ["SAN-CLONE-005"]
    assert clone_needs.needed_by_clones(being_made, (point,), on=(N3,)) == ()
    assert clone_needs.needed_by_clones(being_made, (point._replace(token="9" * 16),)) == ()
    assert clone_needs.needed_by_clones(with_clone(bed, is_new=False), (point,)) == ()
    assert clone_needs.needed_by_clones(with_clone(bed, nodes=(N1,)), (point,), on=(N2,)) == ()
    assert clone_needs.needed_by_clones(bed.seen(), (point,)) == ()
    with pytest.raises(Refused, match="SAN-CLONE-005"):
        deletion.check_deletion(being_made, NAME)
    with pytest.raises(Refused, match="SAN-CLONE-005"):
        deletion.next_deletion_step(being_made, NAME)
    clone = DeviceName.parse("copy")
    deletion.check_deletion(being_made, clone)
    served = with_clone(bed, is_new=False)
    deletion.check_deletion(served, NAME)
    assert isinstance(deletion.next_deletion_step(served, NAME), deletion.RequestStop)
    # A deletion that has begun goes on: no clone is made any more.
    web = being_made.cib.device("web")
    assert web is not None
    devices = (replace(web, is_stopping=True, is_deleting=True), *being_made.cib.devices[1:])
    stopping = replace(being_made, cib=replace(being_made.cib, devices=devices))
    deletion.check_deletion(stopping, NAME)


def test_a_point_that_is_needed_is_not_deleted(
    bed: Bed, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.create("one")
    run("device create copy --from web@one")
    real = Cluster.seen

    def unserved(*words: Any) -> Cluster:
        seen = real(*words)
        devices = tuple(replace(each, is_new=each.origin is not None) for each in seen.cib.devices)
        return replace(seen, cib=replace(seen.cib, devices=devices))

    monkeypatch.setattr(Cluster, "seen", unserved)
    with pytest.raises(Refused, match="SAN-CLONE-005"):
        delete_point(bed.session, NAME, "one", timeout_s=30)
    assert run("device replicas web 1 --drop n2 --yes", status=4) == ["SAN-CLONE-005"]
    monkeypatch.setattr(Cluster, "seen", real)
    assert delete_point(bed.session, NAME, "one", timeout_s=30) == ()
    assert run("device show copy")["made_from"] == "web@one"


def test_a_clone_that_cannot_be_read_may_need_its_restore_point(bed: Bed, run: Run) -> None:
    """As where a later release has given it a policy that this one does not know."""
    point = bed.create("one")
    other = point._replace(token="9" * 16)
    run("device create copy --from web@one")
    pair = bed.cluster.root.find(".//nvpair[@id='copy-params-size']")
    assert pair is not None
    pair.set("value", "many")
    assert [name for name, _ in bed.seen().cib.unreadable] == ["copy"]
    for on in (None, (N3,)):
        (problem,) = clone_needs.needed_by_clones(bed.seen(), (point,), on=on)
        assert problem.code == "SAN-CLONE-005" and "copy" in problem.text
    assert clone_needs.needed_by_clones(bed.seen(), (other,)) == ()
    with pytest.raises(Refused, match="SAN-CLONE-005"):
        delete_point(bed.session, NAME, "one", timeout_s=30)
    with pytest.raises(Refused, match="SAN-CLONE-005"):
        deletion.check_deletion(bed.seen(), NAME)
    origin = bed.cluster.root.find(".//nvpair[@id='copy-params-origin']")
    assert origin is not None
    origin.set("value", "something newer")
    assert clone_needs.needed_by_clones(bed.seen(), (other,)), "it may be of any"
    assert clone_needs.needed_by_clones(bed.seen(), ()) == ()


def test_an_origin_that_is_none_makes_the_device_unreadable(bed: Bed, run: Run) -> None:
    bed.create("one")
    run("device create copy --from web@one")
    pair = bed.cluster.root.find(".//nvpair[@id='copy-params-origin']")
    assert pair is not None
    pair.set("value", "something newer")
    assert bed.seen().cib.device("copy") is None
