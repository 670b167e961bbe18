# SPDX-License-Identifier: GPL-2.0-or-later
"""Extents of devices' data files: of which they are counted, and from how many on it is said."""

from __future__ import annotations

import json
import sys

import pytest

from sanctl.cli.main import main
from sanctl.model.findings import Severity
from sanctl.model.restore_point import (
    MAX_EXTENTS,
    SIZES_ATTRIBUTE,
    extents_key,
    parse_extents,
)
from sanctl.plan.device.data_extents import MANY_EXTENTS, devices_counted, extents_by_node
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.health.point_health import extent_findings
from tests.unit.ops.test_snapshot import Bed, bed

__all__ = ["bed"]


def publish(bed: Bed, **counts: int) -> None:
    """Have nodes publish how many extents the file of device web has there."""
    device = bed.seen().cib.device("web")
    assert device is not None
    for node, count in counts.items():
        bed.cluster.attribute(
            node, SIZES_ATTRIBUTE, f"{'1' * 16}=5 {extents_key('web', device.uuid)}={count}"
        )


def findings(bed: Bed) -> list[tuple[Severity, str, str, str]]:
    return [
        (each.severity, each.subject, each.what, each.why) for each in extent_findings(bed.seen())
    ]


def show(bed: Bed, capsys: pytest.CaptureFixture[str], output: str) -> str:
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as stop:
        patched.setattr(sys, "argv", ["sanctl", "device", "show", "web", "--output", output])
        main()
    assert not stop.value.code
    return capsys.readouterr().out


def test_devices_with_points_a_schedule_or_copies_are_counted() -> None:
    assert devices_counted(
        (
            "sanctl-point.a.one",
            "sanctl-point.a.two",
            "sanctl-schedule.b",
            "sanctl-copy.c.far",
            "sanctl-copying.d-1.far",
            # The first device of a group; each of its devices has an entry of its own.
            "sanctl-copy-group.e.far",
            "sanctl-site.far",
            "sanctl-host.f",
            "cluster-name",
        )
    ) == {"a", "b", "c", "d-1"}
    assert devices_counted(()) == frozenset()


def test_what_is_published_is_read_and_nothing_else() -> None:
    text = f"{'1' * 16}=5 web.{'a' * 8}=7 web.{'b' * 8}=x web=8 {'2' * 16}=gone Web.{'a' * 8}=9"
    assert parse_extents(text) == {f"web.{'a' * 8}": 7}


def test_a_file_of_an_earlier_device_of_that_name_does_not_count(bed: Bed) -> None:
    bed.cluster.attribute("n1", SIZES_ATTRIBUTE, f"web.{'9' * 8}=7000")
    device = bed.seen().cib.device("web")
    assert device is not None and extents_by_node(bed.seen(), device) == {}
    assert findings(bed) == []


def test_a_warning_from_three_quarters_on(bed: Bed) -> None:
    assert (MANY_EXTENTS, MAX_EXTENTS) == (75_000, 100_000)
    publish(bed, n1=74_999, n2=5)
    assert findings(bed) == []
    publish(bed, n1=75_000)
    ((severity, subject, what, why),) = findings(bed)
    assert (severity, subject) == (Severity.WARNING, "device web")
    assert "75000 on n1 of the 100000" in what and "n2" not in what
    assert "longer" in why
    assert "SAN-HLT-126" in {each.code for each in all_findings(bed.seen(), None, now_s=0.0)}


@pytest.mark.parametrize(("count", "is_refused"), [(100_000, False), (100_001, True)])
def test_beyond_the_limit_it_says_that_none_is_made(bed: Bed, count: int, is_refused: bool) -> None:
    publish(bed, n1=80_000, n2=count)
    ((_, _, what, why),) = findings(bed)
    assert f"80000 on n1, {count} on n2" in what
    assert ("any more" in why) is is_refused


def test_it_is_shown(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    assert "extents" not in show(bed, capsys, "text")
    publish(bed, n2=1234)
    assert "extents:      1234 on n2; beyond 100000 no restore point is made" in show(
        bed, capsys, "text"
    )
    shown = json.loads(show(bed, capsys, "json"))["data"]["replicas"]
    assert {each["node"]: each["extents"] for each in shown} == {"n1": None, "n2": 1234}
