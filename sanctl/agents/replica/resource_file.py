# SPDX-License-Identifier: GPL-2.0-or-later
"""The DRBD resource file of one device on this node, and DRBD brought in line with it."""

from __future__ import annotations

import contextlib
import os
import re

from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    backing_device,
    drbdadm,
    drbdsetup,
    link_speed,
    loop,
    page_cache,
    pool_files,
)
from sanctl.errors import CommandError, Problem
from sanctl.system.files import exists, read_text_or, write_atomically
from sanctl.system.runner import Runner

_EXTENTS = re.compile(r"^\s*al-extents (\d+);", re.MULTILINE)
_DISK_SECTION = re.compile(r"^  disk \{\n", re.MULTILINE)
_NO_FLUSHES = re.compile(r"^ *disk-flushes no;\n", re.MULTILINE)
_OPTIONS_SECTION = re.compile(r"^  options \{\n", re.MULTILINE)
_HOLDS_TWO = re.compile(r"^ *quorum-minimum-redundancy 2;\n", re.MULTILINE)
_METADATA = re.compile(r"^    ((?:flexible-)?meta-disk) [^;]+;$", re.MULTILINE)
_HOSTS = re.compile(r"^    hosts ([^;]+);$", re.MULTILINE)
_HOST = re.compile(r"^  on (\S+) \{$", re.MULTILINE)
_INCLUDE = "/etc/drbd.d/sanctl.res"
# As in the drbd.conf that drbd-utils brings, which goes on with all resources.
_COMMON = "/etc/drbd.d/global_common.conf"
_HANDLERS = "/usr/lib/sanctl"
_SECRET = "/etc/sanctl/drbd.secret"  # noqa: S105 - where it lies, not what it is


def write(
    runner: Runner,
    device: Device,
    files: pool_files.DeviceFiles,
    *,
    al_extents: int | None = None,
    only: str | None = None,
) -> None:
    """Render the DRBD resource file of the device for this node.

    `al_extents` is the size of the activity log of a replica that runs, None for one that starts.
    `only` is the one node to connect to, empty for all; None: as in the file that is there.
    Whether its disk is flushed stays as in the file that is there, unless that has become wrong,
    and so does whether I/O is held without two good copies.
    """
    from sanctl.agents.replica import sync_policy  # noqa: PLC0415
    from sanctl.render.drbd import BackingDevices, ReplicaAddress, device_secret, render_resource  # noqa: PLC0415

    topology = parts.load_topology()
    if drbdsetup.generation() < 9 and len(device.nodes) > 2:
        raise CommandError(
            Problem(
                "SAN-DRBD-003",
                f"{device.name} has {len(device.nodes)} replicas, which need DRBD 9; this node "
                "has DRBD 8.4 loaded",
                "install the module of DRBD 9 here, and load it instead",
            )
        )
    replicas = []
    for name in device.nodes:
        node = topology.node(name)
        if node is None:
            raise CommandError(
                Problem(
                    "SAN-AGENT-001",
                    f"replica node {name} is not in /etc/sanctl/cluster.toml",
                    "run the playbook again on every node",
                )
            )
        replicas.append(ReplicaAddress(name, node.id, str(node.sync)))
    here = topology.node(os.uname().nodename)
    data = loop.find(files.data)
    metadata = loop.find(files.metadata) or loop.find(f"{files.metadata}.new")
    if data is None or metadata is None:
        raise CommandError(Problem("SAN-AGENT-002", f"{files.data}: its loop device is gone"))
    secret = read_text_or(_SECRET, "").strip()
    if not secret:
        raise CommandError(
            Problem("SAN-AGENT-003", f"{_SECRET} is missing or empty", "run the playbook")
        )
    _include(device.name)
    write_atomically(
        path_of(device.name),
        render_resource(
            name=device.name,
            minor=device.minor,
            size_bytes=device.size_bytes,
            secret=device_secret(secret, device.uuid),
            replicas=tuple(replicas),
            backing=BackingDevices(backing_device.path(device.name) or data, metadata),
            handlers=_HANDLERS,
            generation=drbdsetup.generation(),
            sync=sync_policy.policy_of(device),
            link_bytes_s=link_speed.bytes_per_s(runner, str(here.sync)) if here else None,
            al_extents=al_extents,
            connection=_connection(device, only_peer(device.name) if only is None else only),
            has_disk_flushes=_keeps_flushing(device.name, files),
            requires_two=requires_two(device.name),
        ),
        mode=0o600,
    )


def rewrite(runner: Runner, device: Device, *, only: str | None = None) -> bool:
    """Render the file of a replica that runs, and may not change its activity log's size.

    Returns:
        False where this node does not know the device's pool, and nothing was written.
    """
    where = parts.load_topology().pool(device.pool)
    if where is None:
        return False
    present = _EXTENTS.search(read_text_or(path_of(device.name), ""))
    write(
        runner,
        device,
        pool_files.files_of(str(where.path), device.name, device.uuid),
        al_extents=int(present[1]) if present else None,
        only=only,
    )
    return True


def nodes(name: str) -> list[str]:
    """Return the nodes with a copy by the file that is there; none if there is none."""
    return _HOST.findall(read_text_or(path_of(name), ""))


def flushes(name: str) -> bool:
    """Whether the file that is there, if there is one, has DRBD flush the disk."""
    return not _NO_FLUSHES.search(read_text_or(path_of(name), ""))


def set_flushes(name: str, *, on: bool) -> bool:
    """Say in the file that is there whether the disk is flushed, and change nothing else of it.

    Returns:
        Whether it says so; not where there is no file.
    """
    text = read_text_or(path_of(name), "")
    if not text:
        return False
    if flushes(name) != on:
        if on:
            text = _NO_FLUSHES.sub("", text)
        else:
            text = _DISK_SECTION.sub("\\g<0>    disk-flushes no;\n", text, count=1)
        write_atomically(path_of(name), text, mode=0o600)
    return flushes(name) == on


def requires_two(name: str) -> bool:
    """Whether the file that is there has DRBD hold I/O while there are no two good copies."""
    return bool(_HOLDS_TWO.search(read_text_or(path_of(name), "")))


def set_requires_two(name: str, *, on: bool) -> None:
    """Say in the file that is there whether I/O is held so, and change nothing else of it."""
    text = read_text_or(path_of(name), "")
    if not text or requires_two(name) == on:
        return
    if on:
        line = "    quorum-minimum-redundancy 2;\n"
        text = _OPTIONS_SECTION.sub(f"\\g<0>{line}", text, count=1)
    else:
        text = _HOLDS_TWO.sub("", text)
    write_atomically(path_of(name), text, mode=0o600)


def clear_disk(name: str) -> None:
    """Have the file that is there name no disk that exists, for a replica that stays up without.

    drbdadm would look into the loop device that it named, which may be over another file by then.
    What it names instead is the device's own: drbdadm takes no file where two name the same.
    """
    text = read_text_or(path_of(name), "")
    if text:
        gone = _METADATA.sub(f"    \\1 /dev/sanctl-let-go/{name};", text)
        write_atomically(path_of(name), gone, mode=0o600)


def _keeps_flushing(name: str, files: pool_files.DeviceFiles) -> bool:
    if flushes(name):
        return True
    try:
        held = page_cache.observe(files.data)
    except OSError:
        return True  # Its file is gone: not known to be stable.
    return held is None or not held.is_synchronous or not backing_device.refuses_write_zeroes(name)


def only_peer(name: str) -> str:
    """Return the one node that a device's copy here connects to; empty: all, or not started."""
    found = _HOSTS.search(read_text_or(path_of(name), ""))
    connected = found[1].split() if found else []
    if not 0 < len(connected) < len(nodes(name)):
        return ""
    return next((node for node in connected if node != os.uname().nodename), "")


def _connection(device: Device, only: str) -> tuple[str, ...]:
    return (os.uname().nodename, only) if only in device.nodes else ()


def path_of(name: str) -> str:
    """Return where a device's DRBD resource file lies.

    On tmpfs, because it names loop devices, which are others after a boot: drbdadm refuses all
    resources when an old file of one names the loop device of another.
    """
    return f"{drbdadm.RESOURCE_FILES}/{name}.res"


def remove(name: str) -> None:
    """Remove a device's DRBD resource file, the last that is left of a replica."""
    for path in (drbdadm.config_path(name), path_of(name)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _include(name: str) -> None:
    """Make an operator's drbdadm read all resource files, and ours, and DRBD's handlers, one."""
    os.makedirs(drbdadm.RESOURCE_FILES, mode=0o700, exist_ok=True)
    for path, read in (
        (_INCLUDE, (f"{drbdadm.RESOURCE_FILES}/*.res",)),
        (drbdadm.config_path(name), (_COMMON, path_of(name))),
    ):
        wanted = "".join(f'include "{each}";\n' for each in read)
        if read_text_or(path, "") != wanted:
            write_atomically(path, wanted)


def register_for_handlers(device: Device) -> None:
    """Have DRBD's handlers read the file of a replica that is up, and no other.

    Raises:
        OSError: it could not be put down.
    """
    if exists(path_of(device.name)):
        _include(device.name)
        drbdadm.register_config(device.name, device.minor)


def bring_up(
    runner: Runner, device: Device, files: pool_files.DeviceFiles, *, is_apart: bool = False
) -> None:
    """Write metadata where there is none yet, then attach, and connect what is not to be apart."""
    if not exists(files.metadata):
        _refuse_claimed(f"{files.metadata}.new")
        drbdadm.create_metadata(runner, device.name, kernel_generation=drbdsetup.generation())
        pool_files.rename(f"{files.metadata}.new", files.metadata)
    if is_apart:
        drbdadm.attach(runner, device.name, device.minor)
    else:
        apply(runner, device)


def _refuse_claimed(path: str) -> None:
    """Refuse metadata on a loop device that is in use: drbdmeta would write there all the same.

    `create-md --force` answers that question of its with yes, too (drbdmeta.c, confirmed).
    """
    metadata = loop.find(path)
    if metadata is None or loop.is_claimed(metadata):
        why = "its loop device is gone" if metadata is None else f"{metadata} is in use"
        raise CommandError(
            Problem(
                "SAN-POOL-026",
                f"{path}: new metadata cannot be written, {why}",
                "'losetup -l' shows what it is over, 'drbdsetup status' what may have it",
            )
        )


def apply(runner: Runner, device: Device) -> None:
    """Bring DRBD in line with the resource file, also under a device that serves."""
    if len(device.nodes) > 1:
        drbdadm.adjust(runner, device.name)
    else:
        drbdadm.adjust_single_replica(runner, device.name, device.minor)
