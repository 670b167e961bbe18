#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: reads which disks SBD runs with, and what of SBD the cluster relies on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sbd_state
short_description: Reads which disks SBD runs with, and what of SBD the cluster relies on
description:
  - Changes nothing.
  - The disks are those of the running processes, not those of their file, which may have been
    written after they were started.
  - Pacemaker's configuration is the live one, or, where Pacemaker does not answer, the one that
    this node has on disk.
options:
  names:
    description: Disks that may be the same as others of which there is another name.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: See what SBD and the cluster do now
  sanctl.san.sbd_state:
    names: [/dev/disk/by-id/wwn-0x5000c500a1b2c3d4]
  register: state
"""

RETURN = r"""
corosync:
  description: Whether Corosync runs on this node.
  type: bool
  returned: success
disks:
  description: The disks that SBD was started with, and those that it watches.
  type: list
  elements: str
  returned: success
paths:
  description: By name the block device behind it on this node, of I(names), I(disks) and the
    disks of I(cib); none of a name behind which there is none.
  type: dict
  returned: success
cib:
  description:
    - I(source) is C(live), C(file), C(none) where this node has no configuration, or C(unknown)
      where it has one that cannot be read.
    - Of a configuration I(version), three numbers, the later the larger; I(wait), the value of
      C(stonith-watchdog-timeout), empty if it is not set; I(disks), for each fencing device of
      type C(fence_sbd) the disks to which it writes.
  type: dict
  returned: success
"""

import os
import re
import stat
import xml.etree.ElementTree as ET
from typing import Any

from ansible.module_utils.basic import AnsibleModule

CIB = "/var/lib/pacemaker/cib/cib.xml"
WATCHER = re.compile(rb"sbd: watcher: (/[^\s\0]+)")
# sbd's titles lie where its environment was; pacemakerd is started with the same file.
STARTED = ("sbd", "pacemakerd")
VERSION = ("admin_epoch", "epoch", "num_updates")


def processes(proc: str = "/proc") -> dict[str, Any]:
    """Return whether Corosync runs, and SBD's disks, by the processes that there are.

    Raises:
        OSError: what a process was started with cannot be read.
    """
    is_running, disks = False, set()
    for name in filter(str.isdigit, os.listdir(proc)):
        try:
            program = read(proc, name, "comm").strip().decode()
            is_running |= program == "corosync"
            if program not in STARTED:
                continue
            if found := WATCHER.match(read(proc, name, "cmdline")):
                disks.add(found[1].decode())
            for text in read(proc, name, "environ").split(b"\0"):
                if text.startswith(b"SBD_DEVICE="):
                    devices = text.decode().removeprefix("SBD_DEVICE=").split(";")
                    disks |= {device.strip() for device in devices} - {""}
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return {"corosync": is_running, "disks": sorted(disks)}


def read(proc: str, pid: str, name: str) -> bytes:
    """Read what the kernel says of a process."""
    with open(os.path.join(proc, pid, name), "rb") as file:
        return file.read()


def relied_on(text: str, source: str) -> dict[str, Any]:
    """Return what of SBD a configuration relies on."""
    try:
        cib = ET.fromstring(text)
        version = [int(cib.get(part, "0")) for part in VERSION]
    except (ET.ParseError, ValueError):
        return {"source": "unknown"}
    waits = [
        pair.get("value", "")
        for pair in cib.iterfind("configuration/crm_config//nvpair")
        if pair.get("name") == "stonith-watchdog-timeout"
    ]
    disks = []
    for fence in cib.iterfind("configuration/resources//primitive"):
        if fence.get("class") == "stonith" and fence.get("type") == "fence_sbd":
            named = [
                pair.get("value", "")
                for pair in fence.iterfind("instance_attributes/nvpair")
                if pair.get("name") == "devices"
            ]
            texts = ",".join(named).split(",")
            disks.append(sorted({each.strip() for each in texts} - {""}))
    return {"source": source, "version": version, "wait": "".join(waits[:1]), "disks": disks}


def query(module: AnsibleModule, path: str = CIB) -> dict[str, Any]:
    """Return what the cluster relies on, by Pacemaker or by its file."""
    if module.get_bin_path("cibadmin") is not None:
        code, out, _ = module.run_command(["timeout", "30", "cibadmin", "--query"])
        found = relied_on(out, "live") if code == 0 else {"source": "unknown"}
        if found["source"] == "live":
            return found
    try:
        with open(path, encoding="utf-8") as file:
            return relied_on(file.read(), "file")
    except (FileNotFoundError, NotADirectoryError):
        return {"source": "none"}
    except (OSError, ValueError):
        return {"source": "unknown"}


def behind(names: set[str]) -> dict[str, str]:
    """Return the block devices behind these names; another name of a disk leads to the same one."""
    found = {}
    for name in sorted(names):
        try:
            path = os.path.realpath(name, strict=True)
            if stat.S_ISBLK(os.stat(path).st_mode):
                found[name] = path
        except OSError:
            continue  # known by its name alone
    return found


def main() -> None:
    """Look, and report."""
    module = AnsibleModule(
        argument_spec={"names": {"type": "list", "elements": "str", "default": []}},
        supports_check_mode=True,
    )
    try:
        state = processes()
    except OSError as error:
        module.fail_json(
            msg=f"with which disks SBD runs cannot be read: {error}. Nothing was changed"
        )
    cib = query(module)
    written = {disk for each in cib.get("disks", []) for disk in each}
    paths = behind({*module.params["names"], *state["disks"], *written})
    module.exit_json(changed=False, **state, cib=cib, paths=paths)


if __name__ == "__main__":
    main()
