# SPDX-License-Identifier: GPL-2.0-or-later
"""The client answers for a monitor that is late, where no other node can serve (docs/adr/0091)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from sanctl.agents import device, ocf
from sanctl.agents.service import server
from sanctl.errors import CommandError, Problem
from sanctl.model.answered_monitors import (
    NOTE_KIND,
    AnsweredMonitors,
    parse_answered,
    published_word,
)
from sanctl.render.device_elements import OPERATIONS
from sanctl.system import state_files
from tests.support.doc_samples import ROOT

FAILED, PROMOTED, STANDBY = ocf.ERR_GENERIC, ocf.RUNNING_PROMOTED, ocf.SUCCESS
ALONE = "cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----"
IN_SYNC = "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----"
#: As long as the program would go on; the client has `HASTY_MS`.
LONG_S = 20
HASTY_MS = "800"


class Node:
    """What the client finds of a node that serves `vol1`, minor 3, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = (ROOT / "resource-agents/client").read_text()
        for found, instead in (
            ("/opt/sanctl/current", "current"),
            ("/run/sanctl/devices", "devices"),
            ("/run/sanctl/node", "node"),
            ("/run/sanctl/actions.socket", "socket"),
            ("/proc/drbd", "drbd"),
            ("/sys/kernel/config/target", "lio"),
            ("/sys/block", "block"),
            ("/run/drbd", "registry"),
            ("/dev/log", "log"),
            ("/usr/bin/python3", "program"),
            ("/usr/bin/logger", "true"),
        ):
            assert found in text
            text = text.replace(found, str(folder / instead))
        self.client = folder / "device"
        self.client.write_text(text)
        self.client.chmod(0o755)
        (folder / "current").symlink_to("0.1.0-new")
        self.program("exit 75")
        self.drbd({3: ALONE})
        for name in ("vol1", "vol2"):
            self.write(f"registry/{name}.res", "  on n1 {\n  on n2 {\n")
        (folder / "registry/drbd-minor-3.conf").symlink_to(f"{folder}/registry/vol1.conf")
        (folder / "registry/drbd-minor-4.conf").symlink_to(f"{folder}/registry/vol2.conf")
        self.gate(is_open=True)
        self.write("block/dm-1/dm/suspended", "0\n")
        self.write("block/dm-2/dm/suspended", "0\n")
        self.alua("0")
        self.write("lio/iscsi/iqn.2026-01.x.vol1/tpgt_1/enable", "1\n")
        self.write("lio/iscsi/iqn.2026-01.x.vol1/tpgt_1/lun/lun_0/x", "")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, shell: str) -> None:
        self.write("program", f"#!/bin/sh\n{shell}\n")
        (self.folder / "program").chmod(0o755)

    def drbd(self, lines: dict[int, str]) -> None:
        counts = "    ns:1 nr:0 dw:1 dr:9 al:1 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0\n"
        text = "".join(f"{minor:2}: {line}\n{counts}" for minor, line in lines.items())
        self.write("drbd", f"version: 8.4.11 (api:1/proto:86-101)\n{text}")

    def gate(self, *, is_open: bool) -> None:
        self.write("block/drbd3/holders/dm-1", "")
        if not is_open:
            (self.folder / "block/drbd3/holders/dm-1").unlink()
        self.write("block/dm-1/dm/name", "sanctl-vol1-gate\n")
        self.write("block/dm-1/holders/dm-2", "")
        self.write("block/dm-2/dm/name", "sanctl-vol1\n")

    def alua(self, state: str) -> None:
        at = "lio/core/iblock_3/sanctl-vol1/alua"
        self.write(f"{at}/default_tg_pt_gp/alua_access_state", "0\n")
        self.write(f"{at}/sanctl-n1/alua_access_state", f"{state}\n")

    def start(self, action: str = "monitor", **changes: str) -> subprocess.Popen[str]:
        environment = {
            "OCF_RESOURCE_INSTANCE": "vol1:0",
            "OCF_RESKEY_minor": "3",
            "OCF_RESKEY_CRM_meta_interval": "10000",
            "OCF_RESKEY_CRM_meta_role": "Promoted",
            "OCF_RESKEY_CRM_meta_timeout": "120000",
        }
        return subprocess.Popen(
            [self.client, action],
            env=environment | changes,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, action: str = "monitor", **changes: str) -> int:
        client = self.start(action, **changes)
        _, self.said = client.communicate(timeout=60)
        return client.returncode


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_on_the_only_node_that_can_serve_the_role_stands_that_the_kernel_shows(node: Node) -> None:
    assert node.run() == PROMOTED
    assert "SAN-AGENT-022: vol1: monitor: " in node.said
    assert "no other node can serve vol1" in node.said
    assert node.run(OCF_RESKEY_CRM_meta_role="Master") == PROMOTED


def test_what_the_program_has_found_out_is_the_answer(node: Node) -> None:
    for status in (0, 1, 7, 8, 9):
        node.program(f"exit {status}")
        assert node.run() == status
        assert node.said == ""


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (IN_SYNC, FAILED),
        ("cs:VerifyS ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", FAILED),
        ("cs:Connected ro:Primary/Secondary ds:Diskless/UpToDate C r-----", FAILED),
        ("cs:WFConnection ro:Primary/Unknown ds:Diskless/DUnknown C r-----", FAILED),
        ("cs:WFConnection ro:Primary/Unknown ds:Inconsistent/DUnknown C r-----", FAILED),
        ("cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown C r-----", FAILED),
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/Outdated C r-----", PROMOTED),
        # Frozen for fencing: the peer may have all that was acknowledged, and take over.
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C s-----", FAILED),
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/Outdated C s-----", PROMOTED),
        ("cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----", PROMOTED),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/Diskless C r-----", PROMOTED),
        ("cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----", PROMOTED),
    ],
)
def test_by_what_drbd_says_of_the_device(node: Node, line: str, status: int) -> None:
    node.drbd({3: line})
    assert node.run() == status


@pytest.mark.parametrize(
    ("line", "replicas", "status"),
    [
        (ALONE, 2, PROMOTED),
        (IN_SYNC, 2, FAILED),
        (IN_SYNC.replace("Primary/Secondary", "Secondary/Primary"), 2, FAILED),
        ("cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----", 2, PROMOTED),
        ("cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----", 1, FAILED),
        ("cs:WFConnection ro:Primary/Unknown ds:Outdated/DUnknown C r-----", 2, FAILED),
    ],
)
def test_another_device_that_this_node_alone_serves_counts(
    node: Node, line: str, replicas: int, status: int
) -> None:
    """Failed, the one that another node can serve would end in the fencing of both."""
    node.drbd({3: IN_SYNC, 4: line})
    node.write("registry/vol2.res", "  on n1 {\n" * replicas)
    assert node.run() == status
    assert ("no other node can serve vol2" in node.said) == (status == PROMOTED)


def as_standby(node: Node) -> dict[str, str]:
    node.gate(is_open=False)
    node.alua("2")
    return {"OCF_RESKEY_CRM_meta_role": "Unpromoted"}


def test_a_standby_stands_where_its_node_alone_serves_another_device(node: Node) -> None:
    role = as_standby(node)
    mine = "cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----"
    node.drbd({3: mine, 4: ALONE})
    assert node.run(**role) == STANDBY
    assert node.run() == FAILED, "the cluster has it promoted"
    node.drbd({3: mine, 4: IN_SYNC})
    assert node.run(**role) == FAILED
    node.drbd({3: mine, 4: ALONE})
    node.gate(is_open=True)
    assert node.run(**role) == FAILED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("drbd", "version: 9.3.3 (api:2/proto:118-123)\n"),
        ("block/dm-1/dm/name", "sanctl-vol10-gate\n"),
        ("lio/core/iblock_3/sanctl-vol1/alua/sanctl-n1/alua_access_state", "2\n"),
        ("lio/iscsi/iqn.2026-01.x.vol1/tpgt_1/enable", "0\n"),
    ],
)
def test_what_is_not_whole_or_not_known_has_failed(node: Node, name: str, text: str) -> None:
    node.write(name, text)
    assert node.run() == FAILED
    assert node.said == ""


def test_a_hold_for_a_restore_point_is_waited_for(node: Node) -> None:
    node.write("block/dm-2/dm/suspended", "1\n")
    client = node.start()
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait(1.0)
    node.write("block/dm-2/dm/suspended", "0\n")
    _, said = client.communicate(timeout=60)
    assert client.returncode == PROMOTED, said
    node.write("block/dm-1/dm/suspended", "1\n")
    assert node.run() == FAILED


def test_a_program_that_is_late_ends_with_what_it_started(node: Node) -> None:
    node.program(f"sleep {LONG_S} & echo $! >{node.folder}/pid; wait")
    began_s = time.monotonic()
    assert node.run(OCF_RESKEY_CRM_meta_timeout=HASTY_MS) == PROMOTED
    assert time.monotonic() - began_s < LONG_S / 2
    pid = int((node.folder / "pid").read_text())
    while Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() - began_s < LONG_S / 2
        time.sleep(0.02)


def test_a_late_program_is_waited_for_where_another_node_can_serve(node: Node) -> None:
    """Pacemaker's timeout ends it, as that of any other action."""
    node.drbd({3: IN_SYNC})
    node.program("sleep 3; exit 8")
    assert node.run(OCF_RESKEY_CRM_meta_timeout=HASTY_MS) == PROMOTED
    assert node.said == ""
    node.drbd({3: ALONE})
    node.program("sleep 3; exit 1")
    assert node.run("stop", OCF_RESKEY_CRM_meta_timeout=HASTY_MS) == FAILED
    assert node.run(OCF_RESKEY_CRM_meta_interval="0") == FAILED, "a probe"


def test_a_program_that_was_killed_has_told_nothing(node: Node) -> None:
    node.program("kill -9 $$")
    assert node.run() == PROMOTED
    node.drbd({3: IN_SYNC})
    assert node.run() == FAILED
    assert node.run("stop") != 0


def test_a_late_reload_is_left_to_the_next_monitor(node: Node) -> None:
    """Failed it would be a failed start: the device would be stopped, whoever can serve it."""
    node.drbd({3: IN_SYNC})
    assert node.run("reload-agent", OCF_RESKEY_CRM_meta_interval="0") == 0
    node.program(f"sleep {LONG_S}")
    assert node.run("reload-agent", OCF_RESKEY_CRM_meta_timeout=HASTY_MS) == 0
    assert "SAN-AGENT-022: vol1: reload-agent: " in node.said
    node.program("exit 1")
    assert node.run("reload-agent") == FAILED


@pytest.mark.parametrize(("line", "status"), [(ALONE, PROMOTED), (IN_SYNC, FAILED)])
def test_a_process_of_the_service_that_is_late(node: Node, line: str, status: int) -> None:
    node.drbd({3: line})
    with server.listen(str(node.folder / "socket")) as listener:
        client = node.start(OCF_RESKEY_CRM_meta_timeout=HASTY_MS)
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(60)
            assert connection.recv(8).isdigit()
            while b"=" not in connection.recv(2**20):
                pass
            connection.sendall(b"r")
            if line == ALONE:
                while connection.recv(2**20):
                    pass  # the client has gone: what it ends is the process here
            else:
                time.sleep(2.0)
        client.communicate(timeout=60)
    assert client.returncode == status


def test_it_is_told_to_the_journal_without_a_process(node: Node) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(node.folder / "log"))
        journal.settimeout(60)
        assert node.run() == PROMOTED
        assert journal.recv(4096).startswith(b"<27>sanctl: SAN-AGENT-022: vol1: monitor: ")


@pytest.mark.parametrize("code", ["SAN-AGENT-015", "SAN-CMD-002", "SAN-CMD-003"])
@pytest.mark.parametrize("action", ["monitor", "reload-agent", "stop", "demote", "start"])
def test_what_was_out_of_time_ends_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, action: str
) -> None:
    def late() -> int:
        raise CommandError(Problem(code, "no answer"))

    monkeypatch.setattr(device, action.replace("-", "_"), late)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1:0")
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "10000")
    is_late = code != "SAN-CMD-003" and action in {"monitor", "reload-agent"}
    wanted = ocf.UNANSWERED if is_late else ocf.ERR_GENERIC
    assert device.main(["device", action]) == wanted
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    assert device.main(["device", action]) == (wanted if action != "monitor" else ocf.ERR_GENERIC)


def test_the_client_answers_before_pacemakers_timeout_and_after_the_programs_own_waits() -> None:
    """What it waits for at most: a hold, when the time has come."""
    text = (ROOT / "resource-agents/client").read_text()
    assert "$timeout_ms / 1000 * 7 / 8" in text
    assert f"$UNANSWERED = {ocf.UNANSWERED};" in text
    for operation, _, _, timeout_s in OPERATIONS:
        if operation in {"monitor", "reload-agent"}:
            assert timeout_s / 8 >= 15.0
            # An action before it that hangs, and drbdsetup (both are reported as out of time).
            assert (timeout_s - 3.0) / 2 + 20.0 < timeout_s * 7 / 8


def test_answers_in_a_row_are_noted_until_a_monitor_has_its_own_end(node: Node) -> None:
    """For `sanctl status` (SAN-HLT-168); the answers do not depend on it."""
    note = node.folder / f"node/{NOTE_KIND}.vol1"
    assert node.run() == PROMOTED, "without the folder there is no note"
    assert not note.exists()
    note.parent.mkdir()
    before_s = int(time.time())
    assert [node.run() for _ in range(3)] == [PROMOTED] * 3
    since, count = map(int, note.read_text().split())
    assert before_s <= since <= time.time() and count == 3
    assert parse_answered(published_word(note.read_text(), 0.0)) == AnsweredMonitors(since, 2)
    assert node.run("reload-agent", OCF_RESKEY_CRM_meta_interval="0") == 0
    assert node.run(OCF_RESKEY_CRM_meta_interval="0") != PROMOTED, "a probe"
    assert note.read_text() == f"{since} 3", "neither is a monitor that was answered for"
    node.program("exit 8")
    assert node.run() == PROMOTED
    assert not note.exists()


def test_a_short_monitor_takes_the_note_away_and_is_one_beside_it(node: Node) -> None:
    """On a starved node it is the one that comes to its end."""
    node.write(f"node/{NOTE_KIND}.vol1", "1764150000 7")
    fingerprint = f"status {str(PROMOTED).encode().hex()}\ndrbd 33 "
    drbd = (node.folder / "drbd").read_text().splitlines()[1].partition(": ")[2]
    fingerprint += " ".join(each.encode().hex() for each in (drbd, "f", "/x", "5000"))
    folder = node.folder / "devices/vol1"
    names = b"fingerprint".hex()
    text = f"{fingerprint}\nfolder {str(folder).encode().hex()} {names}\nend\n"
    node.write("devices/vol1/fingerprint", text)
    node.program("exit 1")
    assert node.run() == PROMOTED
    assert not (node.folder / f"node/{NOTE_KIND}.vol1").exists()


@pytest.mark.parametrize("text", ["", "x 1", "1764150000", f"{'9' * 12} 1"])
def test_a_note_that_says_nothing_begins_anew(node: Node, text: str) -> None:
    node.write(f"node/{NOTE_KIND}.vol1", text)
    assert node.run() == PROMOTED
    assert (node.folder / f"node/{NOTE_KIND}.vol1").read_text().endswith(" 1")


def test_answers_with_a_pause_between_are_not_in_a_row(node: Node) -> None:
    """No monitor ran meanwhile: the device was stopped, or in maintenance."""
    node.write(f"node/{NOTE_KIND}.vol1", "1764150000 7")
    note = node.folder / f"node/{NOTE_KIND}.vol1"
    assert node.run() == PROMOTED
    assert note.read_text() == "1764150000 8"
    old_s = time.time() - 302
    os.utime(note, (old_s, old_s))
    assert node.run() == PROMOTED
    assert note.read_text().endswith(" 1") and not note.read_text().startswith("1764150000 ")


def test_a_note_goes_with_a_monitor_that_fails(node: Node) -> None:
    node.write(f"node/{NOTE_KIND}.vol1", "1764150000 7")
    node.drbd({3: IN_SYNC})
    assert node.run() == FAILED
    assert not (node.folder / f"node/{NOTE_KIND}.vol1").exists()
