# SPDX-License-Identifier: GPL-2.0-or-later
"""Which resource file drbdadm gets, registration for handlers, and attach to the right minor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.drivers import drbd_kernel, drbdadm
from sanctl.errors import CommandError, Problem
from tests.fakes.runner import Answer, FakeRunner

_EVENTS = """\
exists resource name:vol1 role:Secondary suspended:no
exists device name:vol1 volume:0 minor:{minor} disk:{disk}
exists -
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "registry").mkdir()
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path))
    monkeypatch.setattr(drbdadm, "_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setattr(drbd_kernel, "is_loaded", lambda: True)
    return tmp_path


def registered(folder: Path) -> dict[str, str]:
    return {link.name: str(link.readlink()) for link in (folder / "registry").iterdir()}


def test_drbdadm_gets_the_file_of_its_resource_alone(folder: Path) -> None:
    runner = FakeRunner()
    drbdadm.adjust(runner, "vol1")
    path = folder / "vol1.conf"
    path.touch()
    drbdadm.adjust(runner, "vol1")
    assert [argv for argv, _ in runner.calls] == [
        ("drbdadm", "adjust", "vol1"),
        ("drbdadm", "--config-file", str(path), "adjust", "vol1"),
    ]


def gave_up(_: Sequence[str]) -> CommandError:
    return CommandError(
        Problem("SAN-CMD-003", "drbdadm adjust vol1: exit status 20: did not terminate within 5 s")
    )


def test_an_adjust_that_drbdadm_gave_up_is_tried_again(folder: Path) -> None:
    """What broke: of eight devices that were created at once on a busy node one did not start."""
    # The second attempt meets the drbdsetup that the first has left.
    answers: list[Answer] = [gave_up(()), CommandError(Problem("SAN-CMD-003", "in use")), ""]
    runner = FakeRunner(lambda _: answers.pop(0))
    drbdadm.adjust(runner, "vol1")
    assert len(runner.calls) == 3
    runner = FakeRunner(gave_up)
    with pytest.raises(CommandError, match="did not terminate"):
        drbdadm.adjust(runner, "vol1")
    assert len(runner.calls) == 3


def test_an_adjust_that_drbd_refuses_is_not_repeated(folder: Path) -> None:
    runner = FakeRunner(CommandError(Problem("SAN-CMD-003", "refused")))
    with pytest.raises(CommandError):
        drbdadm.adjust(runner, "vol1")
    assert len(runner.calls) == 1


def test_handlers_read_the_same_file(folder: Path) -> None:
    path = folder / "vol1.conf"
    drbdadm.register_config("vol1", 7)
    assert registered(folder) == {}, "there is nothing to be read"
    path.touch()
    both = {"drbd-resource-vol1.conf": str(path), "drbd-minor-7.conf": str(path)}
    (folder / "registry/drbd-minor-7.conf").symlink_to("/etc/drbd.conf")
    # Left by one that was killed.
    (folder / "registry/drbd-minor-7.conf.new").symlink_to("/etc/drbd.conf")
    drbdadm.register_config("vol1", 7)
    assert registered(folder) == both
    drbdadm.register_config("vol1", 7)
    assert registered(folder) == both


def test_nothing_is_registered_without_drbd_utils_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "vol1.conf").touch()
    monkeypatch.setattr(drbdadm, "_REGISTRY", str(folder / "none"))
    drbdadm.register_config("vol1", 7)
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    ("minor", "disk", "is_attached"),
    [(7, "Diskless", True), (8, "Diskless", False), (7, "UpToDate", False)],
)
@pytest.mark.usefixtures("folder")
def test_attach_refuses_another_resources_minor(minor: int, disk: str, is_attached: bool) -> None:
    def answer(argv: Sequence[str]) -> str:
        return _EVENTS.format(minor=minor, disk=disk) if argv[1] == "events2" else ""

    runner = FakeRunner(answer)
    if minor == 7:
        drbdadm.attach(runner, "vol1", 7)
    else:
        with pytest.raises(CommandError, match="SAN-DRBD-004"):
            drbdadm.attach(runner, "vol1", 7)
    assert (("drbdadm", "attach", "vol1") in [argv for argv, _ in runner.calls]) is is_attached


class NineWithoutDisk(FakeRunner):
    """DRBD 9 with a resource that has no disk yet: it knows the peers that it was told of."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.peers: dict[str, str] = {}
        self.disk = "Diskless"
        self.with_bitmap: set[str] = set()

    def _answer(self, argv: Sequence[str]) -> str:
        match list(argv):
            case ["drbdsetup", "events2", *_]:
                lines = _EVENTS.format(minor=7, disk=self.disk)
                for number, name in self.peers.items():
                    lines += (
                        f"exists connection name:vol1 peer-node-id:{number} conn-name:{name}"
                        " connection:StandAlone role:Unknown\n"
                    )
                return lines
            case ["drbdsetup", "new-peer", "vol1", number, name, _]:
                assert number not in self.peers, "DRBD refuses a peer that it knows"
                self.peers[number] = name.removeprefix("--_name=")
            case ["drbdsetup", "del-peer", "vol1", number]:
                del self.peers[number]
            case ["drbdadm", "attach", "vol1"]:
                self.disk = "Inconsistent"
                self.with_bitmap = set(self.peers.values())
        return ""


@pytest.mark.usefixtures("folder")
def test_a_replica_has_a_bitmap_for_peers_that_it_does_not_connect_to() -> None:
    """Also where an earlier attempt died after any of its steps."""
    runner = NineWithoutDisk()
    runner.peers["0"] = "n1"
    wanted = {"n1": 0, "n2": 1, "n3": 2}
    drbdadm.attach(runner, "vol1", 7, bitmaps_for=wanted)
    assert runner.with_bitmap == set(wanted)
    assert runner.peers == {}
    runner.peers["2"] = "n3"
    drbdadm.attach(runner, "vol1", 7, bitmaps_for=wanted)
    assert runner.peers == {}
