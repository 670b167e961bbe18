#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: marks directories on mounted filesystems as sanctl pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pools
short_description: Makes directories on mounted filesystems sanctl pools
description:
  - Puts the marker file C(.sanctl-pool) with the pool's uuid and the folder C(devices) into place.
  - Looks at everything before it changes anything, and reports all problems at once.
  - A marker that says something else, or one that is gone from a pool this node already serves, is
    a failure and never repaired. An empty directory where a pool should be means that the
    filesystem is not mounted, or has been replaced, and somebody has to look.
  - A pool that begins on the node gets an id, in its filesystem, C(.sanctl-filesystem), and in a
    note on the node's own disk. Where they differ another filesystem of the pool is mounted, maybe
    one with old replicas, and that is a failure, too. A node that does not serve the pool yet, as
    its own disk is new, takes the id of a filesystem that is marked for its note. Pools that began
    with an earlier release have none.
options:
  pools:
    description: The pools of this node.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the pool., type: str, required: true}
      path: {description: Where its filesystem is mounted., type: path, required: true}
      uuid: {description: What the marker says., type: str, required: true}
  node:
    description: The node's name in cluster.toml.
    type: str
    required: true
  cluster_toml:
    description:
      - The node's cluster.toml. A pool whose uuid it lists with this node among its I(nodes) is one
        that the node serves already, so this must run before the file is written again.
    type: path
    default: /etc/sanctl/cluster.toml
  notes:
    description: The folder of the node's notes on its pools.
    type: path
    default: /var/lib/sanctl/pools
  allow_unmounted:
    description: Accept a path that is no mount point of its own, for trials.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Reports what would change.
  diff_mode:
    support: none
    description: A marker is one line.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: The pools of this node
  sanctl.san.pools:
    node: "{{ inventory_hostname }}"
    pools:
      - name: main
        path: /srv/sanctl/main
        uuid: 5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11
"""

RETURN = r"""
made:
  description: The names of the pools that were marked, or would be.
  type: list
  elements: str
  returned: success
"""

import hashlib
import os
import stat
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

try:
    import tomllib
except ImportError:
    tomllib = None  # the Python that Ansible found is older than the one that sanctl runs with

MARKER = ".sanctl-pool"
DEVICES = "devices"
FILESYSTEM_ID = ".sanctl-filesystem"
NOTES = "/var/lib/sanctl/pools"


def status(path: str) -> os.stat_result | None:
    """Return what a path is, not of what it links to; None where there is nothing.

    Every other error is raised: a disk that does not answer is not an empty one.
    """
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_mounted(path: str) -> bool:
    """Tell whether a directory is the root of what is mounted there."""
    here, above = os.lstat(path), os.lstat(os.path.join(path, ".."))
    return here.st_dev != above.st_dev or here.st_ino == above.st_ino


def read_line(path: str) -> str | None:
    """Return what a file of one line says; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def write_line(path: str, text: str) -> None:
    """Replace a file of one line, durably."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Make the changes of a folder's entries durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_marker(path: str) -> str | None:
    """Return the uuid a directory is marked with."""
    return read_line(os.path.join(path, MARKER))


def note_of(pool: dict[str, Any], notes: str) -> str:
    """Return the path of the node's note of the pool's filesystem."""
    return os.path.join(notes, f"{pool['uuid']}.filesystem")


def read_ids(pool: dict[str, Any], notes: str) -> tuple[str, str]:
    """Return the id that the filesystem has, and the one that the node has noted; empty: none."""
    found = read_line(os.path.join(pool["path"], FILESYSTEM_ID))
    return found or "", read_line(note_of(pool, notes)) or ""


def write_note(pool: dict[str, Any], notes: str, identifier: str) -> None:
    """Note the id of the pool's filesystem, durably."""
    os.makedirs(notes, mode=0o700, exist_ok=True)
    sync_folder(os.path.dirname(notes))
    write_line(note_of(pool, notes), identifier)


def new_id() -> str:
    """Return 32 hex digits that no other filesystem has.

    The kernel's random numbers alone are not enough: machines booted from one image draw the same
    early ones (sanctl/cli/environment.py).
    """
    others = (os.uname().nodename, time.time_ns(), time.monotonic_ns(), os.getpid())
    return hashlib.sha256(os.urandom(32) + repr(others).encode()).hexdigest()[:32]


def is_served(cluster_toml: str, uuid: str, node: str) -> bool:
    """Tell whether the node's cluster.toml lists a pool already, and the node among its nodes.

    The file is the same on all nodes. One that cannot be read as such counts as listing the node.
    """
    try:
        with open(cluster_toml, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return False
    if uuid not in text:
        return False
    if tomllib is None:
        return True
    try:
        listed = [each for each in tomllib.loads(text)["pools"].values() if each["uuid"] == uuid]
        return not listed or any(node in each["nodes"] for each in listed)
    except (ValueError, LookupError, AttributeError, TypeError):
        return True


def problems_of(
    pool: dict[str, Any],
    *,
    cluster_toml: str,
    node: str,
    allow_unmounted: bool,
    notes: str = NOTES,
) -> list[str]:
    """Say why a directory cannot be this pool of the node, or become it."""
    try:
        served = is_served(cluster_toml, pool["uuid"], node)
        return reasons_against(pool, served=served, allow_unmounted=allow_unmounted, notes=notes)
    except OSError as error:
        return [f"pool {pool['name']}: {error}: not known what is there. Nothing was changed"]


def reasons_against(
    pool: dict[str, Any], *, served: bool, allow_unmounted: bool, notes: str
) -> list[str]:
    """Say the same, as far as it is known; an error of the disk goes through."""
    name, path = pool["name"], pool["path"]
    found = status(path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return [f"pool {name}: {path} is not a directory: mount its filesystem there"]
    real = os.path.realpath(path, strict=True)
    if real != path:
        # The kernel names device files by their real path, and agents look for them by this one.
        return [f"pool {name}: {path} leads through a symbolic link to {real}: give that path"]
    if not allow_unmounted and not is_mounted(path):
        return [
            f"pool {name}: no filesystem is mounted at {path}"
            " (sanctl_pool_allow_unmounted accepts a plain directory, for trials)"
        ]
    marker = read_marker(path)
    if marker is not None and marker != pool["uuid"]:
        return [f"pool {name}: {path} is marked as another pool, {marker}"]
    if marker is None and served:
        return [
            f"pool {name}: this node serves the pool, but {path} holds no marker:"
            " the filesystem is missing or was replaced. Nothing was changed; mount the right"
            " one. If its disk was replaced for good and this filesystem is new and empty:"
            f" `sanctl node standby`, then `sanctl pool prepare {name} --anew` on the node, which"
            " gives up the replicas that it had"
        ]
    if marker is None and status(os.path.join(path, DEVICES)) is not None:
        return [f"pool {name}: {path} has a folder {DEVICES} but no marker: not touched"]
    found, noted = read_ids(pool, notes)
    if marker is not None and found != noted and (served or noted):
        return [
            f"pool {name}: the filesystem at {path} has {id_text(found)}, and this node's note of"
            f" the pool names {id_text(noted)}: it is not the filesystem in which the pool began"
            " here, and its replicas may be old. Nothing was changed; mount the right one, or"
            " see docs/howto/night-page.md, SAN-POOL-033"
        ]
    return []


def id_text(identifier: str) -> str:
    """Return an id as text."""
    return f"id {identifier}" if identifier else "no id"


def is_complete(pool: dict[str, Any], notes: str = NOTES) -> bool:
    """Tell whether there is nothing left to do."""
    try:
        info = os.stat(os.path.join(pool["path"], DEVICES))
    except FileNotFoundError:
        return False
    found, noted = read_ids(pool, notes)
    is_marked = read_marker(pool["path"]) == pool["uuid"] and found == noted
    return is_marked and stat.S_IMODE(info.st_mode) == 0o700


def make(pool: dict[str, Any], notes: str = NOTES) -> None:
    """Mark the directory, then make the folder: a folder without a marker is never ours."""
    path = pool["path"]
    devices = os.path.join(path, DEVICES)
    if read_marker(path) is None:
        identifier = new_id()
        # The note first: from now on any filesystem that the pool had here before is refused. The
        # marker last: until then this one is no pool, and the next run begins it again.
        write_note(pool, notes, identifier)
        write_line(os.path.join(path, FILESYSTEM_ID), identifier)
        write_line(os.path.join(path, MARKER), pool["uuid"])
    else:
        found, noted = read_ids(pool, notes)
        if found and not noted:
            write_note(pool, notes, found)
    os.makedirs(devices, mode=0o700, exist_ok=True)
    os.chmod(devices, 0o700)
    sync_folder(path)


def main() -> None:
    """Check all, then make what is missing."""
    pool_spec = {
        "name": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "uuid": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "pools": {"type": "list", "elements": "dict", "required": True, "options": pool_spec},
            "cluster_toml": {"type": "path", "default": "/etc/sanctl/cluster.toml"},
            "notes": {"type": "path", "default": NOTES},
            "allow_unmounted": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    problems: list[str] = []
    for pool in module.params["pools"]:
        problems += problems_of(
            pool,
            cluster_toml=module.params["cluster_toml"],
            node=module.params["node"],
            allow_unmounted=module.params["allow_unmounted"],
            notes=module.params["notes"],
        )
    if problems:
        module.fail_json(msg="\n".join(problems), problems=problems)
    notes = module.params["notes"]
    try:
        missing = [pool for pool in module.params["pools"] if not is_complete(pool, notes)]
    except OSError as error:
        module.fail_json(msg=f"{error}: not known what is there. Nothing was changed")
    if not module.check_mode:
        for pool in missing:
            try:
                make(pool, notes)
            except OSError as error:
                module.fail_json(msg=f"pool {pool['name']}: {error}")
    module.exit_json(changed=bool(missing), made=[pool["name"] for pool in missing])


if __name__ == "__main__":
    main()
