#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: tells what SBD's shared disks hold, and initializes those that are blank."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sbd_disks
short_description: Tells what SBD's shared disks hold, and initializes those that are blank
description:
  - Reads the first MiB of each disk past the page cache (C(O_DIRECT)), or as much as
    C(sbd create) would write where that is more.
  - A disk that has SBD's header is C(sbd); one whose bytes were all read and are all zero is
    C(blank). A disk with anything else on it, a read error, a missing device and a path that is no
    block device are failures, all of them reported at once.
  - Without C(seen) it only reads. With it, C(sbd create) is run on disks that all nodes found
    blank, and that are blank still. Neither Corosync nor SBD may run on any node then, because
    C(sbd create) clears the messages in all slots, and a node is reset by reading its message.
options:
  devices:
    description: The shared disks. Symbolic links, as in C(/dev/disk/by-id), are resolved.
    type: list
    elements: path
    required: true
  watchdog_timeout_s:
    description: SBD's watchdog timeout; C(msgwait) is twice that. A header that says something else
      is left, with a warning.
    type: int
    required: true
  seen:
    description: By node, what this module returned there without C(seen).
    type: dict
  nodes:
    description: All nodes of the cluster. Blank disks are left unless all of them are in C(seen).
    type: list
    elements: str
attributes:
  check_mode:
    support: full
    description: Tells which disks would be initialized.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Look at SBD's disks from every node
  sanctl.san.sbd_disks:
    devices: [/dev/disk/by-id/wwn-0x600140500000000000000000000000a1]
    watchdog_timeout_s: 5
  register: looked

- name: Initialize those that are blank
  sanctl.san.sbd_disks:
    devices: [/dev/disk/by-id/wwn-0x600140500000000000000000000000a1]
    watchdog_timeout_s: 5
    nodes: "{{ groups['sanctl_nodes'] }}"
    seen: "{{ dict(ansible_play_hosts
      | zip(ansible_play_hosts | map('extract', hostvars, 'looked'))) }}"
  run_once: true
"""

RETURN = r"""
disks:
  description: For each disk its I(device), the I(path) behind it, its I(state) (C(sbd) or
    C(blank)), and of a header I(uuid), I(watchdog_s) and I(msgwait_s).
  type: list
  elements: dict
  returned: success
running:
  description: Which of Corosync and SBD run on this node.
  type: list
  elements: str
  returned: success
made:
  description: The disks that were initialized, or would be.
  type: list
  elements: str
  returned: success
"""

import errno
import fcntl
import mmap
import os
import shlex
import stat
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

MIB = 1 << 20
READ_FLAGS = os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC
BLKSSZGET = 0x1268  # linux/fs.h
PROGRAMS = ("corosync", "sbd")

# The first sector (sbd-md.c, SBD 1.5): magic, version, slots, two bytes of padding, and the sector
# size and timeouts (watchdog, allocate, loop, msgwait) in network byte order; minor version, UUID.
# Headers of minor version 0 have no UUID.
HEADER = struct.Struct("!8sBBxxIIIIIB16s")
MAGIC = b"SBD_SBD_"
VERSION = 2
# The header's sector, and for each of 255 nodes one for its name and one for its message.
SECTORS = 1 + 255 * 2

LOOK = "`lsblk -o NAME,SIZE,WWN,SERIAL,FSTYPE,MOUNTPOINTS`"
STOP = "`systemctl stop pacemaker corosync`"


class UnfitError(Exception):
    """A disk that is neither SBD's nor certainly blank: why, and what to do."""


def area_bytes(sector_bytes: int) -> int:
    """Return how much of a disk must be zero before `sbd create` may write there."""
    return max(MIB, SECTORS * sector_bytes)


def read_start(handle: int, size_bytes: int) -> bytes:
    """Read the beginning of a disk; less than asked for means that the disk ends there."""
    # O_DIRECT wants aligned memory: a mapping begins on a page.
    buffer = mmap.mmap(-1, size_bytes)
    done = 0
    while done < size_bytes:
        with memoryview(buffer) as whole, whole[done:] as rest:
            count = os.preadv(handle, [rest], done)
        if count == 0:
            break
        done += count
    return buffer[:done]


def classify(start: bytes, sector_bytes: int) -> dict[str, Any]:
    """Tell what a disk is by its beginning.

    Raises:
        UnfitError: it is neither SBD's nor blank.
    """
    if start.startswith(MAGIC) and len(start) >= HEADER.size:
        return read_header(start, sector_bytes)
    if len(start) < area_bytes(sector_bytes):
        raise UnfitError(
            f"it ends after {len(start)} bytes, and SBD needs {area_bytes(sector_bytes)}:"
            " give sanctl_sbd_devices a disk of 4 MiB"
        )
    if start.count(0) != len(start):
        raise UnfitError(
            "it is neither SBD's nor blank: its first MiB holds other data (foreign)."
            f" See what that is with {LOOK} and `wipefs --no-act`. If the disk is the wrong one,"
            " correct sanctl_sbd_devices; if nobody needs what is on it, docs/howto/fencing.md says"
            " how to blank it"
        )
    return {"state": "blank"}


def read_header(start: bytes, sector_bytes: int) -> dict[str, Any]:
    """Return what SBD's header says.

    Raises:
        UnfitError: this node's SBD would not read it.
    """
    _, version, _, size, watchdog_s, _, _, msgwait_s, _, name = HEADER.unpack_from(start)
    if version != VERSION or size != sector_bytes:
        raise UnfitError(
            f"it has a header of SBD, version {version}, for sectors of {size} bytes; this node"
            f" needs version {VERSION} and {sector_bytes}, and could not use it. Is it the right"
            " disk? See `sbd -d DISK dump` on the node where it was made"
        )
    return {
        "state": "sbd",
        "uuid": str(uuid.UUID(bytes=name)),
        "watchdog_s": watchdog_s,
        "msgwait_s": msgwait_s,
    }


def resolve(device: str) -> str:
    """Return the block device behind a name.

    Raises:
        UnfitError: there is none.
    """
    try:
        path = os.path.realpath(device, strict=True)
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnfitError(
            f"there is no such device on this node: connect the disk, or correct"
            f" sanctl_sbd_devices ({LOOK} lists what there is)"
        ) from error
    if not stat.S_ISBLK(mode):
        raise UnfitError(
            f"{path} is no block device: correct sanctl_sbd_devices, or remove what lies there and"
            " have udev make the device node again"
        )
    return path


def look(device: str) -> dict[str, Any]:
    """Read what a disk is.

    Raises:
        UnfitError: it is neither SBD's nor blank.
        OSError: it cannot be read, or is in use.
    """
    path = resolve(device)
    handle = os.open(path, READ_FLAGS)
    try:
        sector_bytes = int.from_bytes(fcntl.ioctl(handle, BLKSSZGET, bytes(4)), "little")
        found = classify(read_start(handle, area_bytes(sector_bytes)), sector_bytes)
    finally:
        os.close(handle)
    if found["state"] == "blank":
        # The kernel refuses this while a filesystem, device-mapper, md, DRBD or a target holds the
        # disk: its first MiB may be zero and the rest in use.
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    return {"device": device, "path": path, **found}


def look_at_all(devices: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Look at every disk; return what they are, and a sentence for each that is unfit."""
    disks, problems = [], []
    for device in devices:
        try:
            disks.append(look(device))
        except UnfitError as error:
            problems.append(f"disk {device}: {error}. Nothing was written to it")
        except OSError as error:
            problems.append(f"disk {device}: {explain(error)}. Nothing was written to it")
    return disks, problems


def explain(error: OSError) -> str:
    """Say what an error of the kernel means for a disk, and what to do."""
    if error.errno == errno.EBUSY:
        return f"it is in use by something else on this node: {LOOK} shows by what"
    return (
        f"its first MiB cannot be read ({error.strerror}), and what cannot be read is not blank:"
        " look at the disk and its paths (`dmesg`, `multipath -ll`), replace it or correct"
        " sanctl_sbd_devices, then run the playbook again"
    )


def programs(proc: str = "/proc") -> list[str]:
    """Return which of the programs that use SBD's disks run on this node."""
    found = set()
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(os.path.join(proc, name, "comm"), encoding="utf-8") as file:
                    found.add(file.read().strip())
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
    return sorted(found & {*PROGRAMS})


def disks_to_make(
    devices: Sequence[str],
    nodes: Sequence[str],
    seen: Mapping[str, Mapping[str, Any]],
    watchdog_timeout_s: int,
) -> tuple[list[str], list[str]]:
    """Hold what all nodes saw against each other.

    Returns:
        The disks that are blank, and why none may be initialized.
    """
    # A look that was skipped or failed is none.
    seen = {node: looked for node, looked in seen.items() if {"disks", "running"} <= {*looked}}
    found = {
        node: {disk["device"]: disk for disk in looked["disks"]} for node, looked in seen.items()
    }
    blank, problems, owners = [], [], {}
    for device in devices:
        kinds: dict[tuple[str, str], list[str]] = {}
        for node, disks in sorted(found.items()):
            disk = disks.get(device, {"state": "unknown"})
            kinds.setdefault((disk["state"], disk.get("uuid", "")), []).append(node)
        if len(kinds) != 1:
            told = "; ".join(
                f"{', '.join(names)}: {' '.join(kind).strip()}" for kind, names in kinds.items()
            )
            problems.append(
                f"disk {device}: it is not the same on all nodes ({told or 'nobody looked'}):"
                f" compare {LOOK} there, and give a name in sanctl_sbd_devices that is the same"
                " disk everywhere, as those in /dev/disk/by-id"
            )
            continue
        state, name = next(iter(kinds))
        if state == "blank":
            blank.append(device)
        elif state != "sbd":
            problems.append(f"disk {device}: its state is {state}: run the playbook again")
        elif uuid.UUID(name).int and owners.setdefault(name, device) != device:
            problems.append(
                f"disk {device}: it is the same disk as {owners[name]}: sanctl_sbd_devices must"
                " name one disk, or three different ones"
            )
    by_hand = " && ".join(shlex.join(create_argv(disk, watchdog_timeout_s)) for disk in blank)
    running = {node: seen[node]["running"] for node in sorted(seen) if seen[node]["running"]}
    missing = [node for node in nodes if node not in seen]
    if blank and (running or missing):
        told = [f"{' and '.join(names)} run on {node}" for node, names in running.items()]
        told += [f"{node} was not looked at" for node in missing]
        problems.append(
            f"disk {', '.join(blank)}: blank, and {'; '.join(told)}. `sbd create` would clear the"
            f" messages of a live cluster. Either stop the cluster software on all nodes ({STOP})"
            " and run the playbook without --limit; or see that it is the right disk and that no"
            f" node uses it for SBD now (`pgrep -af ^sbd`), and on one node: `{by_hand}`"
        )
    return blank, [f"{problem}. Nothing was written" for problem in problems]


def create_argv(device: str, watchdog_timeout_s: int) -> list[str]:
    """Return the command that initializes a disk."""
    # By the end of msgwait a node that read its message is gone: its watchdog's time, twice.
    return ["sbd", "-d", device, "-1", str(watchdog_timeout_s), "-4",
            str(2 * watchdog_timeout_s), "create"]  # fmt: skip


def other_timeouts(disks: Sequence[Mapping[str, Any]], watchdog_timeout_s: int) -> list[str]:
    """Say which headers have timeouts that the inventory does not ask for."""
    wanted = (watchdog_timeout_s, 2 * watchdog_timeout_s)
    return [
        f"disk {disk['device']}: its header says watchdog {disk['watchdog_s']} s and msgwait"
        f" {disk['msgwait_s']} s, the inventory {wanted[0]} s and {wanted[1]} s. SBD goes by the"
        f" header. To change it: {STOP} on all nodes, then on one"
        f" `{shlex.join(create_argv(disk['device'], watchdog_timeout_s))}`"
        for disk in disks
        if disk["state"] == "sbd" and (disk["watchdog_s"], disk["msgwait_s"]) != wanted
    ]


def make(module: AnsibleModule, device: str) -> None:
    """Initialize a disk that is blank in this moment."""
    disks, problems = look_at_all([device])
    running = programs()
    if problems or disks[0]["state"] != "blank" or running:
        module.fail_json(
            msg=problems[0]
            if problems
            else f"disk {device}: it was blank a moment ago and is {disks[0]['state']} now;"
            f" running here: {', '.join(running) or 'nothing'}. Nothing was written to it: find out"
            " what else writes there or starts the cluster, then run the playbook again"
        )
    argv = create_argv(disks[0]["path"], module.params["watchdog_timeout_s"])
    status, output, errors = module.run_command(argv)
    after, problems = look_at_all([device])
    if status or problems or after[0]["state"] != "sbd":
        module.fail_json(
            msg=f"disk {device}: `{shlex.join(argv)}` ended with status {status}:"
            f" {' '.join([(errors or output).strip(), *problems])}. What was written may be a part:"
            " look at the disk (`dmesg`), blank it again as docs/howto/fencing.md says, then run"
            " the playbook again"
        )


def main() -> None:
    """Look at all disks, then initialize what is blank."""
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "path", "required": True},
            "watchdog_timeout_s": {"type": "int", "required": True},
            "seen": {"type": "dict"},
            "nodes": {"type": "list", "elements": "str"},
        },
        required_together=[("seen", "nodes")],
        supports_check_mode=True,
    )
    devices, timeout_s = module.params["devices"], module.params["watchdog_timeout_s"]
    seen = module.params["seen"]
    try:
        running = programs()
    except OSError as error:
        module.fail_json(msg=f"cannot tell what runs on this node: {error}. Nothing was written")
    disks, problems = look_at_all(devices)
    blank: list[str] = []
    if not problems and seen is not None:
        blank, problems = disks_to_make(devices, module.params["nodes"], seen, timeout_s)
    if problems:
        module.fail_json(msg="\n".join(problems), problems=problems)
    if seen is not None:
        for text in other_timeouts(disks, timeout_s):
            module.warn(text)
        if not module.check_mode:
            for device in blank:
                make(module, device)
    module.exit_json(changed=bool(blank), made=blank, disks=disks, running=running)


if __name__ == "__main__":
    main()
