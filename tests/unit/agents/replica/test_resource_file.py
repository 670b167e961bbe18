# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies beside a resource file, and on what no metadata are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, loop, pool_files
from sanctl.errors import CommandError
from tests.fakes.runner import FakeRunner

VOL = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=7, initiators=()
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "registry").mkdir()
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    monkeypatch.setattr(drbdadm, "_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(resource_file, "_INCLUDE", str(tmp_path / "sanctl.res"))
    return tmp_path


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
def test_no_metadata_on_a_device_that_is_another_replicas(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str | None,
    is_claimed: bool,
    refused: str,
) -> None:
    monkeypatch.setattr(loop, "find", lambda _path: device)
    monkeypatch.setattr(loop, "is_claimed", lambda _device: is_claimed)
    renamed: list[str] = []
    monkeypatch.setattr(pool_files, "rename", lambda _old, new: renamed.append(new))
    files = pool_files.files_of(str(folder), VOL.name, VOL.uuid)
    runner = FakeRunner()
    if refused:
        with pytest.raises(CommandError, match=rf"SAN-POOL-026.*{refused}"):
            resource_file.bring_up(runner, VOL, files)
    else:
        resource_file.bring_up(runner, VOL, files)
    asked = [argv[1] for argv, _ in runner.calls]
    assert asked == ([] if refused else ["create-md", "adjust"])
    assert renamed == ([] if refused else [files.metadata])
