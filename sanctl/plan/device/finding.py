# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which device a host's or a kernel's name for it means: WWID, serial, IQN, minor."""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import Iqn
from sanctl.model.topology import Topology
from sanctl.plan.host.access_loss import let_in

_MINOR = re.compile(r"(?:/dev/)?(?:drbd)?([0-9]{1,7})")
#: As multipath, udev (/dev/disk/by-id), sysfs and `lsblk` write them.
_PREFIXES = ("dm-uuid-mpath-", "mpath-", "scsi-", "wwn-", "naa.", "0x")
_HEX = re.compile(r"[0-9a-f]{8,33}")


class Found(NamedTuple):
    """A device that was found.

    Attributes:
        device: the device.
        by: `wwid`, `serial`, `target`, `initiator` or `minor`.
    """

    device: DeviceSpec
    by: str


def find_devices(cluster: Cluster, topology: Topology, word: str) -> tuple[Found, ...]:
    """Return the devices that a name from a host, or from a node's kernel, means.

    Several only where it is the beginning of several serials, or the IQN of an initiator, which
    may use them.

    Args:
        cluster: as observed.
        topology: what cluster.toml says: the target names begin with its prefix.
        word: a WWID as multipath shows it, with the 3 or without; a serial, or its first eight
            digits or more; the IQN of a target or an initiator; a minor, or /dev/drbdMINOR.

    Raises:
        UsageError: it is none of these.
        Refused: no device has it.
    """
    if word.lower().startswith("iqn."):
        found = _by_iqn(cluster, topology, Iqn.parse(word))
    elif match := _MINOR.fullmatch(word):
        minor = int(match[1])
        found = [Found(each, "minor") for each in cluster.cib.devices if each.minor == minor]
    else:
        found = _by_digits(cluster, word)
    if found:
        return tuple(found)
    unread = ", ".join(name for name, _ in cluster.cib.unreadable)
    raise Refused(
        Problem(
            "SAN-DEV-024",
            f"no device of this cluster has {word}"
            + (f", as far as its devices can be read: not {unread}" if unread else ""),
            "another cluster's device, or one that was deleted: 'sanctl site copies SITE' and "
            "'sanctl backup list' may name it",
        )
    )


def _by_iqn(cluster: Cluster, topology: Topology, iqn: Iqn) -> list[Found]:
    targets = [
        Found(each, "target")
        for each in cluster.cib.devices
        if topology.target_iqn(each.name) == iqn
    ]
    return targets or [
        Found(each, "initiator") for each in cluster.cib.devices if iqn in let_in(each)
    ]


def _by_digits(cluster: Cluster, word: str) -> list[Found]:
    """Return the devices by WWID or serial.

    Raises:
        UsageError: these are no digits of either.
    """
    digits = word.lower().rpartition("/")[2]
    for prefix in _PREFIXES:
        digits = digits.removeprefix(prefix)
    if not _HEX.fullmatch(digits):
        raise UsageError(
            Problem(
                "SAN-DEV-025",
                f"{word!r} is no WWID, serial, IQN, minor or /dev/drbdN",
                "as 'multipath -ll' on a host shows it: 36001405...; or by the device's name: "
                "'sanctl device show NAME'",
            )
        )
    devices = cluster.cib.devices
    by_wwid = [Found(each, "wwid") for each in devices if each.wwid in {digits, f"3{digits}"}]
    return by_wwid or [
        Found(each, "serial") for each in devices if each.serial.lower().startswith(digits)
    ]
