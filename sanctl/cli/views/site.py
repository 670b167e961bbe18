# SPDX-License-Identifier: GPL-2.0-or-later
"""Second sites and the copies there, as JSON fields."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from sanctl.cli.views.sync import duration_text, progress_bar
from sanctl.model.cluster import Cluster
from sanctl.model.copy_progress import CopyProgress
from sanctl.model.device import DeviceSpec
from sanctl.model.names import format_bytes
from sanctl.model.point_schedule import Rule
from sanctl.model.site import CopyRecord, ProvenCopy, Site
from sanctl.model.site_group import GroupRecord
from sanctl.model.site_takeover import Successor
from sanctl.plan.site.copy_order import is_ahead
from sanctl.plan.site.copy_progress import left_s
from sanctl.plan.site.holding import held, held_text, is_let_in
from sanctl.plan.site.takeover import takeover_text

if TYPE_CHECKING:
    from sanctl.cli.documents import site as site_documents


def site_data(cluster: Cluster, site: Site) -> site_documents.Site:
    """Return a site."""
    return {
        "name": site.name,
        "address": site.address,
        "path": site.path,
        "identity": site.identity,
        "mark": site.mark,
        "fingerprint": site.fingerprint,
        "limit_bytes_s": site.limit_bytes_s or None,
        "devices": [each.device for each in cluster.cib.copies if each.site == site.name],
    }


def limit_text(limit_bytes_s: int) -> str:
    """Say how fast copies are sent; 0 is without a limit."""
    return f"{format_bytes(limit_bytes_s)}/s" if limit_bytes_s else "no limit"


def copy_data(copy: ProvenCopy) -> site_documents.Copy:
    """Return a proven copy."""
    return {
        "point": copy.name,
        "token": copy.token,
        "made": utc(copy.made_s),
        "proven": utc(copy.proven_s),
        "size_bytes": copy.size_bytes,
        "changed_bytes": copy.changed_bytes,
        "sent_bytes": copy.sent_bytes,
        "digest": copy.digest,
        "read_whole": utc(copy.read_whole_s),
    }


def site_copy_data(
    cluster: Cluster,
    site: Site,
    folder: str,
    copy: ProvenCopy,
    complete: Collection[str],
) -> site_documents.SiteCopy:
    """Return a copy as a site has it, in the folder of a device, DEVICE.UUID.

    `complete` are the tokens of the copies that are of complete moments.
    """
    device, _, uuid = folder.partition(".")
    own = cluster.cib.device(device)
    return {
        "copy": f"{device}.{uuid[:8]}@{copy.name}",
        "device": device,
        "uuid": uuid,
        "file": file_of(site, device, uuid, copy),
        "is_of_this_cluster": own is not None and own.uuid == uuid,
        "group": list(copy.group),
        "is_complete": not copy.group or copy.token in complete,
        **copy_data(copy),
    }


def file_of(site: Site, device: str, uuid: str, copy: ProvenCopy) -> str:
    """Return the file of a copy at its site."""
    return f"{site.path}/{device}.{uuid}/{copy.name}.{copy.token}"


def copy_state(
    cluster: Cluster,
    record: CopyRecord,
    now_s: float,
    progress: tuple[str, CopyProgress] | None,
) -> site_documents.CopyState:
    """Return what is known of a device's copies at a site.

    `progress` is how far a copy is that is under way, with the node that makes it.
    """
    site, proven = cluster.cib.site(record.site), record.proven
    points = cluster.cib.points_of(record.device)
    takeover = cluster.cib.takeover(record.device, record.site)
    device = cluster.cib.device(record.device)
    found = held(cluster, device) if device is not None else None
    return {
        "device": record.device,
        "site": record.site,
        "copy": copy_data(proven) if proven else None,
        "file": file_of(site, record.device, record.uuid, proven) if site and proven else None,
        "lag_s": lag_s(proven.made_s, now_s) if proven else None,
        "base_here": proven is not None
        and any(each.token == proven.token and not each.is_deleting for each in points),
        "attempt": bool(record.attempt),
        "progress": progress_data(*progress, now_s) if progress else None,
        "takeover": successor_data(takeover.successor) if takeover else None,
        "takeover_lost": takeover is not None and takeover.is_lost,
        "hold_after_restart": device is not None and record.site in device.awaits,
        "held": found.why if found and device and record.site in device.awaits else None,
        "schedule": schedule_data(cluster, record.device, record.site),
        "group": next(
            (
                group_data(each, now_s)
                for each in cluster.cib.copy_groups
                if record.device in each.devices and each.site == record.site
            ),
            None,
        ),
    }


def lag_s(made_s: int, now_s: float) -> int | None:
    """Return how old what was made then is, in seconds; None: not known, a clock was ahead."""
    return None if is_ahead(made_s, now_s) else max(0, int(now_s) - made_s)


def progress_data(node: str, progress: CopyProgress, now_s: float) -> site_documents.CopyProgress:
    """Return how far a copy is that is under way."""
    percent = progress.percent
    return {
        "node": node,
        "phase": progress.step.phase,
        "done_bytes": progress.step.done_bytes,
        "total_bytes": progress.step.total_bytes,
        "done_percent": None if percent is None else round(percent, 1),
        "left_s": left_s(progress, now_s),
        "since": utc(progress.since_s),
        "at": utc(progress.at_s),
    }


def progress_text(state: site_documents.CopyState) -> str:
    """Say how far a copy is that is under way; empty: none is, or that is not known."""
    found = state["progress"]
    if found is None:
        return ""
    head = f"{state['device']} to {state['site']}, on {found['node']}: "
    total = format_bytes(found["total_bytes"])
    if found["done_percent"] is None:
        return f"{head}waiting for the site to read its copy, {total}"
    left = "" if found["left_s"] is None else f", {duration_text(found['left_s'])} left"
    return (
        f"{head}{found['phase']} {progress_bar(found['done_percent'])}, "
        f"{format_bytes(found['done_bytes'])} of {total}{left}"
    )


def group_data(group: GroupRecord, now_s: float) -> site_documents.CopyGroup:
    """Return what is known of devices that are copied together."""
    complete, schedule = group.complete, group.schedule
    return {
        "devices": list(group.devices),
        "point": complete.name if complete else None,
        "made": utc(complete.made_s) if complete else None,
        "lag_s": lag_s(complete.made_s, now_s) if complete else None,
        "waiting_since": utc(group.begun_s) if group.begun_s else None,
        "schedule": rule_data(schedule.rules[0], schedule.set_s) if schedule else None,
    }


def hold_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return which sites a device awaits after a restart, and whether hosts are let in now."""
    found = held(cluster, device)
    if found is not None:
        now = f"no host is let in: {held_text(found)}"
    else:
        now = "hosts are let in" if is_let_in(cluster, device) else "not known whether hosts are in"
    return f"{', '.join(device.awaits)}, after a restart of the whole cluster; now: {now}"


def successor_data(successor: Successor) -> site_documents.Takeover:
    """Return the device that goes on instead of another one."""
    return {
        "device": successor.device,
        "uuid": successor.uuid,
        "point": successor.point,
        "since": utc(successor.at_s),
    }


def schedule_data(cluster: Cluster, device: str, site: str) -> site_documents.CopySchedule | None:
    """Return when a device is copied to a site by itself; None: it is not."""
    found = cluster.cib.copy_schedule(device, site)
    if found is None:
        return None
    return rule_data(found.rule, found.set_s)


def rule_data(rule: Rule, set_s: int) -> site_documents.CopySchedule:
    """Return how often copies are made by themselves."""
    return {
        "every": rule.interval,
        "every_s": rule.every_s,
        "keep": rule.keep,
        "since": utc(set_s),
    }


def utc(moment_s: int) -> str:
    """Return a moment as JSON has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_s))


def removal_lines(cluster: Cluster, site: str) -> list[str]:
    """Return what goes with a site, and the commands by which its schedules are given again."""
    lines = [
        f"device {each.device}: the restore point kept for the next copy goes; its newest proven "
        f"copy there, {_of_text(each.proven)}, stays"
        for each in cluster.cib.copies
        if each.site == site
    ]
    lines += [
        _schedule_line((each.device,), site, each.rule)
        for each in cluster.cib.copy_schedules
        if each.site == site
    ]
    lines += [
        f"group of {', '.join(each.devices)}: that they are copied together"
        if each.rule is None
        else _schedule_line(each.devices, site, each.rule)
        for each in cluster.cib.copy_groups
        if each.site == site
    ]
    lines += [
        f"device {each.device}: {takeover_text(site, each.successor, is_lost=each.is_lost)}; "
        "nothing tells of that any more"
        for each in cluster.cib.takeovers
        if each.site == site
    ]
    return lines


def _of_text(copy: ProvenCopy | None) -> str:
    if copy is None:
        return "none"
    return f"of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(copy.made_s))} UTC"


def _schedule_line(devices: tuple[str, ...], site: str, rule: Rule) -> str:
    group = " --group" if len(devices) > 1 else ""
    return (
        f"schedule of {', '.join(devices)}, given again by: sanctl replicate schedule "
        f"{' '.join(devices)} --to {site} --every {rule.interval} --keep {rule.keep}{group}"
    )
