# SPDX-License-Identifier: GPL-2.0-or-later
"""What a resync wrote counts once it was flushed; after another boot the replica is suspect."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from sanctl.agents.replica import lost_writes, resync_note
from sanctl.agents.sync import settling
from sanctl.drivers import drbdsetup
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner
from tests.support.doc_samples import ROOT

HANDLER = ROOT / "resource-agents/handlers/resync-target"
NAME = "vm1"


@pytest.fixture(autouse=True)
def boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("00000000-0000-4000-8000-000000000001\n")
    monkeypatch.setattr(resync_note, "_BOOT_ID", str(path))
    monkeypatch.setattr(lost_writes, "_BOOT_ID", str(path))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    return path


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / f"{NAME}.{'a' * 32}.data"
    path.write_bytes(b"x" * 4096)
    resync_note.prepare(NAME, str(path))
    return str(path)


def run_handler(tmp_path: Path, boot: Path, *words: str) -> int:
    """Run the handler with this test's files in place of the node's."""
    text = HANDLER.read_text()
    for own, other in (
        ("/run/sanctl", tmp_path / "run"),
        ("/proc/sys/kernel/random/boot_id", boot),
    ):
        assert own in text
        text = text.replace(own, str(other))
    script = tmp_path / "handler"
    script.write_text(text.replace("systemctl start", "true").replace("logger -t", "true"))
    environment = {**os.environ, "DRBD_RESOURCE": NAME, "DRBD_PEER": "n1"}
    return subprocess.run(["sh", script, *words], env=environment, check=False).returncode


def resource(*peers: PeerState) -> ResourceState:
    return ResourceState(NAME, "Secondary", "no", "UpToDate", 4, peers)


def peer(replication: str, connection: str = "Connected") -> PeerState:
    return PeerState("n1", connection, "Primary", replication, "UpToDate", 0)


def observed(monkeypatch: pytest.MonkeyPatch, *states: ResourceState | None) -> None:
    left = list(states)
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: left.pop(0) if len(left) > 1 else left[0])


def test_a_replica_that_was_never_filled_is_not_suspect(data: str, boot: Path) -> None:
    assert not resync_note.is_set(data)
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    assert not lost_writes.is_known_suspect(NAME, data)


def test_a_target_that_loses_its_power_is_suspect(data: str, boot: Path, tmp_path: Path) -> None:
    assert run_handler(tmp_path, boot, "before") == 0
    assert resync_note.is_set(data)
    assert not lost_writes.is_known_suspect(NAME, data)
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    assert lost_writes.is_known_suspect(NAME, data)
    # A full resync begins, or an operator accepts what is there.
    lost_writes.clear_marker(NAME, data)
    assert not lost_writes.is_known_suspect(NAME, data)


def test_a_note_that_is_not_whole_is_one(data: str) -> None:
    Path(resync_note.path_of(data)).write_text("")
    assert lost_writes.is_known_suspect(NAME, data)


def test_to_leave_write_back_keeps_the_note_of_this_boot(
    data: str, boot: Path, tmp_path: Path
) -> None:
    run_handler(tmp_path, boot, "before")
    lost_writes.clear_marker(NAME, data)
    assert resync_note.is_set(data)


def test_after_a_resync_the_handler_notes_nothing(data: str, boot: Path, tmp_path: Path) -> None:
    assert run_handler(tmp_path, boot) == 0
    assert not resync_note.is_set(data)


def test_no_resync_begins_without_the_note(data: str, boot: Path, tmp_path: Path) -> None:
    Path(resync_note.path_of(data)).unlink()
    Path(resync_note.path_of(data)).mkdir()
    assert run_handler(tmp_path, boot, "before") != 0


def test_a_replica_of_an_older_release_is_filled_as_before(boot: Path, tmp_path: Path) -> None:
    assert run_handler(tmp_path, boot, "before") == 0


def test_the_note_goes_once_the_data_is_flushed(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_handler(tmp_path, boot, "before")
    flushed: list[bool] = []
    monkeypatch.setattr(resync_note, "flush", lambda _: flushed.append(resync_note.is_set(data)))
    observed(monkeypatch, resource(peer("Established")))
    assert resync_note.settle(LocalRunner(), NAME, data)
    assert flushed == [True]
    assert not resync_note.is_set(data)
    assert resync_note.settle(LocalRunner(), NAME, data)
    assert flushed == [True]


@pytest.mark.parametrize(
    "state",
    [
        resource(peer("SyncTarget")),
        resource(peer("WFBitMapT")),
        resource(peer("PausedSyncT")),
        resource(peer("Off", "BrokenPipe")),
        resource(peer("SyncSource"), peer("SyncTarget")),
        None,
    ],
)
def test_it_stays_while_a_resync_runs(
    data: str,
    boot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: ResourceState | None,
) -> None:
    run_handler(tmp_path, boot, "before")
    observed(monkeypatch, state)
    assert not resync_note.settle(LocalRunner(), NAME, data)
    # Begun after the first look.
    observed(monkeypatch, resource(peer("Established")), state)
    assert not resync_note.settle(LocalRunner(), NAME, data)
    assert resync_note.is_set(data)


def test_it_goes_while_this_node_fills_another(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_handler(tmp_path, boot, "before")
    observed(monkeypatch, resource(peer("PausedSyncS")))
    assert resync_note.settle(LocalRunner(), NAME, data)


def test_a_flush_that_failed_once_makes_the_replica_suspect(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports it once: a second flush would succeed."""
    run_handler(tmp_path, boot, "before")
    observed(monkeypatch, resource(peer("Established")))
    errors: list[OSError] = [OSError(5, "Input/output error")]

    def fail_once(_: int) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(os, "fdatasync", fail_once)
    monkeypatch.setattr(lost_writes, "data_file", lambda _: data)
    replicas = settling.Settling(LocalRunner())
    while replicas.settle(NAME):
        time.sleep(0.001)
    assert not errors and lost_writes.is_known_suspect(NAME, data)
    # A stop does not believe the second one either; and the note on tmpfs goes with the boot.
    settling.settle_when_down(NAME)
    lost_writes._failed_flush_note(NAME).remove()
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    assert lost_writes.is_known_suspect(NAME, data)


def test_a_note_of_another_boot_stays(data: str, boot: Path, tmp_path: Path) -> None:
    """A suspect replica that was connected by hand does not become a good one by a resync."""
    run_handler(tmp_path, boot, "before")
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    assert run_handler(tmp_path, boot, "before") != 0
    assert lost_writes.is_known_suspect(NAME, data)


def test_a_handler_that_fails_leaves_a_note_for_the_monitor_to_connect(
    data: str, boot: Path, tmp_path: Path
) -> None:
    Path(resync_note.path_of(data)).unlink()
    assert run_handler(tmp_path, boot, "before") != 0
    assert state_files.device_suffixes(NAME, "outdated-unmarked") == ["n1"]
    resync_note.prepare(NAME, data)
    assert run_handler(tmp_path, boot, "before") == 0
    assert state_files.device_suffixes(NAME, "outdated-unmarked") == []


def test_it_stays_where_another_resync_came_and_went_during_the_flush(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_handler(tmp_path, boot, "before")
    observed(monkeypatch, resource(peer("Off", "Connecting")))
    monkeypatch.setattr(resync_note, "flush", lambda _: run_handler(tmp_path, boot, "before"))
    assert not resync_note.settle(LocalRunner(), NAME, data)
    assert resync_note.is_set(data)


def test_it_stays_where_the_flush_fails(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_handler(tmp_path, boot, "before")
    observed(monkeypatch, resource(peer("Established")))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        resync_note.settle(LocalRunner(), NAME, data)
    with pytest.raises(resync_note.FlushError):
        resync_note.clear_when_down(data)
    assert resync_note.is_set(data)


@pytest.mark.parametrize("number", [5, 30])
def test_a_note_that_a_stop_cannot_clear_says_nothing_of_the_flush(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A filesystem that takes no writes: the data was flushed."""
    run_handler(tmp_path, boot, "before")
    monkeypatch.setattr(lost_writes, "data_file", lambda _: data)

    def refuse(_: str) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(resync_note, "_clear", refuse)
    settling.settle_when_down(NAME)
    assert resync_note.is_set(data) and not lost_writes.has_flush_failed(NAME)


def test_a_stop_whose_flush_fails(
    data: str, boot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_handler(tmp_path, boot, "before")
    monkeypatch.setattr(lost_writes, "data_file", lambda _: data)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    settling.settle_when_down(NAME)
    assert lost_writes.has_flush_failed(NAME) and resync_note.is_set(data)


def test_a_start_in_a_full_pool_goes_on(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(resync_note.path_of(data)).unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resync_note, "write_atomically", refuse)
    settling.prepare(NAME, data)
    assert state_files.of_device(NAME, resync_note.KIND).exists()


def test_a_stop_clears_it(data: str, boot: Path, tmp_path: Path) -> None:
    run_handler(tmp_path, boot, "before")
    resync_note.clear_when_down(data)
    assert not resync_note.is_set(data)


def test_a_stop_keeps_that_of_another_boot(data: str, boot: Path, tmp_path: Path) -> None:
    run_handler(tmp_path, boot, "before")
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    resync_note.clear_when_down(data)
    assert lost_writes.is_known_suspect(NAME, data)


def test_why_a_replica_is_suspect_is_told(data: str, boot: Path, tmp_path: Path) -> None:
    assert run_handler(tmp_path, boot, "before") == 0
    boot.write_text("00000000-0000-4000-8000-000000000002\n")
    assert lost_writes.is_suspect(NAME, data)
    assert lost_writes.causes(data) == ["resync"]
    lost_writes.set_shutdown_marker(data)
    assert lost_writes.causes(data) == ["resync", "cache"]
    resync_note.forget(data)
    assert lost_writes.causes(data) == ["cache"]
    lost_writes.clear_marker(NAME, data)
    # A flush that failed, in write-back: no marker need be left.
    lost_writes.record_failed_flush(NAME)
    assert lost_writes.is_suspect(NAME, data) and lost_writes.causes(data) == ["cache"]
