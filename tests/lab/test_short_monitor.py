# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor is answered by its client only while nothing has changed: each change is found at once.

The device agent is called as Pacemaker would call it, as in test_device_agent. A whole monitor
leaves a new fingerprint, or none: by that the two are told apart.
"""

from __future__ import annotations

import pytest

from sanctl.lab.harness.lab_session import wait_for
from tests.lab.test_device_agent import (
    MINOR,
    NAME,
    PROMOTED,
    SUCCESS,
    UUID,
    Replica,
    pair,
    running,
)

__all__ = ["pair", "running"]

_NOTES = f"/run/sanctl/devices/{NAME}"
_TARGET = f"/sys/kernel/config/target/iscsi/*.{NAME}"
_OWN_TPG = f"$(dirname $(dirname $(dirname {_TARGET}/*/lun/lun_0/sanctl-{NAME})))"
_ALUA = f"/sys/kernel/config/target/core/iblock_{MINOR}/sanctl-{NAME}/alua/sanctl-*"
_GATE = f"sanctl-{NAME}-gate"
_SECTORS = f"$(blockdev --getsz /dev/mapper/{_GATE})"
_ERROR = f'dmsetup suspend {_GATE}; dmsetup load {_GATE} --table "0 {_SECTORS} error"'
_SHORT_WITHIN_S = 60.0

#: What is changed on the Primary, whether the very next monitor says that it does not serve, and
#: what takes it back.
_CHANGES = {
    "gate": (f"{_ERROR}; dmsetup resume {_GATE}", True, ""),
    "table that is loaded": (f"dmsetup load {_GATE} --table \"0 {_SECTORS} error\"", False,
                             f"dmsetup clear {_GATE}"),
    "gate suspended": (f"dmsetup suspend {_GATE}", True, f"dmsetup resume {_GATE}"),
    # As for a restore point (ADR 56).
    "gate held for a moment": (f"dmsetup suspend {_GATE};"
                               f" (sleep 2; dmsetup resume {_GATE}) >/dev/null 2>&1 &", False, ""),
    "target suspended": (f"dmsetup suspend sanctl-{NAME}", True, f"dmsetup resume sanctl-{NAME}"),
    "ALUA state": (f"echo 2 > $(echo {_ALUA})/alua_access_state", True,
                   f"echo 0 > $(echo {_ALUA})/alua_access_state"),
    "target disabled": (f"echo 0 > {_OWN_TPG}/enable", True, f"echo 1 > {_OWN_TPG}/enable"),
    "ACL removed": (f"tpg={_OWN_TPG}; for acl in $tpg/acls/*; do rm $acl/lun_0/lun_0;"
                    " rmdir $acl/lun_0 $acl; done", False, ""),
    "portal removed": (f"cd {_OWN_TPG}/np; ls | tee /run/portals | xargs rmdir", False,
                       f"cd {_OWN_TPG}/np; xargs mkdir < /run/portals"),
    "connection": (f"drbdadm disconnect {NAME}", False, f"drbdadm connect {NAME}"),
    "DRBD role": (f"{_ERROR}; dmsetup resume {_GATE}; drbdsetup secondary {MINOR}", True, ""),
    "disk": (f"drbdsetup detach {MINOR} --force", False, ""),
    "note": (f"touch {_NOTES}/outdated-unmarked.n2", False, ""),
    "marker": (f"touch /srv/sanctl/main/devices/{NAME}.{UUID}.ram", False,
               f"rm -f /srv/sanctl/main/devices/{NAME}.{UUID}.ram"),
    "cluster.toml": ("cp -p /etc/sanctl/cluster.toml /etc/sanctl/cluster.toml.x;"
                     " mv /etc/sanctl/cluster.toml.x /etc/sanctl/cluster.toml", False, ""),
}  # fmt: skip


def monitor(one: Replica, **changes: str) -> int:
    return one.run("monitor", **{"OCF_RESKEY_CRM_meta_interval": "10000", **changes})


def fingerprint(one: Replica) -> str:
    """Return what tells one fingerprint from another; empty where there is none."""
    found = one.bed.sh(one.node, f"stat -c %i:%y {_NOTES}/fingerprint", ok=range(256))
    return found.stdout.strip()


def is_short(one: Replica, status: int) -> bool:
    before = fingerprint(one)
    return monitor(one) == status and bool(before) and fingerprint(one) == before


def await_short(one: Replica, status: int = PROMOTED) -> None:
    wait_for(f"a short monitor on {one.node}", lambda: is_short(one, status),
             within_s=_SHORT_WITHIN_S)  # fmt: skip


def found_by_next(one: Replica, change: str) -> int:
    """Make a change beside a fresh fingerprint; return what the next monitor says: a whole one."""
    await_short(one)
    before = fingerprint(one)
    one.bed.sh(one.node, change)
    status = monitor(one)
    assert fingerprint(one) != before, "that monitor was a short one"
    return status


def test_monitors_of_both_replicas_become_short(running: tuple[Replica, Replica]) -> None:
    one, two = running
    assert one.run("promote") == SUCCESS
    await_short(one)
    await_short(two, SUCCESS)
    # What the hung-I/O check counts from goes on: it is of this monitor, not of the whole one.
    progress = f"cat {_NOTES}/io-progress"
    before = one.bed.sh(one.node, progress).stdout
    assert monitor(one) == PROMOTED
    assert one.bed.sh(one.node, progress).stdout != before
    assert two.run("monitor", OCF_RESKEY_CRM_meta_interval="0") == SUCCESS
    assert fingerprint(two) == "", "a probe is a whole monitor"


def test_no_action_leaves_the_fingerprint_of_before(running: tuple[Replica, Replica]) -> None:
    one, _ = running
    assert one.run("promote") == SUCCESS
    await_short(one)
    assert one.run("demote") == SUCCESS
    assert fingerprint(one) == ""
    assert monitor(one) == SUCCESS


def test_a_changed_parameter_is_applied_by_the_next_monitor(
    running: tuple[Replica, Replica],
) -> None:
    one, _ = running
    assert one.run("promote") == SUCCESS
    await_short(one)
    assert monitor(one, OCF_RESKEY_initiators="iqn.2026-11.net.example:i9") == PROMOTED
    listed = one.bed.sh(one.node, f"ls {_OWN_TPG}/acls").stdout.split()
    assert listed == ["iqn.2026-11.net.example:i9"]


@pytest.mark.faults
@pytest.mark.parametrize("name", _CHANGES)
def test_each_change_is_found_by_the_very_next_monitor(
    running: tuple[Replica, Replica], name: str
) -> None:
    change, stops_serving, undo = _CHANGES[name]
    one, _ = running
    assert one.run("promote") == SUCCESS
    status = found_by_next(one, change)
    assert (status != PROMOTED) is stops_serving, status
    if undo:
        one.bed.sh(one.node, undo)
    # As Pacemaker would, or as the monitors that follow do.
    if stops_serving:
        assert one.run("demote") == SUCCESS
        assert one.run("promote") == SUCCESS
    wait_for(f"{NAME} whole again", lambda: is_short(one, PROMOTED), within_s=90.0)
