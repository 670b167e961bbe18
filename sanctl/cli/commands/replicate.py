# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate`.

Copies are used by replicate_restore.py and replicate_failback.py, and takeovers are in
replicate_takeover.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sanctl.cli.commands.replicate_failback import failback
from sanctl.cli.commands.replicate_hold import release, set_
from sanctl.cli.commands.replicate_restore import restore
from sanctl.cli.commands.replicate_takeover import giveback, takeover
from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.site import (
    copy_data,
    copy_state,
    file_of,
    group_data,
    lag_s,
    progress_text,
    schedule_data,
)
from sanctl.drivers.point_files import final_path
from sanctl.errors import CommandError, Problem, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.point_schedule import parse_rules
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.model.site import CopyRecord, parse_limit, parse_site_name
from sanctl.model.site_copy import WantedCopy
from sanctl.model.site_group import GroupRecord
from sanctl.model.topology import Topology
from sanctl.ops.copy_run import CopyMade, SourceNode
from sanctl.ops.copy_watch import copies_under_way
from sanctl.ops.replicate import point_name
from sanctl.ops.replicate import replicate as copy_once
from sanctl.ops.replicate_group import replicate_group
from sanctl.ops.site import change_copy_schedule, change_group_schedule
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.point_group import group_names, group_orders
from sanctl.plan.site.choosing import stuck_problem, unread_problem
from sanctl.plan.site.copying import base_problem
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.group_record import group_record

if TYPE_CHECKING:
    from sanctl.cli.documents import site as site_documents


_OFF, _KEEP = "off", 7


@click.group(no_args_is_help=False)
def replicate() -> None:
    """Copies of devices at a second site: made now and then, and used when a site is lost."""


replicate.add_command(restore)
replicate.add_command(failback)
replicate.add_command(takeover)
replicate.add_command(giveback)
replicate.add_command(set_)
replicate.add_command(release)


@replicate.command()
@click.argument("devices", metavar="DEVICE...", nargs=-1, required=True)
@click.option("--to", "site", required=True, metavar="SITE", help="The second site.")
@click.option("--group", is_flag=True, help="Of several devices, as they are at one moment.")
@click.option(
    "--without",
    multiple=True,
    metavar="DEVICE[.UUID]",
    help="A device that has left the group: moments with it may be removed.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many copies of each device the site keeps; older ones are removed there. [all]",
)
@click.option(
    "--from-active", is_flag=True, help="Read on this node although it serves the device."
)
@click.option(
    "--limit-rate",
    metavar="RATE",
    help="How much is sent in a second at most: 500K, 10M; or none. [what 'sanctl site set' says]",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Read the copy as a whole for its proof. [once a day, else what has changed]",
)
@accept_option
@timeout_option(60)
@output_option
def run(
    *,
    devices: tuple[str, ...],
    site: str,
    group: bool,
    without: tuple[str, ...],
    keep: int | None,
    from_active: bool,
    limit_rate: str | None,
    whole: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Copy DEVICE to a second site once, on a node with a standby replica.

    Makes a restore point, sends what has changed since the copy before, and compares the digests of
    the restore point and the copy: only then it is one. Once a day both are read as a whole for
    that, else what has changed. --timeout is for the restore point alone.

    With --group the copies of all devices are of one moment, where one node serves them. The moment
    is complete once all are proven; the site keeps the newest complete one, whatever --keep says.
    """
    env = environment()
    wanted, to = [DeviceName.parse(device) for device in devices], parse_site_name(site)
    left = [WantedCopy.parse(each)._replace(point="") for each in without]
    _refuse_several(wanted, group=group)
    if left and not group:
        raise click.UsageError("--without needs --group.")
    limit = parse_limit(limit_rate) if limit_rate is not None else None
    topology = env.topology()
    now_s = int(env.clock.wall_s())
    name, token = point_name(to, now_s), env.new_uuid()[:16]
    command_line = (
        f"replicate run {' '.join(devices)} --to {to}"
        + " --group" * group
        + "".join(f" --without {each}" for each in without)
        + (f" --keep {keep}" if keep else "")
        + " --whole" * whole
    )
    with (
        env.session() as session,
        env.logged(
            "replicate",
            device=devices[0] if len(devices) == 1 else "",
            command_line=command_line,
        ),
    ):
        node = SourceNode(
            env.host.node_name(), lambda point: _file_of(point, topology), env.ipc_buffer_bytes()
        )
        if group:
            made = replicate_group(
                session,
                group_orders(wanted, name, token, now_s),
                to,
                node,
                connect=env.site_link,
                without=left,
                keep=keep,
                from_active=from_active,
                timeout_s=timeout_s,
                limit_bytes_s=limit,
                is_whole=whole,
                accepted=accepted,
            )
        else:
            alone = copy_once(
                session,
                wanted[0],
                to,
                PointOrder(name, token, now_s),
                node,
                connect=env.site_link,
                keep=keep,
                from_active=from_active,
                timeout_s=timeout_s,
                limit_bytes_s=limit,
                is_whole=whole,
                accepted=accepted,
            )
            made = {wanted[0].value: alone}
        cluster = session.observe()
    found = [_made_data(cluster, to, device, each) for device, each in made.items()]
    problems = [
        unread_problem(to, device, each.unread, "until then none of the device is removed there")
        for device, each in made.items()
        if each.unread
    ]
    problems += [
        stuck_problem(to, device, each.stuck) for device, each in made.items() if each.stuck
    ]
    problems += [
        base_problem(f"{device}@{each.base.name}", each.base_error)
        for device, each in made.items()
        if each.base is not None and each.base_error
    ]

    def text() -> None:
        if group:
            print(f"{len(found)} devices are at site {to} as they were at one moment:")
        for each in found:
            copy = each["copy"]
            made_text = copy["made"].replace("T", " ").removesuffix("Z")
            print(f"{each['device']} is at site {to} as of {made_text} UTC: {each['file']}")
            how = "" if each["by_extents"] else "; the content was compared"
            why = each["why_whole"]
            how += f"; read as a whole: {why}" if why else "; proven by what has changed"
            print(
                f"{format_bytes(copy['changed_bytes'])} of {format_bytes(copy['size_bytes'])} had "
                f"changed, {format_bytes(copy['sent_bytes'])} were sent{how}"
            )
            for name in each["removed"]:
                print(f"removed there: {name}")
        for problem in problems:
            click.echo(f"{problem}", err=True)

    finish(output, data=found if group else found[0], text=text, problems=problems)


def _made_data(cluster: Cluster, site: str, device: str, made: CopyMade) -> site_documents.CopyMade:
    uuid = existing_device(cluster, DeviceName.parse(device)).uuid
    return {
        "device": device,
        "site": site,
        "copy": copy_data(made.copy),
        "file": file_of(existing_site(cluster, site), device, uuid, made.copy),
        "base": made.base.name if made.base else None,
        "by_extents": made.is_by_extents,
        "read_bytes": made.read_bytes,
        "why_whole": made.why_whole or None,
        "removed": list(made.removed),
    }


@replicate.command()
@click.argument("devices", metavar="DEVICE...", nargs=-1, required=True)
@click.option("--to", "site", required=True, metavar="SITE", help="The second site.")
@click.option("--group", is_flag=True, help="Of several devices, as they are at one moment.")
@click.option("--every", metavar="15m|off", help="The interval: m, h, d, w; off: no more.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many copies of each device the site keeps. [with --every: 7]",
)
@output_option
def schedule(
    *,
    devices: tuple[str, ...],
    site: str,
    group: bool,
    every: str | None,
    keep: int | None,
    output: str,
) -> None:
    """Show or change how often DEVICE is copied to a second site by itself.

    A node with a standby replica in sync does it, after a move or a failover another one. Intervals
    begin in UTC. With off, no copy is made or removed any more.

    With --group all devices are copied as they are at one moment, where one node serves them.
    """
    env = environment()
    wanted, to = [DeviceName.parse(device) for device in devices], parse_site_name(site)
    _refuse_several(wanted, group=group)
    if keep is not None and (every is None or every == _OFF):
        raise click.UsageError("--keep needs --every INTERVAL.")
    rule = None if every in {None, _OFF} else parse_rules(f"{every} keep {keep or _KEEP}")[0]
    with env.session() as session:
        changed = False
        if every is not None:
            words = f"{' '.join(devices)} --to {site}" + " --group" * group
            with env.logged(
                "replicate",
                device=devices[0] if len(devices) == 1 else "",
                command_line=f"replicate schedule {words} --every {every}",
            ):
                room = env.ipc_buffer_bytes()
                changed = (
                    change_group_schedule(session, wanted, to, rule, ipc_buffer_bytes=room)
                    if group
                    else change_copy_schedule(session, wanted[0], to, rule, ipc_buffer_bytes=room)
                )
        cluster = session.observe()
    existing_site(cluster, to)
    if group:
        known = group_record(cluster, devices, to)
        found = group_data(known, env.clock.wall_s())["schedule"] if known else None
    else:
        existing_device(cluster, wanted[0])
        found = schedule_data(cluster, wanted[0].value, to)

    def text() -> None:
        how = f"every {found['every']}, the newest {found['keep']} are kept" if found else "none"
        together = ", at one moment" if group else ""
        print(f"copies of {', '.join(devices)} to site {to}{together} by schedule: {how}")

    data: list[site_documents.CopyScheduleShown] = [
        {"device": each.value, "site": to, "changed": changed, "schedule": found} for each in wanted
    ]
    finish(output, data=data if group else data[0], text=text)


def _refuse_several(devices: Sequence[DeviceName], *, group: bool) -> None:
    """Raise UsageError unless it is one device, or a group."""
    if group:
        group_names(devices)
    elif len(devices) > 1:
        raise UsageError(
            Problem(
                "SAN-SNAP-016",
                "several devices are copied with --group: as they are at one moment",
                "or give one command for each device: then each copy is of a moment of its own",
            )
        )


@replicate.command()
@click.argument("device", required=False)
@output_option
def status(device: str | None, output: str) -> None:
    """Show the newest proven copy of DEVICE, or of all devices, at each site, and its age.

    Of a copy that is under way, how far it is and how long that takes, after ten seconds of it.
    What the cluster knows; the sites are not asked.
    """
    env = environment()
    with env.session() as session:
        cluster = session.observe()
        progress = copies_under_way(session, cluster)
    if device is not None:
        existing_device(cluster, DeviceName.parse(device))
    now_s = env.clock.wall_s()
    found = [
        copy_state(cluster, each, now_s, progress.get((each.device, each.site)))
        for each in _records(cluster)
        if device is None or each.device == device
    ]

    def text() -> None:
        if not found:
            print("nothing has been copied to a site")
            return
        groups = [
            each for each in cluster.cib.copy_groups if device is None or device in each.devices
        ]
        print_table(
            (
                "DEVICE",
                "SITE",
                "EVERY",
                "COPY",
                "MADE (UTC)",
                "LAG",
                "CHANGED",
                "SENT",
                "READ WHOLE (UTC)",
                "NOW",
            ),
            (
                (
                    each["device"],
                    each["site"],
                    each["schedule"]["every"] if each["schedule"] else "-",
                    *_copy_texts(each),
                    _now_text(each),
                )
                for each in found
            ),
        )
        for group in groups:
            print(_group_text(group, now_s))
        for each in found:
            if each["progress"]:
                print(progress_text(each))

    finish(output, data=found, text=text)


def _group_text(group: GroupRecord, now_s: float) -> str:
    complete = group.complete
    newest = (
        f"the newest complete moment is {complete.name}, "
        f"{_lag_text(lag_s(complete.made_s, now_s))} old"
        if complete
        else "no moment is complete yet"
    )
    begun = "; a run is under way, or has not made one" if group.begun_s else ""
    every = f", every {group.rule.interval}" if group.rule else ""
    return f"{', '.join(group.devices)} together at site {group.site}{every}: {newest}{begun}"


def _lag_text(seconds: int | None) -> str:
    """Return an age; where it is not known a clock was ahead."""
    if seconds is None:
        return "not known"
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _records(cluster: Cluster) -> list[CopyRecord]:
    """Return what is known of copies, also where there is none yet of what is to be copied."""
    known = {(each.device, each.site) for each in cluster.cib.copies}
    expected = {(each.device, each.site) for each in cluster.cib.copy_schedules}
    expected |= {(each.name.value, site) for each in cluster.cib.devices for site in each.awaits}
    waiting = [CopyRecord(device, site, "", "", None) for device, site in sorted(expected - known)]
    return sorted([*cluster.cib.copies, *waiting], key=lambda each: each[:2])


def _copy_texts(state: site_documents.CopyState) -> tuple[str, ...]:
    copy = state["copy"]
    if copy is None:
        return ("none",) + ("-",) * 5
    return (
        copy["point"],
        copy["made"].replace("T", " ").removesuffix("Z"),
        _lag_text(state["lag_s"]),
        format_bytes(copy["changed_bytes"]),
        format_bytes(copy["sent_bytes"]),
        copy["read_whole"].replace("T", " ").removesuffix("Z"),
    )


def _now_text(state: site_documents.CopyState) -> str:
    if state["held"]:
        return f"hosts are kept out ({state['held']})"
    if state["takeover"]:
        lost = ", which the site has lost" if state["takeover_lost"] else ""
        return f"taken over by {state['takeover']['device']}{lost}"
    if state["progress"]:
        return f"under way on {state['progress']['node']}"
    if state["attempt"]:
        return "under way, or broken off"
    return "-" if state["base_here"] else "its restore point is gone"


def _file_of(point: RestorePoint, topology: Topology) -> str:
    pool = topology.pool(point.pool)
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    return final_path(str(pool.path), point.device, point.uuid, point.token)
