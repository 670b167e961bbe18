# SPDX-License-Identifier: GPL-2.0-or-later
"""LIO's counters of failed logins, by target: how many, and who the last one was.

The kernel's own messages name neither the initiator nor its address. Of failures from one address
within ten jiffies it counts the first, and it keeps name and address of the last failure alone
(iscsi_target_util.c, iscsit_collect_login_stats). A login that is refused fails a second time, for
another reason, when it is given up: later than ten jiffies on a busy node, or where a jiffy is a
millisecond. So the kind of the last failure says nothing of whose the last refused login was.
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.drivers import configfs
from sanctl.system.files import is_link, read_text_or

_ROOT = "/sys/kernel/config/target/iscsi"
_OURS, _POINT = "sanctl-", "sanctl-point."
# A name has at most 223 bytes (RFC 7143), an address with a zone fewer.
_LENGTH = 223


class FailedLogins(NamedTuple):
    """Logins with a target of sanctl's that failed as who logged in had not authenticated.

    Attributes:
        served: what the target stands for: `device NAME` or `restore point DEVICE@NAME`.
        device: the name of the device.
        failures: how many, since the target was made.
        initiator: the name that the last login gave that failed, for whatever reason; empty: none.
        address: where that came from; empty likewise.
    """

    served: str
    device: str
    failures: int
    initiator: str
    address: str


def failed_logins() -> list[FailedLogins]:
    """Return the targets with which logins have failed so since they were made."""
    found = []
    for target in configfs.folders(_ROOT):
        folder = f"{_ROOT}/{target}/fabric_statistics"
        count = _number(f"{folder}/iscsi_login_stats/authenticate_fails")
        served = _served(f"{_ROOT}/{target}") if count else None
        if served is not None:
            last = f"{folder}/iscsi_tgt_attr"
            found.append(
                FailedLogins(
                    *served,
                    count,
                    _shown(f"{last}/fail_intr_name"),
                    _shown(f"{last}/fail_intr_addr"),
                )
            )
    return found


def _served(target: str) -> tuple[str, str] | None:
    """Return what a target of sanctl's stands for, and the name of the device."""
    for tpg in configfs.folders(target):
        lun = f"{target}/{tpg}/lun/lun_0"
        for entry in configfs.entries(lun) if tpg.startswith("tpgt_") else ():
            if is_link(f"{lun}/{entry}"):
                if entry.startswith(_POINT):
                    device, _, point = entry.removeprefix(_POINT).partition(".")
                    return f"restore point {device}@{point}", device
                if entry.startswith(_OURS):
                    device = entry.removeprefix(_OURS)
                    return f"device {device}", device
    return None


def _number(path: str) -> int:
    text = read_text_or(path, "").strip()
    return int(text) if text.isdecimal() else 0


def _shown(path: str) -> str:
    """Return a value that came from the network, fit for a line of the journal."""
    text = read_text_or(path, "").strip()[:_LENGTH]
    return "".join(each if each.isprintable() else "?" for each in text)
