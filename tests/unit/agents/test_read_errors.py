# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk that fails during a start: no file is made, removed or trusted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.agents.cache import write_cache
from sanctl.agents.connections import primary_node
from sanctl.agents.fencing import joined_peers
from sanctl.agents.promotion import first_activation
from sanctl.agents.recovery import fs_shutdown, refill_suspect
from sanctl.agents.replica import device_files, lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device, Health
from sanctl.drivers import (
    backing_device,
    drbdadm,
    loop,
    pool_files,
    pool_mount,
    pool_notes,
    ram_cache,
)
from sanctl.errors import CommandError
from sanctl.model.drbd import ResourceState
from tests.fakes.faults import NUMBERS, Faults
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

VOL = Device(
    name="vol", uuid="0" * 32, size_bytes=8192, pool="main", nodes=("n1", "n2"), minor=7,
    initiators=(),
)  # fmt: skip
STANDBY = ResourceState(
    name="vol", role="Secondary", disk="UpToDate", suspended="no", peers=(), size_kib=8
)


def refuse(*_args: object, **_options: object) -> None:
    raise AssertionError("this was not to be done")


@pytest.fixture
def files(
    tmp_path: Path, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> pool_files.DeviceFiles:
    """A replica with data, metadata and the marker of write-back."""
    (tmp_path / "devices").mkdir()
    made = pool_files.files_of(str(tmp_path), VOL.name, VOL.uuid)
    Path(made.data).write_bytes(b"data" * 2048)
    Path(made.metadata).write_bytes(b"meta" * 1024)
    Path(lost_writes.marker_path(made.data)).write_text("another boot\n")
    fake_node.states[VOL.name] = None
    monkeypatch.setattr(drbdadm, "recorded_size_bytes", lambda *_, **__: 8192)
    monkeypatch.setattr(backing_device, "create", lambda *_, over: None)
    monkeypatch.setattr(ram_cache, "remove_parts", lambda *_: None)
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: made.data)
    return made


def held(files: pool_files.DeviceFiles) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in Path(files.data).parent.iterdir()}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("part", ["data", "metadata"])
def test_a_start_makes_no_file_where_an_existing_one_cannot_be_read(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, part: str, number: int
) -> None:
    """An intact replica came back Inconsistent: its metadata had been deleted, or made again."""
    before, path = held(files), getattr(files, part)
    faults = Faults(monkeypatch)
    faults.at(path, number)
    folder = str(Path(files.data).parents[1])
    with pytest.raises(OSError) as caught:
        device_files.prepare(FakeRunner(), VOL, folder)
    assert (caught.value.errno, caught.value.filename) == (number, path)
    faults.numbers.clear()
    assert held(files) == before


@pytest.mark.parametrize("number", NUMBERS)
def test_no_metadata_are_written_over_unreadable_metadata(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(drbdadm, "create_metadata", refuse)
    monkeypatch.setattr(resource_file, "_unclaimed", refuse)
    monkeypatch.setattr(resource_file, "apply", refuse)
    Faults(monkeypatch).at(files.metadata, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        resource_file.bring_up(FakeRunner(), VOL, files)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_suspect_replica_stays_suspect(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its marker was cleared, as if the replica had no metadata and so no data to lose."""
    monkeypatch.setattr(write_cache, "apply_policy", lambda *_: None)
    faults = Faults(monkeypatch)
    faults.at(files.metadata, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_cache.prepare_start(FakeRunner(), VOL, files, is_protected=False)
    assert lost_writes.is_suspect(VOL.name, files.data)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("where", ["marker", "flush"])
def test_a_replica_that_may_be_suspect_does_not_serve_and_is_not_discarded(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, number: int, where: str
) -> None:
    Path(lost_writes.marker_path(files.data)).unlink()
    assert not lost_writes.is_suspect(VOL.name, files.data)
    monkeypatch.setattr(primary_node, "find", lambda *_: "n2")
    monkeypatch.setattr("sanctl.agents.replica.reinitialize.reset", refuse)
    faults = Faults(monkeypatch)
    marker, note = (
        lost_writes.marker_path(files.data),
        lost_writes._failed_flush_note(VOL.name).path,
    )
    faults.at(marker if where == "marker" else note, number)
    # The marker is read by the built-in open(), which asks the kernel by itself.
    monkeypatch.setattr(lost_writes, "read_text_or", _read)
    assert lost_writes.is_suspect(VOL.name, files.data)
    with pytest.raises(OSError, match=os.strerror(number)):
        refill_suspect.refill_if_suspect(FakeRunner(), VOL, STANDBY)
    if where == "marker":
        with pytest.raises(OSError, match=os.strerror(number)):
            lost_writes.has_marker(files.data)


def _read(path: str, default: str) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return default
    return Path(path).read_text()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_stop_does_not_fail_over_a_marker_that_cannot_be_looked_at(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its node would be fenced for it, with all else that the node serves: seen in the lab."""
    faults = Faults(monkeypatch)
    faults.at(lost_writes.marker_path(files.data), number)
    write_cache.before_stop(FakeRunner(), VOL)
    faults.numbers.clear()
    assert Path(lost_writes.marker_path(files.data)).read_text() == "another boot\n"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_filesystem_that_may_be_shut_down_is_not_promoted(
    files: pool_files.DeviceFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(pool_mount, "reports_shut_down", lambda _path: False)
    faults = Faults(monkeypatch)
    faults.at(pool_notes.path("main", pool_notes.SHUT_DOWN), number)
    with pytest.raises(OSError, match=os.strerror(number)):
        fs_shutdown.refuse_promotion(VOL)
    with pytest.raises(OSError, match=os.strerror(number)):
        pool_notes.exists("main", pool_notes.SHUT_DOWN)
    # What says so by itself is believed, whatever the node's own disk answers.
    monkeypatch.setattr(pool_mount, "reports_shut_down", lambda _path: True)
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        fs_shutdown.refuse_promotion(VOL)
    faults.at(pool_notes._FOLDER, number)
    fs_shutdown.record_shutdown("main")


def test_a_marker_that_cannot_be_read_is_not_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="SAN-POOL-001"):
        pool_files.check_marker(str(tmp_path), "5d4c")

    def fails(path: str) -> str:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(pool_files, "read_text", fails)
    with pytest.raises(CommandError, match=r"SAN-POOL-003.*Input/output error"):
        pool_files.check_marker(str(tmp_path), "5d4c")


def test_an_error_of_the_kernel_costs_no_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that only saves a query, or is there for tests, is no reason for a restart."""
    faults = Faults(monkeypatch)
    monkeypatch.setattr(os, "unlink", _failing(os.unlink))
    ocf.crash_point("gate")
    monkeypatch.setitem(device_files._PATHS_WITHOUT_SUFFIX, f"vol.{VOL.uuid}", str(tmp_path / "x"))
    faults.at(tmp_path / "x.data", errno.EIO)
    monkeypatch.setattr(loop, "backing_files", lambda: [f"/pool/devices/vol.{VOL.uuid}.data"])
    assert device_files.note_path(VOL, "sync") == f"/pool/devices/vol.{VOL.uuid}.sync"
    found = Health(gate="error", alua="Standby", is_exported=True, drbd=STANDBY, is_suspended=False)
    monkeypatch.setattr(parts, "observe", lambda *_: found)
    monkeypatch.setattr(first_activation, "_is_before_first_promotion", lambda *_: True)
    monkeypatch.setattr(ocf, "is_probe", lambda: False)
    faults.at(first_activation._active_note(VOL).path, errno.ENOMEM)
    assert first_activation.observe_after_first_promotion(FakeRunner(), VOL, within_s=1.0) == found
    faults.at(joined_peers.PACEMAKER_CGROUP, errno.ENOMEM)
    with pytest.raises(OSError, match="memory"):
        joined_peers.cluster_start_id()


def _failing(_real: Callable[..., None]) -> Callable[..., None]:
    def call(path: str) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    return call


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EIO, "Input/output error", "/p/vol.meta"),
         "/p/vol.meta: Input/output error (EIO)"),
        (OSError(errno.EIO, None), f"{os.strerror(errno.EIO)} (EIO)"),
        (OSError("read returned nothing"), "read returned nothing"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_the_reason_names_path_and_errno(
    error: OSError, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def start() -> int:
        raise error

    assert ocf.run("vol", ["device", "start"], {"start": start}, "") == ocf.ERR_GENERIC
    assert f"ocf-exit-reason:{told}\n" in capsys.readouterr().err
