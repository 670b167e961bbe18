# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points and copies that are made beside faults: what is judged, and what is wrong."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.chaos import beside, paced, point_watch, site_faults, site_watch
from sanctl.lab.chaos.beside import Beside, BesidePlan
from sanctl.lab.chaos.fault import CopyKilled, SiteFull, SiteLinkCut
from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.chaos.point_watch import PointWatch
from sanctl.lab.chaos.site_faults import SiteFaults
from sanctl.lab.chaos.site_watch import SiteWatch, server_of
from sanctl.lab.harness import point_copies, site_server
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.point_copies import PointCopy
from sanctl.lab.machines import network_cuts
from sanctl.lab.measure.ledger_writer import LogHead, Record, RecordKind

POOL = "/srv/sanctl/main/points"
HEAD = LogHead(
    run_id="r", device="", seed=1, start_bytes=0, blocks=3, rate=1, depth=1, started_wall_ns=0
)
#: Each write was acknowledged before the next was issued.
LOG = [
    Record(kind, 0, 0, block, sequence, 0, 0)
    for sequence, block in ((1, 0), (2, 1))
    for kind in (RecordKind.INTENT, RecordKind.ACK)
]
GOOD = PointCopy("good", {0: 1, 1: 2})


def point(name: str, token: str, **more: Any) -> dict[str, Any]:
    nodes = [{"node": "n1"}, {"node": "n2"}]
    file = f"{POOL}/vol.u.{token}"
    return {"name": name, "file": file, "deleting": False, "nodes": nodes} | more


class Cluster:
    """Nodes n1 and n2 and the server i2: answers to commands, copies, files; what was asked."""

    def __init__(self) -> None:
        self.storage = [SimpleNamespace(name=name) for name in ("n1", "n2")]
        self.lab = SimpleNamespace(machines=())
        self.points: list[dict[str, Any]] = []
        self.copies: list[dict[str, Any]] = []
        self.newest: str | None = None
        self.refusals: list[tuple[int, str]] = []  # of the next creations and runs
        self.contents: dict[tuple[str, str], PointCopy | None] = {}
        self.more_files: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.made = 0

    def has_power(self, _node: str) -> bool:
        return True

    def sh(self, node: str, script: str, **_given: Any) -> Any:
        self.asked.append((node, script))
        if "snapshot create" in script:
            return self._create(re.search(r"--name (\S+)", script))
        if "snapshot list" in script:
            return told(self.points)
        if "snapshot delete" in script:
            self.points = [each for each in self.points if f"@{each['name']} " not in script]
            return told({})
        if "replicate run" in script:
            return self._copy()
        if "replicate status" in script:
            copy = {"token": self.newest, "point": "to-chaos-x"} if self.newest else None
            return told([{"site": "chaos", "copy": copy}, {"site": "far", "copy": None}])
        if "site copies" in script:
            return told(self.copies)
        if "find */points" in script:
            names = [each["file"].rpartition("/")[2] for each in self.points] + self.more_files
            return SimpleNamespace(stdout="\n".join(names), status=0, stderr="")
        return SimpleNamespace(stdout="", status=0, stderr="")

    def _create(self, match: re.Match[str] | None) -> Any:
        if self.refusals:
            return told(None, *self.refusals.pop(0))
        assert match is not None
        self.made += 1
        self.points.append(point(match[1], f"t{self.made}"))
        return told(self.points[-1])

    def _copy(self) -> Any:
        if self.refusals:
            return told(None, *self.refusals.pop(0))
        self.made += 1
        token = f"c{self.made}"
        self.newest = token
        self.points = [each for each in self.points if not each["name"].startswith("to-")]
        self.points.append(point(f"to-chaos-{self.made}", token))
        self.copies.append(
            {
                "point": f"to-chaos-{self.made}",
                "token": token,
                "file": f"/srv/chaos-site/{token}",
                "is_of_this_cluster": True,
            }
        )
        return told({"copy": {"point": f"to-chaos-{self.made}"}})

    def read(self, _bed: object, node: str, file: str, _head: object) -> PointCopy:
        found = self.contents.get((node, file.rpartition(".")[2].rpartition("/")[2]), GOOD)
        if found is None:
            raise CommandError(Problem("SAN-CMD-003", f"{file}: no such file"))
        return found


def told(data: Any, status: int = 0, code: str = "") -> Any:
    problems = [{"code": code, "text": "why", "hint": ""}] if code else []
    text = json.dumps({"schema": 1, "status": "x", "data": data, "problems": problems})
    return SimpleNamespace(stdout=text, stderr="", status=status)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    there = Cluster()
    monkeypatch.setattr(point_copies, "read", there.read)

    def once(what: str, look: Any, **_given: Any) -> Any:
        for _ in range(3):
            if found := look():
                return found
        raise NotConverged(Problem("SAN-DEMO-001", f"waited for {what}"))

    for module in (point_watch, site_watch, site_faults):
        monkeypatch.setattr(module, "wait_for", once)
    return there


@pytest.fixture
def load() -> DeviceLedger:
    host = SimpleNamespace(name="i1", fetch_log=lambda _run: (HEAD, LOG))
    log = SimpleNamespace(device="vol", host=host, run=None, length=lambda: len(LOG))
    return cast("DeviceLedger", log)


@pytest.fixture
def points(cluster: Cluster, load: DeviceLedger) -> PointWatch:
    bed = cast("LabSession", cluster)
    return PointWatch(bed, load, seed=1, mean_s=10.0, print_line=lambda _: None)


@pytest.fixture
def copies(cluster: Cluster, load: DeviceLedger) -> SiteWatch:
    bed = cast("LabSession", cluster)
    return SiteWatch(bed, load, server_of("i2"), seed=1, every_s=60.0, print_line=lambda _: None)


def make(watch: PointWatch | SiteWatch, count: int = 1) -> None:
    for _ in range(count):
        watch._make()


def test_points_that_are_right_are_judged_once_and_all_but_the_newest_deleted(
    cluster: Cluster, points: PointWatch
) -> None:
    make(points, 11)
    cluster.points.append(point("to-chaos-x", "c1"))
    assert points.judge(()) == []
    assert (points.tally.done, points.tally.judged) == (11, 12)
    assert [each["name"] for each in cluster.points] == ["chaos-11", "to-chaos-x"]
    assert points.judge(()) == []
    assert points.tally.judged == 12


def test_refusals_are_counted_by_code_and_are_not_wrong(
    cluster: Cluster, points: PointWatch
) -> None:
    cluster.refusals = [(4, "SAN-SNAP-005"), (5, "SAN-SNAP-007"), (4, "SAN-SNAP-005")]
    make(points, 4)
    assert points.judge(()) == []
    assert points.tally.refused == {"SAN-SNAP-005": 2, "SAN-SNAP-007": 1}
    assert (points.tally.done, points.tally.judged) == (1, 1)


def test_an_error_in_sanctl_itself_is_wrong(cluster: Cluster, points: PointWatch) -> None:
    cluster.refusals = [(70, "SAN-BUG-001")]
    make(points)
    (found,) = points.judge(())
    assert "snapshot create vol --name chaos-1" in found and "SAN-BUG-001" in found
    assert points.judge(()) == []


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        (PointCopy("other", {0: 1, 1: 2}), "differs between n1, n2"),
        (PointCopy("good", {1: 2}), "write 1 of block 0 is missing; it was acknowledged before"),
        (PointCopy("good", {0: 1}), "it was acknowledged before the copy was asked for"),
        (PointCopy("good", {}), "holds 0 of the ledger's blocks"),
        (None, "a copy cannot be read"),
    ],
)
def test_a_point_that_is_wrong_is_told_and_kept(
    cluster: Cluster, points: PointWatch, copy: PointCopy | None, why: str
) -> None:
    make(points, 3)
    cluster.contents["n2", "t1"] = copy
    found = points.judge(())
    assert found and any(why in each for each in found)
    assert all(each.startswith("vol: restore points: chaos-1: ") for each in found)
    assert [each["name"] for each in cluster.points] == ["chaos-1", "chaos-3"]


def test_a_point_that_was_made_and_is_not_there_is_wrong(
    cluster: Cluster, points: PointWatch
) -> None:
    make(points)
    cluster.points.clear()
    (found,) = points.judge(())
    assert "chaos-1 was said to be made, and is not in the CIB" in found


def test_one_that_is_being_deleted_is_not_read_and_its_file_is_no_left_over(
    cluster: Cluster, points: PointWatch
) -> None:
    cluster.points = [point("chaos-1", "t1", deleting=True)]
    cluster.contents["n1", "t1"] = None
    assert points.judge(()) == []
    assert points.tally.judged == 0


def test_a_file_of_no_point_is_wrong_and_one_without_a_name_has_its_time(
    cluster: Cluster, points: PointWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("sanctl.lab.chaos.point_watch.time.time", lambda: now_s)
    cluster.more_files = ["vol.u.gone.taking"]
    assert points.judge(()) == []
    now_s += 800
    assert points.judge(("n1",)) == []
    now_s += 200
    (found,) = points.judge(())
    assert "n2: vol.u.gone.taking became no restore point" in found
    cluster.more_files = ["vol.u.gone"]
    assert len(points.judge(())) == 2


def test_a_cluster_that_cannot_list_its_points_is_wrong(
    cluster: Cluster, points: PointWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(points)
    refused = told(None, 6, "SAN-CLU-001")
    monkeypatch.setattr(cluster, "sh", lambda *_words, **_given: refused)
    (found,) = points.judge(())
    assert "cannot be judged" in found


def test_after_all_faults_one_more_is_made(cluster: Cluster, points: PointWatch) -> None:
    cluster.refusals = [(5, "SAN-SNAP-007")]
    assert points.finish() == []
    assert points.tally.judged == 1
    cluster.refusals = [(4, "SAN-SNAP-005")] * 3
    (found,) = points.finish()
    assert "after all faults" in found


def test_copies_that_are_right_are_judged_once(cluster: Cluster, copies: SiteWatch) -> None:
    assert copies.judge(()) == []
    make(copies, 2)
    assert copies.judge(()) == [] == copies.judge(())
    assert (copies.tally.done, copies.tally.judged) == (2, 2)
    run = next(script for _, script in cluster.asked if "replicate run" in script)
    assert "setsid --wait" in run and "--from-active" in run
    assert 0 <= copies.worst_age_s() < 60


def test_a_copy_of_another_cluster_is_not_read(cluster: Cluster, copies: SiteWatch) -> None:
    make(copies)
    cluster.copies[0]["is_of_this_cluster"] = False
    cluster.newest = None
    assert copies.judge(()) == []
    assert copies.tally.judged == 0


@pytest.mark.parametrize(
    ("where", "copy", "why"),
    [
        (("n2", "c1"), PointCopy("other", {}), "it differs from its restore point on n2"),
        (("n1", "c1"), None, "its restore point on n1 cannot be read"),
        (("i2", "c1"), None, "it is listed, and cannot be read"),
        (("i2", "c1"), PointCopy("good", {1: 2}), "write 1 of block 0 is missing"),
    ],
)
def test_a_copy_that_is_wrong_is_told(
    cluster: Cluster,
    copies: SiteWatch,
    where: tuple[str, str],
    copy: PointCopy | None,
    why: str,
) -> None:
    make(copies)
    cluster.contents[where] = copy
    found = copies.judge(())
    assert found and any(why in each for each in found)
    assert all(each.startswith("vol: copies at the site: to-chaos-1: ") for each in found)


def test_a_copy_without_its_point_is_judged_by_the_log(cluster: Cluster, copies: SiteWatch) -> None:
    make(copies)
    cluster.points.clear()
    cluster.contents["i2", "c1"] = PointCopy("x", {0: 1, 1: 2})
    assert copies.judge(()) == []
    cluster.contents["i2", "c1"] = PointCopy("y", {0: 1, 1: 2})
    (found,) = copies.judge(())
    assert "it has changed since it was proven" in found


def test_a_proven_copy_that_the_site_lacks_is_wrong(cluster: Cluster, copies: SiteWatch) -> None:
    make(copies)
    cluster.copies.clear()
    (found,) = copies.judge(())
    assert "the site has not got to-chaos-x, which was proven" in found


def test_a_site_that_cannot_be_asked_is_wrong(
    cluster: Cluster, copies: SiteWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = told(None, 5, "SAN-SITE-005")
    monkeypatch.setattr(cluster, "sh", lambda *_words, **_given: refused)
    (found,) = copies.judge(())
    assert "cannot be judged" in found and "SAN-SITE-005" in found


def test_after_all_faults_one_more_copy_is_made(cluster: Cluster, copies: SiteWatch) -> None:
    cluster.refusals = [(4, "SAN-SITE-040")]
    assert copies.finish() == []
    cluster.refusals = [(5, "SAN-SITE-005")] * 3
    (found,) = copies.finish()
    assert "after all faults" in found
    both = Beside(copies=copies, points=None)
    assert both.finish() == []
    assert (told_of := both.report().copies) is not None and told_of.done == 2


def test_a_command_that_does_not_end_is_wrong(
    points: PointWatch, copies: SiteWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced.PacedThread, "pause", lambda *_: False)
    monkeypatch.setattr(paced.PacedThread, "has_died", lambda _: True)
    for watch in (points, copies):
        watch.pause()
        told = " ".join(watch.judge(()))
        assert "did not end" in told and "has died" in told


def test_the_faults_of_a_site(
    cluster: Cluster, copies: SiteWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[tuple[str, frozenset[network_cuts.Cut]]] = []
    monkeypatch.setattr(network_cuts, "change", lambda *_words, **given: cuts.extend(given.items()))
    bed = cast("LabSession", cluster)
    faults = SiteFaults(bed, copies, lambda _: None)
    cut = SiteLinkCut(nodes=("n1", "n2"), server="i2")
    faults.inject(cut)
    faults.undo(cut)
    (add, added), (remove, removed) = cuts
    assert (add, remove) == ("add", "remove") and added == removed
    assert {(each.source, each.target) for each in added} == {
        ("n1", "i2"), ("n2", "i2"), ("i2", "n1"), ("i2", "n2"),
    }  # fmt: skip
    full = SiteFull(server="i2")
    faults.inject(full)
    faults.undo(full)
    faults.heal()
    filled, freed, healed = cluster.asked
    assert filled[0] == "i2" and "fallocate" in filled[1] and "/srv/chaos-site/" in filled[1]
    assert freed == healed == ("i2", "rm -f /srv/chaos-site/.lab-filler")


@pytest.mark.parametrize(("end", "where"), [("sender", "n2"), ("receiver", "i2")])
def test_an_end_of_a_copy_is_killed(
    cluster: Cluster, copies: SiteWatch, monkeypatch: pytest.MonkeyPatch, end: str, where: str
) -> None:
    lines: list[str] = []
    faults = SiteFaults(cast("LabSession", cluster), copies, lines.append)
    fault = CopyKilled(end=end, after_s=0.0)
    monkeypatch.setattr(copies, "running_on", lambda: "n2")
    faults.inject(fault)
    faults.undo(fault)
    ((node, script),) = cluster.asked
    assert node == where and script.startswith("kill -KILL ")
    assert lines == []
    # The end begins a moment later than the copy.
    cluster.asked.clear()
    answers = iter([1, 0])
    monkeypatch.setattr(
        cluster, "sh", lambda *_words, **_given: SimpleNamespace(status=next(answers))
    )
    faults.inject(fault)
    assert lines == [] and not list(answers)
    # It was over before.
    cluster.asked.clear()
    seen = iter(["n2", ""] * 3)
    monkeypatch.setattr(copies, "running_on", lambda: next(seen))
    faults.inject(fault)
    monkeypatch.setattr(copies, "running_on", lambda: "")
    faults.inject(fault)
    assert cluster.asked == []
    assert lines == [f"   no {end} was killed: no copy lasted for so long"] * 2


def test_nothing_is_prepared_where_nothing_is_asked_for(cluster: Cluster) -> None:
    bed = cast("LabSession", cluster)
    with beside.opened(bed, [], beside.NOTHING, print) as besides:
        assert besides.watches == ()
        assert besides.finish() == []
        assert besides.report().as_json() == {}
    assert cluster.asked == []


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_site_is_removed_at_the_end_unless_its_copies_are_evidence(
    cluster: Cluster, load: DeviceLedger, monkeypatch: pytest.MonkeyPatch, is_wrong: bool
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(site_server, "remove", lambda _bed, where: removed.append(where.server))
    monkeypatch.setattr(site_server, "make", lambda *_: "root@10.0.0.9")
    plan = BesidePlan(seed=1, points_s=10, site_s=60, server="i2")
    lines: list[str] = []
    with beside.opened(cast("LabSession", cluster), [load], plan, lines.append) as besides:
        assert besides.watches == (besides.copies, besides.points)
        assert besides.copies is not None
        assert besides.faults is not None
        if is_wrong:
            besides.copies.tally.wrong.append("x")
    assert removed == (["i2"] if is_wrong else ["i2", "i2"])
    assert bool(lines) is is_wrong
    ((node, script),) = cluster.asked
    assert node == "n1" and "sanctl site add chaos --ssh root@10.0.0.9" in script
