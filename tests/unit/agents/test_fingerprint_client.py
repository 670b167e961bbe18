# SPDX-License-Identifier: GPL-2.0-or-later
"""The client's short monitor: it answers only where every record of the fingerprint still holds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sanctl.agents import device_metadata, pool_metadata, reach
from sanctl.parse.drbd import parse_proc_line
from sanctl.render.fingerprint import Record, environment_text, record, render
from tests.support.doc_samples import ROOT

WHOLE = 99
"""The status of the program that does all of a monitor's work."""
ENVIRONMENT = {"OCF_RESOURCE_INSTANCE": "vol1:0", "OCF_RESKEY_size": "32", "OCF_RESKEY_a": "b c\n"}
STATE = "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----"
COUNTS = "ns:1 nr:0 dw:1 dr:9 al:1 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0"
DRBD = f"""version: 8.4.11 (api:1/proto:86-101)
srcversion: X
 0: cs:Unconfigured
 3: {STATE}
    {COUNTS}
13: cs:Connected ro:Secondary/Primary ds:UpToDate/Inconsistent C r-----
    ns:1 nr:0 dw:1 dr:9 al:1 bm:0 lo:0 pe:0 ua:0 ap:7 ep:1 wo:d oos:8
"""
REQUESTS = "n\tdevice\tvnr\tmdi\tstart\tack\tlocal\tnet\n0\t3\t0\t0\t{}\t-\tlocal:\tnet:\n"


class Node:
    """What a client finds of a device that is whole, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = folder / "device"
        text = (ROOT / "resource-agents/client").read_text()
        for found, instead in (
            ("/opt/sanctl/current", "current"),
            ("/run/sanctl/devices", "devices"),
            ("/run/sanctl/node", "node"),
            ("/run/sanctl/actions.socket", "socket"),
            ("/proc/drbd", "drbd"),
            ("/sys/kernel/config/target", "lio"),
            ("/sys/module/target_core_mod", "lio-module"),
            ("/proc/uptime", "uptime"),
            ("/usr/bin/python3", "program"),
        ):
            assert found in text
            text = text.replace(found, str(folder / instead))
        self.client.write_text(text)
        self.client.chmod(0o755)
        (folder / "program").write_text(f"#!/bin/sh\nexit {WHOLE}\n")
        (folder / "program").chmod(0o755)
        (folder / "0.1.0-new").mkdir()
        (folder / "current").symlink_to("0.1.0-new")
        (folder / "devices/vol1").mkdir(parents=True)
        (folder / "drbd").write_text(DRBD)
        (folder / "uptime").write_text("1000.50 77.00\n")
        (folder / "stat").write_text("5 0 0 0 6 0 0 0 0 0 0 1 0 0 0 2 0\n")
        (folder / "state").write_text("0\n")
        (folder / "empty").write_text("")
        (folder / "list").mkdir()
        (folder / "list/one").write_text("")
        (folder / "link").symlink_to("here")
        its = os.stat(folder / "state")
        times = f"{its.st_ino} {its.st_size} {int(its.st_mtime)} {int(its.st_ctime)}"
        self.records = [
            record("until", "1010.00"),
            record("release", "0.1.0-new"),
            record("environment", environment_text(self.environment().items())),
            record("drbd", "3", STATE, "f", f"{folder}/requests", "5000"),
            record("file", f"{folder}/state", "0\n"),
            record("file", f"{folder}/empty", ""),
            record("folder", f"{folder}/list", "one"),
            record("link", f"{folder}/link", "here"),
            record("absent", f"{folder}/none"),
            record("stat", f"{folder}/state", times),
            record("inode", f"{folder}/list", str(os.stat(folder / "list").st_ino)),
            record("line", f"{folder}/drbd", f" 3: {STATE}"),
            record("idle", f"{folder}/stat", f"{folder}/progress"),
            record("status", "8"),
        ]
        self.leave(self.records)

    def environment(self, **changes: str) -> dict[bytes, bytes]:
        return {os.fsencode(k): os.fsencode(v) for k, v in (ENVIRONMENT | changes).items()}

    def leave(self, records: list[Record]) -> None:
        (self.folder / "devices/vol1/fingerprint").write_text(render(records))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def monitor(self, *action: str, **changes: str) -> int:
        done = subprocess.run(
            [self.client, *(action or ("monitor",))],
            env=self.environment(**changes),
            check=False,
            capture_output=True,
            timeout=60,
        )
        assert not done.stderr, done.stderr
        return done.returncode


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_monitor_ends_with_the_noted_status_where_all_is_as_it_was(node: Node) -> None:
    assert node.monitor() == 8
    assert (node.folder / "progress").read_text() == "14 1000.50"


def test_other_actions_and_probes_are_never_short(node: Node) -> None:
    assert node.monitor("stop") == WHOLE
    assert node.monitor(OCF_RESKEY_CRM_meta_interval="0") == WHOLE


def _asked_for_metadata(node: Node, agent: str) -> tuple[int, str]:
    client = node.folder / agent
    if agent != "device":
        client.symlink_to("device")
    done = subprocess.run(
        [client, "meta-data"], env={}, check=False, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("agent", "module", "text"),
    [
        ("device", "device_metadata", device_metadata.METADATA),
        ("pool", "pool_metadata", pool_metadata.METADATA),
        ("reach", "reach", reach.METADATA),
    ],
)
def test_meta_data_are_printed_as_the_release_has_them(
    node: Node, agent: str, module: str, text: str
) -> None:
    """Pacemaker asks before each start; an interpreter each would hold up the starts of many."""
    agents = node.folder / "0.1.0-new/sanctl/agents"
    agents.mkdir(parents=True)
    source = (ROOT / f"sanctl/agents/{module}.py").read_text()
    (agents / f"{module}.py").write_text(source)
    assert _asked_for_metadata(node, agent) == (0, text)


@pytest.mark.parametrize("source", [None, "", 'METADATA = """\\\nx\\n"""\n', "METADATA = other\n"])
def test_meta_data_that_are_not_as_expected_the_program_prints(
    node: Node, source: str | None
) -> None:
    agents = node.folder / "0.1.0-new/sanctl/agents"
    agents.mkdir(parents=True)
    if source is not None:
        (agents / "device_metadata.py").write_text(source)
    assert _asked_for_metadata(node, "device") == (WHOLE, "")


NOT_RUNNING = 7
IDLE_DRBD = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: X\n"
PROBE = {"OCF_RESKEY_CRM_meta_interval": "0"}


@pytest.mark.parametrize("drbd", [None, IDLE_DRBD])
def test_a_probe_where_the_kernel_can_have_no_replica_is_short(
    node: Node, drbd: str | None
) -> None:
    (node.folder / "drbd").unlink()
    if drbd is not None:
        node.write("drbd", drbd)
    assert node.monitor(**PROBE) == NOT_RUNNING
    assert node.monitor() == WHOLE
    assert node.monitor(OCF_RESKEY_CRM_meta_interval="10000") == WHOLE
    assert node.monitor("start", **PROBE) == WHOLE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lio", ""),
        ("lio-module", ""),
        ("drbd", DRBD),
        ("drbd", IDLE_DRBD.replace("8.4", "9.3")),
        ("drbd", ""),
    ],
)
def test_a_probe_where_it_could_have_one_is_not(node: Node, name: str, text: str) -> None:
    node.write("drbd", IDLE_DRBD)
    node.write(name, text)
    assert node.monitor(**PROBE) == WHOLE


@pytest.mark.parametrize(
    "changes",
    [{"OCF_RESKEY_size": "33"}, {"OCF_RESKEY_new": ""}, {"OCF_RESOURCE_INSTANCE": "vol1"}],
)
def test_a_changed_parameter_is_found(node: Node, changes: dict[str, str]) -> None:
    assert node.monitor(**changes) == WHOLE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uptime", "1010.01 77.00\n"),
        ("uptime", ""),
        ("state", "2\n"),
        ("empty", "x"),
        ("none", ""),
        ("list/two", ""),
        ("stat", "x y\n"),
        *(
            ("drbd", DRBD.replace(before, after, 1))
            for before, after in (
                (" 3: cs:Connected", " 3: cs:WFConnection"),
                ("Primary/Secondary", "Secondary/Secondary"),
                ("UpToDate/UpToDate", "Diskless/UpToDate"),
                ("UpToDate/UpToDate", "UpToDate/Outdated"),
                ("r-----", "s-----"),
                ("oos:0", "oos:4"),
                ("wo:f", "wo:d"),
                (" 3: ", "23: "),
            )
        ),
        ("drbd", ""),
    ],
)
def test_each_change_of_what_is_read_is_found(node: Node, name: str, text: str) -> None:
    node.write(name, text)
    assert node.monitor() == WHOLE


@pytest.mark.parametrize("name", ["state", "empty", "link", "current", "drbd", "uptime", "stat"])
def test_what_cannot_be_read_is_not_as_it_was(node: Node, name: str) -> None:
    (node.folder / name).unlink()
    assert node.monitor() == WHOLE


@pytest.mark.parametrize("at", range(14))
def test_each_record_counts(node: Node, at: int) -> None:
    records = list(node.records)
    kind, fields = records[at]
    records[at] = Record(kind, (*fields[:-1], fields[-1] + b"1"))
    if kind in {"until", "status", "idle", "drbd", "absent"}:
        records[at] = Record(f"{kind}x", fields)
    node.leave(records)
    assert node.monitor() == WHOLE


def test_half_a_fingerprint_is_none(node: Node) -> None:
    path = node.folder / "devices/vol1/fingerprint"
    path.write_text(path.read_text().removesuffix("end\n"))
    assert node.monitor() == WHOLE


def test_what_a_peer_lacks_that_is_away_grows(node: Node) -> None:
    alone = "cs:WFConnection ro:Primary/Unknown ds:UpToDate/Outdated C r-----"
    node.leave(
        [
            Record(kind, tuple(each.replace(STATE.encode(), alone.encode()) for each in fields))
            for kind, fields in node.records
        ]
    )
    without_peer = DRBD.replace(STATE, alone, 1)
    for text, status in (
        (without_peer, 8),
        (without_peer.replace("oos:0", "oos:4096", 1), 8),
        (without_peer.replace("Outdated", "DUnknown", 1), WHOLE),
        (without_peer.replace("r-----", "s-----", 1), WHOLE),
    ):
        node.write("drbd", text)
        assert node.monitor() == status


def test_a_request_under_way_has_all_looked_at_unless_the_kernel_calls_it_young(node: Node) -> None:
    node.write("drbd", DRBD.replace("ap:0", "ap:1", 1))
    assert node.monitor() == WHOLE
    node.write("requests", REQUESTS.format(4999))
    assert node.monitor() == 8
    assert not (node.folder / "progress").exists()
    node.write("requests", REQUESTS.format(5000))
    assert node.monitor() == WHOLE
    node.write("requests", "")
    assert node.monitor() == WHOLE


def test_the_client_and_the_agent_read_the_same_lines_of_proc_drbd() -> None:
    found = parse_proc_line(DRBD, 3)
    assert found is not None
    assert found == (STATE, "f", 0)
    assert parse_proc_line(DRBD, 0) is None
    assert parse_proc_line(DRBD, 1) is None
