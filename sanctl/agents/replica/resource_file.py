# SPDX-License-Identifier: GPL-2.0-or-later
"""Stores a device's DRBD resource file on this node (text: render.drbd), brings DRBD up by it."""

from __future__ import annotations

import contextlib
import os
import re

from sanctl.agents import cluster_toml
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    backing_device,
    drbd_kernel,
    drbdadm,
    link_speed,
    loop,
    page_cache,
    pool_files,
)
from sanctl.errors import CommandError, Problem
from sanctl.plan.drbd import connection_limit
from sanctl.system.files import exists, read_text_or, write_atomically
from sanctl.system.runner import Runner

_AL_EXTENTS = re.compile(r"^\s*al-extents (\d+);", re.MULTILINE)
_DISK_SECTION = re.compile(r"^  disk \{\n", re.MULTILINE)
_NO_FLUSHES = re.compile(r"^ *disk-flushes no;\n", re.MULTILINE)
_OPTIONS_SECTION = re.compile(r"^  options \{\n", re.MULTILINE)
_REQUIRES_TWO = re.compile(r"^ *quorum-minimum-redundancy 2;\n", re.MULTILINE)
_METADATA = re.compile(r"^    ((?:flexible-)?meta-disk) [^;]+;$", re.MULTILINE)
_HOSTS = re.compile(r"^    hosts ([^;]+);$", re.MULTILINE)
_MINOR = re.compile(r"^    device minor (\d+);$", re.MULTILINE)
_HOST = re.compile(r"^  on (\S+) \{$", re.MULTILINE)
INCLUDE = "/etc/drbd.d/sanctl.res"
# As in the drbd.conf of drbd-utils, which includes this file and then all resources.
_COMMON = "/etc/drbd.d/global_common.conf"
_HANDLERS = "/usr/lib/sanctl"
_SECRET = "/etc/sanctl/drbd.secret"  # noqa: S105 - its path, not the secret


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
    `only` is the one node to connect to, empty for all; None: as in the present file. Disk-flushes
    stay as in the present file, unless that has become wrong. Quorum-minimum-redundancy stays as in
    the present file.
    """
    # Not for monitors and handlers, which write no such file.
    from sanctl.agents.replica import sync_policy  # noqa: PLC0415
    from sanctl.render.drbd import BackingDevices, ReplicaAddress, device_secret, render_resource  # noqa: PLC0415

    topology = cluster_toml.load_topology()
    if drbd_kernel.generation() < 9 and len(device.nodes) > 2:
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
    _write_includes(device.name)
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
            generation=drbd_kernel.generation(),
            sync=sync_policy.policy_of(device),
            link_bytes_s=link_speed.bytes_per_s(runner, str(here.sync)) if here else None,
            al_extents=al_extents,
            connection=_connection(device, only_peer(device.name) if only is None else only),
            has_disk_flushes=_needs_disk_flushes(device.name, files),
            requires_two=requires_two(device.name),
        ),
        mode=0o600,
    )


def rewrite(runner: Runner, device: Device, *, only: str | None = None) -> bool:
    """Write the file of a replica that runs, and keep the size of its activity log.

    Returns:
        False where this node does not know the device's pool, and nothing was written.
    """
    where = cluster_toml.load_topology().pool(device.pool)
    if where is None:
        return False
    write(
        runner,
        device,
        pool_files.files_of(str(where.path), device.name, device.uuid),
        al_extents=al_extents(device.name),
        only=only,
    )
    return True


def al_extents(name: str) -> int | None:
    """Return the size of the activity log that the present file names; None without a file.

    DRBD exchanges the log of a disk that is attached only while no request holds a part of it, and
    refuses all options of the disk with it otherwise (drbd_nl.c, disk_opts_check_al_size).
    """
    present = _AL_EXTENTS.search(read_text_or(path_of(name), ""))
    return int(present[1]) if present else None


def set_al_extents(name: str, extents: int) -> None:
    """Write the size of the activity log into the present file; change nothing else of it."""
    text = read_text_or(path_of(name), "")
    changed = _AL_EXTENTS.sub(f"    al-extents {extents};", text)
    if changed != text:
        write_atomically(path_of(name), changed, mode=0o600)


def replica_nodes(name: str) -> list[str]:
    """Return the replica nodes that the present file names; none without a file."""
    return _HOST.findall(read_text_or(path_of(name), ""))


def names_by_minor() -> dict[int, str]:
    """Return the resources by minor, as the present files have them; of two with one minor none.

    Raises:
        OSError: the files cannot be read.
    """
    names: dict[int, list[str]] = {}
    for entry in os.listdir(drbdadm.RESOURCE_FILES):
        name, ending = os.path.splitext(entry)
        if ending == ".res" and (found := _MINOR.search(read_text_or(path_of(name), ""))):
            names.setdefault(int(found[1]), []).append(name)
    return {minor: found[0] for minor, found in names.items() if len(found) == 1}


def has_disk_flushes(name: str) -> bool:
    """Whether DRBD flushes the disk by the present file; also without a file."""
    return not _NO_FLUSHES.search(read_text_or(path_of(name), ""))


def set_disk_flushes(name: str, *, on: bool) -> bool:
    """Write into the present file whether DRBD flushes the disk, and change nothing else of it.

    Returns:
        Whether the file says so now; False without a file.
    """
    text = read_text_or(path_of(name), "")
    if not text:
        return False
    if has_disk_flushes(name) != on:
        if on:
            text = _NO_FLUSHES.sub("", text)
        else:
            text = _DISK_SECTION.sub("\\g<0>    disk-flushes no;\n", text, count=1)
        write_atomically(path_of(name), text, mode=0o600)
    return has_disk_flushes(name) == on


def requires_two(name: str) -> bool:
    """Whether the present file has quorum-minimum-redundancy 2: I/O needs two UpToDate disks."""
    return bool(_REQUIRES_TWO.search(read_text_or(path_of(name), "")))


def set_requires_two(name: str, *, on: bool) -> None:
    """Write quorum-minimum-redundancy into the present file, or remove it; change nothing else."""
    text = read_text_or(path_of(name), "")
    if not text or requires_two(name) == on:
        return
    if on:
        line = "    quorum-minimum-redundancy 2;\n"
        text = _OPTIONS_SECTION.sub(f"\\g<0>{line}", text, count=1)
    else:
        text = _REQUIRES_TWO.sub("", text)
    write_atomically(path_of(name), text, mode=0o600)


def clear_disk(name: str) -> None:
    """Make the present file name a disk that does not exist, for a replica that is up without one.

    drbdadm would read the loop device that the file named, which may be over another file by then.
    The name of the missing disk is made of the device's: drbdadm refuses two files that name the
    same disk.
    """
    text = read_text_or(path_of(name), "")
    if text:
        gone = _METADATA.sub(f"    \\1 /dev/sanctl-let-go/{name};", text)
        write_atomically(path_of(name), gone, mode=0o600)


def let_disk_go(name: str) -> None:
    """As `clear_disk`, for a replica that is being stopped; without room the file is removed.

    The stop removes it anyway, a moment later. One that failed would have the node fenced.
    """
    try:
        clear_disk(name)
    except OSError:
        remove(name)


def _needs_disk_flushes(name: str, files: pool_files.DeviceFiles) -> bool:
    if has_disk_flushes(name):
        return True
    try:
        held = page_cache.observe(files.data)
    except OSError:
        return True  # The data file is gone: its writes are not known to be stable.
    return held is None or not held.is_synchronous or not backing_device.refuses_write_zeroes(name)


def only_peer(name: str) -> str:
    """Return the one node that the replica here connects to; empty: all nodes, or not started."""
    found = _HOSTS.search(read_text_or(path_of(name), ""))
    connected = found[1].split() if found else []
    if not 0 < len(connected) < len(replica_nodes(name)):
        return ""
    return next((node for node in connected if node != os.uname().nodename), "")


def _connection(device: Device, only: str) -> tuple[str, ...]:
    return (os.uname().nodename, only) if only in device.nodes else ()


def path_of(name: str) -> str:
    """Return where a device's DRBD resource file lies.

    On tmpfs, because the file names loop devices, whose numbers change with a boot: drbdadm refuses
    all resources when an old file of one names the loop device of another.
    """
    return f"{drbdadm.RESOURCE_FILES}/{name}.res"


def remove(name: str) -> None:
    """Remove a device's DRBD resource file, the last part of a replica that is stopped."""
    for path in (drbdadm.config_path(name), path_of(name)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _write_includes(name: str) -> None:
    """Make an operator's drbdadm read all resource files; sanctl's and the handlers' reads one."""
    os.makedirs(drbdadm.RESOURCE_FILES, mode=0o700, exist_ok=True)
    for path, read in (
        (INCLUDE, (f"{drbdadm.RESOURCE_FILES}/*.res",)),
        (drbdadm.config_path(name), (_COMMON, path_of(name))),
    ):
        wanted = "".join(f'include "{each}";\n' for each in read)
        if read_text_or(path, "") != wanted:
            write_atomically(path, wanted)


def register_for_handlers(device: Device) -> None:
    """Make DRBD's handlers read the resource file of this device alone, if there is one.

    Raises:
        OSError: the configuration could not be written.
    """
    if exists(path_of(device.name)):
        _write_includes(device.name)
        drbdadm.register_config(device.name, device.minor)


def bring_up(
    runner: Runner,
    device: Device,
    files: pool_files.DeviceFiles,
    *,
    stays_disconnected: bool = False,
) -> None:
    """Make missing metadata, attach the disk, and connect unless `stays_disconnected`."""
    if not exists(files.metadata):
        _refuse_attached(device)
        metadata = _unclaimed(f"{files.metadata}.new")
        generation = drbd_kernel.generation()
        drbdadm.create_metadata(runner, device.name, metadata, kernel_generation=generation)
        pool_files.rename(f"{files.metadata}.new", files.metadata)
    bitmaps_for = _peers_of_four(device)
    if stays_disconnected or bitmaps_for:
        drbdadm.attach(runner, device.name, device.minor, bitmaps_for=bitmaps_for)
    if not stays_disconnected:
        apply(runner, device)


def _peers_of_four(device: Device) -> dict[str, int]:
    """Return the peers, with DRBD's node ids, of a replica that may connect to one of them alone.

    DRBD 9 writes the end of a resync into the bitmaps that it has. What it keeps of a peer without
    one says afterwards that this replica lacks nothing and the peer everything; once connected, the
    new replica would resync good ones (9.3.3, seen, docs/adr/0039).
    """
    if not connection_limit.is_limit_needed(device.nodes) or drbd_kernel.generation() < 9:
        return {}
    from sanctl.render.drbd import drbd_node_id  # noqa: PLC0415 - monitors do not pay for it

    here = os.uname().nodename
    return {
        str(node.name): drbd_node_id(node.id)
        for node in cluster_toml.load_topology().storage_nodes
        if str(node.name) in device.nodes and str(node.name) != here
    }


def _refuse_attached(device: Device) -> None:
    """Refuse new metadata while DRBD 8.4 has a disk: it would come to blank metadata by `adjust`.

    Somebody has removed the file of the metadata that it uses. drbdadm refuses that for DRBD 9.

    Raises:
        CommandError: a disk is attached.
    """
    state = drbd_kernel.proc_state(device.minor)
    if state is not None and state.disk != "Diskless":
        raise CommandError(
            Problem(
                "SAN-POOL-026",
                f"{device.name}: the file of its metadata is gone, and its disk is attached "
                f"({state.disk})",
                "what DRBD has is whole: move the device to another node, then 'sanctl device "
                f"show {device.name}'; the replica here is filled anew once it was stopped",
            )
        )


def _unclaimed(path: str) -> str:
    """Return the loop device over a file for new metadata; refuse one that is in use.

    drbdmeta would write there all the same: `create-md --force` answers its question about that
    with yes, too (drbdmeta.c, confirmed).

    Raises:
        CommandError: it is in use, or gone.
    """
    metadata = loop.find(path)
    if metadata is None or loop.is_claimed(metadata):
        why = "its loop device is gone" if metadata is None else f"{metadata} is in use"
        raise CommandError(
            Problem(
                "SAN-POOL-026",
                f"{path}: new metadata cannot be written, {why}",
                "'losetup -l' shows its file, 'drbdsetup status' which resource may use it",
            )
        )
    return metadata


def apply(runner: Runner, device: Device) -> None:
    """Adjust DRBD to the resource file, also under a device that serves."""
    if len(device.nodes) > 1:
        drbdadm.adjust(runner, device.name)
    else:
        drbdadm.adjust_single_replica(runner, device.name, device.minor)
