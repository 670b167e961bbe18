# SPDX-License-Identifier: GPL-2.0-or-later
"""How far a copy is: published rarely, taken back at the end, and never in the way of the copy."""

from __future__ import annotations

import json

import pytest

from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import SetCopy
from sanctl.model.copy_progress import (
    COMPARING,
    ENDED,
    PROGRESS_PREFIX,
    SENDING,
    WAITING,
    CopyProgress,
    CopyStep,
)
from sanctl.ops import copy_watch
from sanctl.ops.copy_watch import copies_under_way, watched
from tests.fakes.pacemaker import FakeReporter
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites, printed, sites

__all__ = ["sites"]

ATTRIBUTE = f"{PROGRESS_PREFIX}web.far"
KEY = ("n2", ATTRIBUTE)
TOKEN = "7" * 16


def note_attempt(sites: Sites) -> None:
    """Have the CIB know of a run."""
    sites.run()
    record = sites.bed.seen().cib.copy("web", "far")
    assert record is not None
    sites.bed.session.change(lambda _: (SetCopy(record=record._replace(attempt=TOKEN)),))


def test_published_now_and_then_and_taken_back(sites: Sites) -> None:
    session, values = sites.bed.session, sites.bed.cluster.private_attributes
    told: list[str] = []
    with watched(session, "n2", "web.far", TOKEN, 0) as look:
        for second in range(41):
            look(CopyStep(SENDING if second < 25 else COMPARING, second, 40))
            if (value := values.get(KEY)) is not None and value not in told:
                told.append(value)
            session.clock.sleep(1)
    found = [CopyProgress.parse(each) for each in told]
    assert [each.step for each in found if each] == [
        CopyStep(SENDING, 10, 40),
        CopyStep(SENDING, 20, 40),
        CopyStep(COMPARING, 30, 40),
        CopyStep(COMPARING, 40, 40),
    ]
    assert found[0] and found[2] and found[2].since_s - found[0].since_s == 25
    assert values[KEY] == ENDED


def test_a_short_copy_costs_nothing(sites: Sites) -> None:
    sites.change(0, 1 << 20)
    sites.run()
    assert KEY not in sites.bed.cluster.private_attributes
    with watched(sites.bed.session, "n2", "web.far", TOKEN, 0) as look:
        look(CopyStep(SENDING, 1, 2))
    assert KEY not in sites.bed.cluster.private_attributes


def test_taken_back_when_the_copy_fails(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_watch, "_LOOK_S", 0.0)
    sites.more = b"def write_all(handle, data, at):\n    os._exit(9)\n"
    sites.change(0, 1 << 20)
    with pytest.raises(CommandError, match="SAN-SITE-005"):
        sites.run()
    assert sites.bed.cluster.private_attributes[KEY] == ENDED


def test_a_cluster_that_does_not_answer_stops_no_copy(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise CommandError(Problem("SAN-CLU-002", "no answer"))

    monkeypatch.setattr(copy_watch, "_LOOK_S", 0.0)
    monkeypatch.setattr(sites.bed.cluster, "publish_private", silent)
    sites.change(0, 1 << 20)
    assert sites.run().copy.changed_bytes == 1 << 20
    note_attempt(sites)
    monkeypatch.setattr(sites.bed.cluster, "transient_attributes", silent)
    assert copies_under_way(sites.bed.session, sites.bed.seen()) == {}


def test_while_the_site_reads_each_sign_of_life_is_one(sites: Sites) -> None:
    """The site may read for hours, and says nothing else meanwhile."""
    sites.more = (
        b"_digests = chunk_digests\n"
        b"def chunk_digests(handle, size, alive):\n"
        b"    for _ in range(3): alive.__self__.send(b'A', b'')\n"
        b"    return _digests(handle, size, alive)\n"
    )
    sites.run()
    reporter = sites.bed.session.reporter
    assert isinstance(reporter, FakeReporter)
    assert reporter.lines.count("waiting for the site to read its copy") == 4


def test_shown_from_any_node(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note_attempt(sites)
    values, now_s = sites.bed.cluster.private_attributes, int(sites.bed.env.clock.wall_s())

    def shown(step: CopyStep, at_s: int = now_s) -> str:
        values[KEY] = str(CopyProgress(TOKEN, step, at_s - 30, at_s))
        capsys.readouterr()
        assert printed("replicate status web", monkeypatch) == 0
        return capsys.readouterr().out

    text = shown(CopyStep(SENDING, 1 << 30, 4 << 30))
    assert "under way on n2" in text
    assert "web to far, on n2: sending [#####" in text and "25%, 1 GiB of 4 GiB, 1:" in text
    assert printed("replicate status --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate status", out) == []
    progress = json.loads(out)["data"][0]["progress"]
    assert (progress["node"], progress["phase"], progress["done_percent"]) == ("n2", SENDING, 25.0)
    assert "on n2: waiting for the site to read its copy, 4 GiB" in shown(
        CopyStep(WAITING, 0, 4 << 30)
    )
    assert "left" not in shown(CopyStep(COMPARING, 0, 4 << 30))
    # Killed some minutes ago: what it has published is still there.
    old = shown(CopyStep(SENDING, 1 << 30, 4 << 30), now_s - 600)
    assert "under way, or broken off" in old and "on n2" not in old
    del values[KEY]
    assert printed("replicate status --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate status", out) == []
    assert json.loads(out)["data"][0]["progress"] is None
