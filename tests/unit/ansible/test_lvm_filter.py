# SPDX-License-Identifier: GPL-2.0-or-later
"""The filter of a storage node hides each name that udev gives a device from LVM."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml  # type: ignore[import-untyped]

_TASKS = Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_kernel/tasks/main.yml"
_WWID = "36001405aabbccddeeff00112233445566"
#: Of a multipath map that is a physical volume, and of its first partition (Debian 12).
_NAMES = (
    "/dev/dm-7",
    f"/dev/mapper/{_WWID}",
    f"/dev/disk/by-id/dm-name-{_WWID}",
    f"/dev/disk/by-id/dm-uuid-mpath-{_WWID}",
    f"/dev/disk/by-id/scsi-{_WWID}",
    f"/dev/disk/by-id/wwn-0x{_WWID[1:]}",
    "/dev/disk/by-id/lvm-pv-uuid-q0JQ2T-Vd2y-8yUW-nDfB-4yVZ-CYCx-2oFBh9",
    "/dev/block/253:7",
    "/dev/disk/by-diskseq/40",
    f"/dev/mapper/{_WWID}-part1",
    f"/dev/disk/by-id/dm-uuid-part1-mpath-{_WWID}",
    "/dev/disk/by-partuuid/6c1d6a1e-01",
    "/dev/disk/by-partlabel/data",
    "/dev/disk/by-uuid/6c1d6a1e-0000-0000-0000-000000000000",
    "/dev/disk/by-label/data",
)


def accepts(names: tuple[str, ...], *, hides: bool) -> bool:
    """Whether LVM sees a device: one name is enough whose first match accepts it."""
    (task,) = (each for each in yaml.safe_load(_TASKS.read_text()) if "LVM" in each["name"])
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    environment.filters["bool"] = bool
    text = environment.from_string(task["ansible.builtin.blockinfile"]["block"]).render(
        sanctl_kernel_hides_own_devices=hides
    )
    rules = [(each[0], each[2:-1]) for each in re.findall(r'"([ar]\|[^"]+\|)"', text)]
    return any(next(do for do, rule in rules if re.search(rule, name)) == "a" for name in names)


@pytest.mark.parametrize("name", _NAMES)
def test_no_name_of_an_imported_device_is_accepted(name: str) -> None:
    assert not accepts((name,), hides=True)


def test_a_node_that_is_no_host_sees_the_disks_of_other_sans() -> None:
    assert accepts(_NAMES, hides=False)


def test_a_nodes_own_physical_volume_is_seen() -> None:
    own = ("/dev/sda3", "/dev/disk/by-id/ata-disk-part3", _NAMES[6])
    assert accepts(own, hides=True)
