# SPDX-License-Identifier: GPL-2.0-or-later
"""Every way in which a cluster can fail to have recovered is found."""

from __future__ import annotations

import pytest

from sanctl.lab.measure import cleanliness

ACTIVE = """\
view role vol Primary
view disk vol UpToDate
view table vol linear 0
view alua vol sanctl-1 0
view lun vol sanctl-1 1
drbd vol suspended no
drbd vol connection Connected
drbd vol disk UpToDate
drbd vol peer-disk UpToDate
drbd vol replication Established
dm /sys/block/dm-0/dm/name:sanctl-vol
dm /sys/block/dm-1/dm/name:sanctl-vol-gate
dm /sys/block/dm-2/dm/name:lab-disk1
dm /sys/block/dm-0/dm/suspended:0
dm /sys/block/dm-1/dm/suspended:0
dm /sys/block/dm-2/dm/suspended:0
loop /sys/block/loop0/loop/backing_file:/srv/sanctl/main/devices/vol.0123.data
loop /sys/block/loop1/loop/backing_file:/srv/sanctl/main/devices/vol.0123.meta
target iqn.2026-11.net.example:lab.vol
backstore sanctl-vol
cib 012345678901
"""
STANDBY = (
    ACTIVE.replace("Primary", "Secondary")
    .replace("linear", "error")
    .replace("sanctl-1 0", "sanctl-2 2")
    .replace("lun vol sanctl-1", "lun vol sanctl-2")
)
WITNESS = "cib 012345678901\n"
MEMBERS = ("n1", "n2", "n3")


def complain(active: str = ACTIVE, standby: str = STANDBY, witness: str = WITNESS) -> list[str]:
    texts = {"n1": active, "n2": standby, "n3": witness}
    reports = {node: cleanliness.parse(text) for node, text in texts.items() if text}
    return cleanliness.find_problems(reports, members=MEMBERS, replicas={"vol": ("n1", "n2")})


def test_a_recovered_cluster_has_no_problems() -> None:
    assert complain() == []


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (("disk UpToDate\ndrbd vol peer", "disk Diskless\ndrbd vol peer"), "disk:Diskless"),
        (("connection Connected", "connection StandAlone"), "connection:StandAlone"),
        (("suspended no", "suspended fencing"), "suspended:fencing"),
        (("drbd vol peer-disk UpToDate\n", ""), "no peer"),
        (("lun vol sanctl-2 1", "lun vol sanctl-2 0"), "not exported"),
        (("dm-1/dm/suspended:0", "dm-1/dm/suspended:1"), "suspended"),
        (("dm-2/dm/name:lab-disk1", "dm-2/dm/name:sanctl-old"), "dm device sanctl-old"),
        (("vol.0123.meta", "old.99.meta"), "loop device over"),
        (("vol.0123.meta", "vol.0123.data"), "2 loop devices"),
        (("cib 0123", "stuck 77-drbdsetup\ncib 0123"), "process 77-drbdsetup is stuck"),
        (("cib 0123", "target iqn.x:lab.old\ncib 0123"), "target iqn.x:lab.old"),
        (("cib 0123", "backstore sanctl-old\ncib 0123"), "backstore sanctl-old of no device"),
        (("cib 0123", "drbd old disk UpToDate\ncib 0123"), "DRBD resource old"),
        (("cib 0123", "cib 9999"), "the CIB is not the same"),
        (("role vol Secondary", "role vol Primary"), "Primary on n1 and n2"),
    ],
)
def test_whatever_is_missing_or_left_is_reported(change: tuple[str, str], reported: str) -> None:
    assert change[0] in STANDBY
    assert any(reported in each for each in complain(standby=STANDBY.replace(*change)))


def test_a_node_that_does_not_answer_and_a_device_on_no_node() -> None:
    assert "n2 does not answer" in complain(standby="")
    assert "vol: not started on n2" in complain(standby=WITNESS)
    assert any("served by no node" in each for each in complain(active=STANDBY))


def test_lines_it_does_not_know_are_no_silence() -> None:
    with pytest.raises(ValueError, match="understand"):
        cleanliness.parse("surprise 1 2 3")
