# SPDX-License-Identifier: GPL-2.0-or-later
"""The udev rules of a storage node match each file that a loop device is put over."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import jinja2
import pytest

from sanctl.drivers import lio_backstore, point_files, pool_files
from sanctl.system import state_files

_TEMPLATE = (
    Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_kernel/templates/udev.rules.j2"
)
_UUID = "0123456789abcdef" * 2
_FILES = pool_files.files_of("/srv/a pool", "data", _UUID)


def rules() -> list[str]:
    # As Ansible's lookup renders it.
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    text = environment.from_string(_TEMPLATE.read_text()).render()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def is_hidden(backing_file: str) -> bool:
    (patterns,) = re.findall(r'ATTRS\{loop/backing_file\}=="([^"]+)"', "\n".join(rules()))
    return any(fnmatchcase(backing_file, pattern) for pattern in patterns.split("|"))


@pytest.mark.parametrize(
    "path",
    [
        _FILES.data,
        _FILES.metadata,
        f"{_FILES.metadata}.new",
        f"{_FILES.data} (deleted)",
        point_files.final_path("/srv/a pool", "data", _UUID, "0" * 16),
        state_files.size_file("data"),
    ],
)
def test_every_file_of_a_replica_or_a_restore_point_is_matched(path: str) -> None:
    assert is_hidden(path)


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/snapd/snaps/core.snap",
        "/srv/a pool/devices/disk.data",
        f"/home/u/{_UUID}.data",
        f"/srv/devices/data.{_UUID[1:]}.data",
    ],
)
def test_loop_devices_of_others_are_not(path: str) -> None:
    assert not is_hidden(path)


def test_each_rule_hides_from_all_that_interprets() -> None:
    found = rules()
    assert len(found) == 4
    for rule in found:
        for name in (
            "DM_UDEV_DISABLE_DISK_RULES_FLAG",
            "DM_UDEV_DISABLE_OTHER_RULES_FLAG",
            "UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG",
        ):
            assert f'ENV{{{name}}}="1"' in rule
        assert 'ENV{SYSTEMD_READY}="0"' in rule
        # Debian's 55-scsi-sg3_id.rules starts a program for each disk without one.
        assert 'ENV{ID_SERIAL}="sanctl"' in rule
        assert rule.endswith('OPTIONS+="nowatch"')


def test_the_rules_are_there_before_each_that_scans() -> None:
    """Before and after what sets device-mapper's flags anew, by the name that sysfs has."""
    tasks = (_TEMPLATE.parents[1] / "tasks/main.yml").read_text()
    names = re.findall(r"/etc/udev/rules\.d/(\S+sanctl\S+)", tasks)
    # EL: 10-dm, 13-dm-disk. Debian: 55-dm, 60-persistent-storage-dm. Both: 60-block, 99-systemd.
    order = sorted([*names, "10-dm", "13-dm-disk", "55-dm", "60-block", "60-persistent-storage"])
    assert [name.partition("-")[0] for name in order] == [
        "10", "11", "13", "55", "56", "60", "60", "99",
    ]  # fmt: skip
    assert any('ATTR{dm/name}=="sanctl-*"' in rule for rule in rules())
    assert not any("ENV{DM_NAME}" in rule for rule in rules())


def test_lvm_starts_nothing_on_a_path_that_multipath_has_not_claimed() -> None:
    """The vendor is the one that the targets give, and the flag the one that 69-lvm.rules heed."""
    folder = _TEMPLATE.parents[2] / "sanctl_host"
    (rule,) = (
        line
        for line in (folder / "templates/own-host-paths.rules.j2").read_text().splitlines()
        if not line.startswith("#")
    )
    (pattern,) = re.findall(r'ATTRS\{vendor\}=="([^"]+)"', rule)
    # Padded by the kernel, as SCSI has it.
    assert fnmatchcase(f"{lio_backstore.VENDOR:8}", pattern)
    assert not fnmatchcase("LIO-ORG ", pattern)
    assert 'KERNEL=="sd*"' in rule
    # No other: multipath needs the disk's serial number, and its own rules.
    assert re.findall(r"(?:ENV\{|OPTIONS|GOTO|RUN).*", rule) == [
        'ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"'
    ]
    names = re.findall(
        r"/etc/udev/rules\.d/(\S+)\n.*own-host-paths", (folder / "tasks/own_host.yml").read_text()
    )
    assert names and all("55-dm" < name < "69-dm-lvm" for name in names)
