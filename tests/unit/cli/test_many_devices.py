# SPDX-License-Identifier: GPL-2.0-or-later
"""Hundreds of devices: what `status` of them costs, and how many a sized cluster takes.

The cluster is the one that `sanctl bench status` measures.
"""

from __future__ import annotations

import bz2
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jinja2
import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.config import parse
from sanctl.lab.bench.made_up_cluster import (
    NOW_S,
    PACEMAKER_VERSION,
    MadeUpCluster,
    Situation,
    cluster_toml,
    made_up_cluster,
)
from sanctl.model.device import MINORS
from sanctl.model.packed_states import STATES_ATTRIBUTE
from sanctl.model.point_schedule import SCHEDULE_PREFIX, PointSchedule, Rule
from sanctl.model.restore_point import POINTS_ID, RestorePoint
from sanctl.model.site import CopySchedule
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.plan.cluster.cib_size import cib_size_problem, has_size_limit
from tests.fakes.pacemaker import FakeClock, FakeReporter

_ROLE = Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_corosync"
Run = Callable[..., tuple[int, str, str]]


def sized_for(devices: int, *, nodes: int = 3) -> int:
    """Return the IPC buffer that the role gives Pacemaker."""
    variables = (_ROLE / "vars/main.yml").read_text()
    formula = re.search(r"^sanctl_corosync_ipc_buffer_bytes: >-\n((?: +.*\n)+)", variables, re.M)
    assert formula is not None
    text = jinja2.Environment(autoescape=False).from_string(formula[1])
    groups = {"sanctl_nodes": [f"n{number}" for number in range(1, nodes + 1)]}
    return int(text.render(sanctl_corosync_devices=devices, groups=groups))


class Accepted(Exception):
    """A patch was given to Pacemaker."""


class MadeUpEnvironment:
    """The port to Pacemaker, and what else a command works with, of a cluster that is made up."""

    def __init__(self, cluster: MadeUpCluster) -> None:
        self.cluster = cluster
        self.pacemaker = self
        self.clock = FakeClock()
        self.clock.now = NOW_S + 30.0
        self.buffer_bytes = 128 << 10
        self.patches: list[str] = []

    def query(self) -> str:
        return self.cluster.cib

    def monitor(self) -> str:
        return self.cluster.monitor

    def transient_attributes(self, attribute: str) -> Mapping[str, str]:
        return self.cluster.states if attribute == STATES_ATTRIBUTE else {}

    def patch(self, patchset: str) -> None:
        self.patches.append(patchset)
        raise Accepted

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield Session(self, self.clock, FakeReporter())  # type: ignore[arg-type]

    def topology(self) -> Topology:
        return parse(cluster_toml())

    def drbd_version(self) -> str | None:
        return "8.4.11"

    def ipc_buffer_bytes(self) -> int:
        return self.buffer_bytes

    def new_uuid(self) -> str:
        return "e" * 32

    @contextmanager
    def logged(self, action: str, *, device: str = "", command_line: str = "") -> Iterator[None]:
        yield


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(env: MadeUpEnvironment, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: env)
        monkeypatch.setattr(sys, "argv", ["sanctl", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


# What `status` costs --------------------------------------------------------------------------


def kept(cluster: MadeUpCluster) -> MadeUpCluster:
    """Give each device restore points, a schedule of them, and a schedule of copies at a site."""
    root = ET.fromstring(cluster.cib)
    crm_config = root.find("configuration/crm_config")
    assert crm_config is not None
    points = ET.SubElement(crm_config, "cluster_property_set", id=POINTS_ID)
    options = crm_config[0]
    rule = Rule(3600, 24)
    for spec in parse_cib(root).devices:
        name = spec.name.value
        for number in range(3):
            made_s, token = NOW_S - 60 - 3600 * number, f"{spec.minor:012x}{number:04x}"
            nodes = tuple(sorted(map(str, spec.nodes)))
            point = RestorePoint(
                name, f"p{number}", token, spec.uuid, "main", made_s, spec.size.bytes, 40, nodes
            )
            ET.SubElement(points, "nvpair", id=point.id, name=point.id, value=point.value)
        schedule = PointSchedule(NOW_S - 90, (rule,))
        copies = CopySchedule(name, "far", NOW_S - 90, rule)
        for key, value in ((SCHEDULE_PREFIX + name, schedule.value), (copies.id, copies.value)):
            ET.SubElement(options, "nvpair", id=key, name=key, value=value)
    text = ET.tostring(root, encoding="unicode")
    assert len(parse_cib(root).points) == 3 * len(parse_cib(root).devices)
    assert len(parse_cib(root).schedules) == len(parse_cib(root).copy_schedules) > 0
    return MadeUpCluster(cib=text, monitor=cluster.monitor, states=cluster.states)


def calls_of(run: Run, cluster: MadeUpCluster) -> int:
    """Return how many functions `status` calls, in Python and in C; generators at each step."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        run(MadeUpEnvironment(cluster), "status")
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("situation", list(Situation))
def test_twice_the_devices_cost_twice_as_much(run: Run, situation: Situation) -> None:
    """A scan of all devices, marks or points for each device would cost four times as much."""
    run(MadeUpEnvironment(made_up_cluster(1)), "status")  # imports
    few = calls_of(run, kept(made_up_cluster(120, situation)))
    many = calls_of(run, kept(made_up_cluster(240, situation)))
    assert many < 2.1 * few


@pytest.mark.parametrize(
    ("situation", "status", "first"),
    [
        (Situation.HEALTHY, 0, "healthy: 3 of 3 nodes online (node-majority), 500 of 500"),
        (Situation.N3_LOST, 1, "degraded: 2 of 3 nodes online (node-majority), 167 of 500"),
        (Situation.N3_RETURNED, 1, "degraded: 3 of 3 nodes online (node-majority), 167 of 500"),
    ],
)
def test_five_hundred_devices_are_shown(
    run: Run, situation: Situation, status: int, first: str
) -> None:
    ended, out, err = run(MadeUpEnvironment(made_up_cluster(500, situation)), "status")
    assert (ended, err) == (status, "")
    assert out.splitlines()[0] == f"{first} devices ok"
    assert len([line for line in out.splitlines() if line.startswith("disk0")]) == 500
    if situation is Situation.N3_RETURNED:
        assert "the one on n3 waits for its turn to connect" in out


def test_the_summary_is_the_same_in_json(run: Run) -> None:
    env = MadeUpEnvironment(made_up_cluster(9, Situation.N3_LOST))
    first = run(env, "status")[1].splitlines()[0]
    data = json.loads(run(env, "status", "--output", "json")[1])["data"]
    assert data["summary"] == first
    assert [each["state"] for each in data["devices"]].count("ok") == 3


# How many devices a cluster takes -------------------------------------------------------------


def create_one_more(run: Run, have: int, buffer_bytes: int) -> tuple[bool, str]:
    """Return whether the device after those there are was accepted, and what was said if not."""
    env = MadeUpEnvironment(made_up_cluster(have))
    env.buffer_bytes = buffer_bytes
    _, _, err = run(
        env, "device", "create", "more", "--size", "1G", "--initiator", "iqn.2026-11.x:h"
    )
    return bool(env.patches), err


def test_the_made_up_cluster_has_the_limit_that_is_tested() -> None:
    assert has_size_limit(PACEMAKER_VERSION)
    cib = parse_cib(parse_document(made_up_cluster(2).cib))
    assert cib.properties["dc-version"] == PACEMAKER_VERSION and not cib.unreadable


@pytest.mark.parametrize("sized", [50, 500])
def test_a_cluster_accepts_the_devices_that_it_is_sized_for(run: Run, sized: int) -> None:
    accepted, err = create_one_more(run, sized - 1, sized_for(sized))
    assert accepted, err


@pytest.mark.parametrize("nodes", [3, 9, 32])
def test_a_device_takes_no_more_room_than_the_rules_reckon_with(nodes: int) -> None:
    """The role's, and the one of a creation: of 150 devices, and of each that is added."""
    cib = made_up_cluster(150, nodes=nodes).cib.encode()
    raw, compressed = len(cib) / 150, len(bz2.compress(cib)) / 150
    assert raw < 5500 + 700 * nodes
    assert compressed < 280 + 60 * nodes
    problem = cib_size_problem(
        compressed_bytes=len(bz2.compress(made_up_cluster(50, nodes=nodes).cib.encode())),
        new_devices=100,
        nodes=nodes,
        ipc_buffer_bytes=int(len(bz2.compress(cib)) / 0.8),
    )
    assert problem is not None, "it would have been accepted, and is larger than reckoned"


def test_the_one_too_many_is_refused_with_what_to_do(run: Run) -> None:
    """With the smallest buffer, which is Pacemaker's own: number 290 is the last one."""
    room = sized_for(1)
    assert room == 128 << 10
    accepted, err = create_one_more(run, 289, room)
    assert accepted, err
    accepted, err = create_one_more(run, 290, room)
    assert not accepted
    assert err.startswith("SAN-CLU-006: the CIB would have about")
    assert "and Pacemaker's messages have room for 102 KiB" in err
    assert "raise sanctl_corosync_devices in the inventory" in err


def test_a_cluster_sized_for_500_takes_all_that_have_a_minor_number() -> None:
    """On three nodes its buffer is 1 MiB, which no CIB reaches before that."""
    assert sized_for(500) == 1 << 20
    assert len(MINORS) == 2021
    assert cib_size_problem(
        compressed_bytes=0, new_devices=len(MINORS) - 250, nodes=3, ipc_buffer_bytes=1 << 20
    ) is None  # fmt: skip
