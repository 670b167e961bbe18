# SPDX-License-Identifier: GPL-2.0-or-later
"""The include files beside a resource file, and new metadata on a loop device in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, pool_files
from sanctl.errors import CommandError
from sanctl.parse.drbd import ProcState
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

VOL = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=7, initiators=()
)


@pytest.fixture
def folder(fake_node: FakeNode) -> Path:
    (fake_node.folder / "registry").mkdir()
    return fake_node.folder


def test_a_replica_of_an_older_release_gets_a_file_for_its_handlers(folder: Path) -> None:
    resource_file.register_for_handlers(VOL)
    assert not (folder / "drbd.d").exists(), "it is not up"
    (folder / "drbd.d").mkdir()
    (folder / "drbd.d/vol.res").write_text("resource vol {\n")
    resource_file.register_for_handlers(VOL)
    link = folder / "registry/drbd-minor-7.conf"
    assert link.resolve().read_text() == (
        f'include "/etc/drbd.d/global_common.conf";\ninclude "{folder}/drbd.d/vol.res";\n'
    )
    resource_file.remove("vol")
    assert list((folder / "drbd.d").iterdir()) == []


@pytest.mark.parametrize(
    ("device", "is_claimed", "refused"),
    [("/dev/loop9", False, ""), ("/dev/loop9", True, "in use"), (None, False, "is gone")],
)
def test_no_metadata_on_a_loop_device_of_another_replica(
    fake_node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    device: str | None,
    is_claimed: bool,
    refused: str,
) -> None:
    renamed: list[str] = []
    monkeypatch.setattr(pool_files, "rename", lambda _old, new: renamed.append(new))
    files = pool_files.files_of(str(fake_node.folder), VOL.name, VOL.uuid)
    fake_node.loops = {f"{files.metadata}.new": device} if device else {}
    fake_node.claimed = {"/dev/loop9"} if is_claimed else set()
    runner = FakeRunner()
    if refused:
        with pytest.raises(CommandError, match=rf"SAN-POOL-026.*{refused}"):
            resource_file.bring_up(runner, VOL, files)
    else:
        resource_file.bring_up(runner, VOL, files)
    asked = [argv for argv, _ in runner.calls]
    metadata = ("drbdmeta", "--force", "-", "v08", device, "flex-external", "create-md")
    assert asked == ([] if refused else [metadata, ("drbdadm", "adjust", "vol")])
    assert renamed == ([] if refused else [files.metadata])


@pytest.mark.parametrize("disk", ["UpToDate", "Diskless"])
def test_no_metadata_is_made_under_an_attached_disk(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """Its file was removed: `adjust` would attach the blank metadata instead of what DRBD has."""
    state = ProcState("Connected", "Secondary", "Primary", disk, "UpToDate", False, 0)
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _minor: state)
    monkeypatch.setattr(pool_files, "rename", lambda _old, _new: None)
    files = pool_files.files_of(str(fake_node.folder), VOL.name, VOL.uuid)
    fake_node.loops = {f"{files.metadata}.new": "/dev/loop7"}
    runner = FakeRunner()
    if disk == "Diskless":
        resource_file.bring_up(runner, VOL, files)
        assert runner.calls[0][0][0] == "drbdmeta"
        return
    with pytest.raises(CommandError, match=r"SAN-POOL-026.*attached \(UpToDate\)"):
        resource_file.bring_up(runner, VOL, files)
    assert runner.calls == []
