# SPDX-License-Identifier: GPL-2.0-or-later
"""The sessions that hosts have with LIO targets of this node, read from configfs.

The kernel shows one session of each entry of an access list, the latest, with the addresses of its
connections, and not since when it is there (iscsi_target_configfs.c, lio_target_nacl_info_show).
"""

from __future__ import annotations

import re

from sanctl.drivers import configfs
from sanctl.model.host_session import HostSession
from sanctl.system.files import is_link, read_text_or

_ROOT = "/sys/kernel/config/target/iscsi"
_LOGGED_IN = "TARG_SESS_STATE_LOGGED_IN"
_ADDRESS = re.compile(r"Address (\S+) ")
_OURS = "sanctl-"


def sessions() -> list[HostSession]:
    """Return the sessions with targets of sanctl's devices on this node."""
    return [
        HostSession(device, iqn, tuple(sorted(set(_ADDRESS.findall(text)))))
        for target in configfs.folders(_ROOT)
        for tpg in configfs.folders(f"{_ROOT}/{target}")
        if tpg.startswith("tpgt_")
        for device in _devices(f"{_ROOT}/{target}/{tpg}/lun/lun_0")
        for iqn in configfs.folders(f"{_ROOT}/{target}/{tpg}/acls")
        # An entry may be removed meanwhile.
        for text in (read_text_or(f"{_ROOT}/{target}/{tpg}/acls/{iqn}/info", ""),)
        if _LOGGED_IN in text
    ]


def _devices(lun: str) -> list[str]:
    """Return the name of the device that a LUN stands for, if it is one of sanctl's.

    An exported restore point has a dot in its name (sanctl/drivers/lio_export.py).
    """
    return [
        entry.removeprefix(_OURS)
        for entry in configfs.entries(lun)
        if entry.startswith(_OURS) and "." not in entry and is_link(f"{lun}/{entry}")
    ]
