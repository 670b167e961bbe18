# SPDX-License-Identifier: GPL-2.0-or-later
"""Leaves a whole replica's fingerprint, by which resource-agents/client answers short monitors.

What may have one is in sanctl/plan/device/short_monitor.py. It is read before a monitor does its
work and again afterwards, and left only if both are the same: so what that monitor has found whole
is what the fingerprint says. Each action removes the fingerprint before it does anything: one that
was killed leaves none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import NamedTuple

from sanctl.agents import cluster_toml, ocf
from sanctl.agents.cache import flush_unit
from sanctl.agents.fencing import joined_peers
from sanctl.agents.points import unit as point_unit
from sanctl.agents.publish import attrd_cache
from sanctl.agents.replica import (
    access_list,
    lost_writes,
    resource_file,
    resync_note,
    sync_policy,
)
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import tracking, verify
from sanctl.drivers import (
    backing_device,
    configfs,
    dm,
    drbd_kernel,
    drbdadm,
    gate,
    host_secrets,
    lio,
    lio_backstore,
    loop,
    pool_mount,
    pool_notes,
)
from sanctl.errors import SanctlError
from sanctl.parse.drbd import parse_proc_line
from sanctl.plan.device import short_monitor
from sanctl.render.fingerprint import Record, environment_text, record, render
from sanctl.system import state_files
from sanctl.system.files import exists, read_text, read_text_or

_KIND = "fingerprint"
_PROGRAM = "drbdsetup"
_CURRENT = "/opt/sanctl/current"


class Fingerprint(NamedTuple):
    """What a monitor's result depends on, and what of that says whether the replica is whole."""

    seen: short_monitor.Seen
    records: tuple[Record, ...]


def remove(name: str) -> None:
    """Have the next monitor do all of its work."""
    with contextlib.suppress(OSError):
        _file(name).remove()


def read(device: Device) -> Fingerprint | None:
    """Read what this monitor's result depends on; None where a part is not known, or missing."""
    # What hosts reserve on the other node is mirrored by whole monitors.
    if ocf.is_probe() or len(device.nodes) != 2 or device.cache or device.reservations:
        return None
    try:
        return _read(device)
    except (SanctlError, OSError, LookupError):
        return None


def leave(device: Device, before: Fingerprint | None, status: int) -> None:
    """Leave the fingerprint, if the replica is whole and nothing has changed since `before`."""
    try:
        if before is None or before != read(device) or not _is_settled(device, before, status):
            return
        left_s = _valid_for_s(device, before, status)
    except (SanctlError, OSError):
        return  # not known, as in `read`
    if left_s <= 0:
        return
    until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + left_s
    # Without room for it each monitor is a whole one.
    with contextlib.suppress(OSError):
        _file(device.name).write(
            render(
                (
                    record("until", f"{until_s:.2f}"),
                    *before.records,
                    record("status", str(status)),
                )
            )
        )


def _valid_for_s(device: Device, found: Fingerprint, status: int) -> float:
    published = (attrd_cache.of_score(device.name), attrd_cache.of_device(device.name))
    sooner_s = (
        # A standby begins no verify.
        verify.looks_within_s(device) if status == ocf.RUNNING_PROMOTED else None,
        short_monitor.MINUTE_S if access_list.has_refused(device.name) else None,
    )
    return short_monitor.valid_for_s(
        tuple(each.age_s() if _is_of_running_attrd(each) else None for each in published),
        attrd_cache.period_of_device(device.name, is_in_sync=not _is_alone(found)),
        sooner_s=tuple(each for each in sooner_s if each is not None),
    )


def _is_alone(found: Fingerprint) -> bool:
    return found.seen.drbd is not None and short_monitor.is_alone(found.seen.drbd)


def _file(name: str) -> state_files.StateFile:
    return state_files.of_device(name, _KIND)


def _is_settled(device: Device, found: Fingerprint, status: int) -> bool:
    is_alone = _is_alone(found)
    return short_monitor.is_whole(
        found.seen,
        minor=device.minor,
        size_bytes=device.size_bytes,
        is_active=status == ocf.RUNNING_PROMOTED,
        replicas=len(device.nodes),
        cache=device.cache,
    ) and (
        status in {ocf.SUCCESS, ocf.RUNNING_PROMOTED}
        # The next one looks again whether another replica is promoted (forgotten_role.py).
        and not (status == ocf.RUNNING_PROMOTED and ocf.is_for_standby())
        and set(lio.access(device.name)) == device.access
        and not access_list.hosts_without_secret(device)
        and sync_policy.is_in_force(device)
        and not verify.is_order_open(device)
        and not tracking.is_left_open(device, is_in_sync=not is_alone)
        and not (is_alone and flush_unit.is_unwatched(device.name))
        # Another node may have carried it out: then it is too old after a minute.
        and not point_unit.is_due(device)
        and not device.restore
        and (device.is_let_in or not device.awaits)
    )


def _is_of_running_attrd(cached: state_files.StateFile) -> bool:
    pid = attrd_cache.attrd_pid()
    return bool(pid) and attrd_cache.published_fields(cached)[:1] == [pid]


def _read(device: Device) -> Fingerprint | None:
    data = lost_writes.data_file(device.name)
    drbd = parse_proc_line(read_text_or("/proc/drbd", ""), device.minor)
    is_alone = drbd is not None and short_monitor.is_alone(drbd)
    if drbd is not None and is_alone:
        drbd = drbd._replace(out_of_sync_kib=0)  # grows with each write of a host
    upper, below = gate.tables(device.name)
    disk = dm.active_table(backing_device.dm_name(device.name))
    targets = lio.find_targets(device.name)
    tpgs = [each for each in lio.tpgs(targets) if lio.has_lun(each)]
    group = lio.alua_group(device.name, device.minor)
    if (
        data is None
        or drbd is None
        or upper is None
        or below is None
        or group is None
        or (len(targets), len(tpgs)) != (1, 1)
    ):
        return None
    notes = state_files.device_notes(device.name) - {_KIND}
    size = f"/sys/block/drbd{device.minor}/size"
    drbd_bytes = int(read_text(size)) * dm.SECTOR_BYTES
    target_bytes = gate.size_bytes(device.name) or 0
    requests = drbd_kernel.oldest_requests_path(device.name)
    records = [
        record("release", os.path.basename(os.readlink(_CURRENT))),
        record("environment", environment_text(os.environb.items())),
        record(
            "drbd",
            str(device.minor),
            drbd.state,
            drbd.write_ordering,
            requests,
            str(short_monitor.YOUNG_REQUEST_MS),
        ),
        *_of_gate(device, upper, below, disk),
        _content(size),
        _content(f"{group}/alua_access_state"),
        *_of_target(targets[0], tpgs[0]),
        *(_content(each) for each in lio_backstore.unmap_attributes(device.name, device.minor)),
        # The client's own listing has the fingerprint.
        record(
            "folder", state_files.device_folder(device.name), "\n".join(sorted({*notes, _KIND}))
        ),
        *_of_files(device, data, is_alone=is_alone),
        *_of_attrd(),
    ]
    if is_alone or drbd.state.startswith("cs:Connected ro:Primary/"):
        records.append(
            record(
                "idle",
                f"/sys/block/drbd{device.minor}/stat",
                state_files.of_device(device.name, "io-progress").path,
            )
        )
    seen = short_monitor.Seen(
        drbd=drbd,
        lower=below.lower,
        is_suspended=any(each.is_suspended for each in (upper, below, disk) if each is not None),
        alua=read_text(f"{group}/alua_access_state").strip(),
        is_enabled=read_text(f"{tpgs[0]}/enable").strip() == "1",
        drbd_bytes=drbd_bytes,
        target_bytes=target_bytes,
        notes=notes,
    )
    return Fingerprint(seen, tuple(records))


def _of_gate(
    device: Device, upper: dm.ActiveTable, below: dm.ActiveTable, disk: dm.ActiveTable | None
) -> list[Record]:
    names = gate.dm_names(device.name)
    found = [record("dm", names[0], upper.raw), record("dm", names[1], below.raw)]
    found += [_content(f"/sys/block/{dm.kernel_name(name)}/size") for name in names]
    if disk is not None:
        found.append(record("dm", backing_device.dm_name(device.name), disk.raw))
    return found


def _of_target(target: str, tpg: str) -> list[Record]:
    found = [
        _folder(target),
        _content(f"{tpg}/enable"),
        _folder(f"{tpg}/lun"),
        _folder(f"{tpg}/lun/lun_0"),
        _content(f"{tpg}/lun/lun_0/alua_tg_pt_gp"),
        _folder(f"{tpg}/np"),
        _folder(f"{tpg}/acls"),
    ]
    for name in configfs.folders(f"{tpg}/acls"):
        acl = f"{tpg}/acls/{name}"
        # The names of CHAP; a secret stands nowhere but in the kernel and in its own file.
        found += [
            _content(f"{acl}/{each}")
            for each in ("attrib/authentication", "auth/userid", "auth/authenticate_target")
            if exists(f"{acl}/{each}")
        ]
    return found


def _of_files(device: Device, data: str, *, is_alone: bool) -> list[Record]:
    """Return records of the files on which duties of a monitor depend.

    A Primary without its peer keeps since when that is, and has its file flushed by a service,
    which the next monitor has to start again if it ends.
    """
    below = data.removesuffix(".data")
    program = shutil.which(_PROGRAM, path="/usr/sbin:/usr/bin:/sbin:/bin")
    mounted = pool_mount.mount_and_line_of(data)
    if program is None or mounted is None:
        raise LookupError(device.name)
    mount, line = mounted
    found = [
        _stat(program),
        _stat(cluster_toml.PATH),
        _stat(resource_file.path_of(device.name)),
        _stat(drbdadm.config_path(device.name)),
        _stat(resource_file.INCLUDE),
        record("line", pool_mount.MOUNTS, line),
        # A filesystem that has shut itself down says so of its root (pool_mount.reports_shut_down).
        record("inode", mount.path, str(os.stat(mount.path).st_ino)),
        record("absent", f"{below}.ram"),
        _content(f"{below}.apart") if is_alone else record("absent", f"{below}.apart"),
        record("absent", state_files.of_node(f"flush-failed.{device.name}").path),
        *(record("absent", at) for at in pool_notes.paths(device.pool, pool_notes.SHUT_DOWN)),
        *(_stat_or_absent(f"{below}.{kind}") for kind in ("sync", "verify", resync_note.KIND)),
        *(_stat_or_absent(f"{host_secrets.FOLDER}/{host.name}") for host in device.hosts),
    ]
    if is_alone:
        cgroup = flush_unit.CGROUP
        is_running = exists(cgroup)
        found.append(
            record("inode", cgroup, str(os.stat(cgroup).st_ino))
            if is_running
            else record("absent", cgroup)
        )
    links = drbdadm.registry_links(device.name, device.minor)
    found += [record("link", link, os.readlink(link)) for link in links]
    for path in (data, f"{below}.meta"):
        attached = loop.find(path)
        if attached is None:
            raise LookupError(path)
        folder = f"/sys/block/{os.path.basename(attached)}/loop"
        found += [_content(f"{folder}/backing_file"), _content(f"{folder}/dio")]
    return found


def _of_attrd() -> list[Record]:
    pid = attrd_cache.attrd_pid()
    cgroup = joined_peers.PACEMAKER_CGROUP
    return [
        _content(f"/proc/{pid}/comm"),
        record("inode", cgroup, str(os.stat(cgroup).st_ino)),
    ]


def _content(path: str) -> Record:
    return record("file", path, read_text(path))


def _folder(path: str) -> Record:
    return record("folder", path, "\n".join(sorted(os.listdir(path))))


def _stat(path: str) -> Record:
    found = os.stat(path)
    if 0 <= time.time() - max(found.st_mtime, found.st_ctime) < short_monitor.SETTLED_AFTER_S:
        raise LookupError(path)
    words = (found.st_ino, found.st_size, int(found.st_mtime), int(found.st_ctime))
    return record("stat", path, " ".join(map(str, words)))


def _stat_or_absent(path: str) -> Record:
    return _stat(path) if exists(path) else record("absent", path)
