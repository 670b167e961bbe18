# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate run --group`: copies of several devices at a second site, of one moment.

Each device's copy is made as one alone is (replicate.py), one after the other, and says of which
group it is. The moment is complete at the site once the last one is proven; until then the one
before is the newest. What holds if the process, its node or the site dies after each step:

1. The site is asked what it has of all devices. Nothing has changed.
2. The CIB notes the tokens of the restore points of all devices, in one change.
3. The restore points are made at one moment, all or none.
4. Each is sent, proven and noted. What is not proven when the run dies is removed by the next run,
   which makes a moment anew; a copy that is proven stays, as one of its device alone.
5. The oldest copies of that device go. The site keeps the newest complete moment, whatever it is
   told to remove.

A device that cannot be copied keeps no other one from it: the newest copies of those are as new as
they can be, and the run fails in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.model.site import Site
from sanctl.model.site_copy import WantedCopy
from sanctl.model.site_group import CompleteMoment
from sanctl.ops.cib_room import within_room
from sanctl.ops.copy_run import (
    CopiesThere,
    CopyMade,
    DeviceRun,
    SourceNode,
    give_up,
    send_patiently,
)
from sanctl.ops.copy_watch import copies_under_way
from sanctl.ops.session import Session
from sanctl.ops.snapshot import create_group
from sanctl.plan.site.copy_progress import refuse_second_copy
from sanctl.plan.site.copying import plan_attempt, refuse_sender
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.group_record import plan_group_begun, plan_group_complete
from sanctl.plan.site.grouping import folder_of, group_copies, group_of_run
from sanctl.plan.site.moments import complete_moments


def replicate_group(
    session: Session,
    orders: dict[DeviceName, PointOrder],
    site_name: str,
    node: SourceNode,
    *,
    connect: Callable[[Site], SiteLink],
    without: Sequence[WantedCopy],
    keep: int | None,
    from_active: bool,
    timeout_s: float,
    limit_bytes_s: int | None = None,
    is_whole: bool = False,
    accepted: Collection[str] = (),
) -> dict[str, CopyMade]:
    """Copy several devices to a second site once, as they are at one moment; return the copies.

    Args:
        session: the cluster.
        orders: the restore points that are to be made for it, of `group_orders`.
        site_name: the site.
        node: this node.
        connect: makes a connection to a site.
        without: devices that have left the group.
        keep: how many moments, and copies of each device, the site keeps; None: all.
        from_active: also if this node serves the devices.
        timeout_s: how long the restore points may take.
        limit_bytes_s: how much is sent in a second at most, 0 for as much as the line takes; None:
            what the site says.
        is_whole: the copies are to be read as a whole, whatever has changed.
        accepted: codes of refusals that were accepted.

    Raises:
        Refused: there is no such device or site, this node is not to send one of them, another copy
            of one is under way, or the site has a moment with a device more.
        CommandError: a node or the site could not do its part, and says why. The moment is not
            complete at the site.
        NotConverged: the restore points were not made in time.
    """
    cluster = session.observe()
    site = existing_site(cluster, site_name)
    devices = {
        name: refuse_sender(cluster, name, node.name, from_active=from_active) for name in orders
    }
    names = [name.value for name in orders]
    refuse_second_copy(names, site.name, copies_under_way(session, cluster), accepted)
    there: dict[DeviceName, CopiesThere] = {}
    session.reporter.update(f"connecting to site {site.name}")
    with connect(site) as link:
        for name, device in devices.items():
            there[name] = DeviceRun(session, link, site, device, node).ask()
        folders = link.folders(site.path, site.mark)
    group = group_of_run(site.name, tuple(devices.values()), folders, without)

    def plan(seen: Cluster) -> tuple[Change, ...]:
        attempts = (
            change
            for name, device in devices.items()
            for change in plan_attempt(
                seen, device, site.name, orders[name].token, there[name].copies
            )
        )
        now_s = int(session.clock.wall_s())
        return (*attempts, *plan_group_begun(seen, tuple(devices.values()), site.name, now_s))

    session.change(within_room(session, plan, node.ipc_buffer_bytes))
    left = {name: orders[name].token for name in devices}
    made: dict[str, CopyMade] = {}
    problems: list[Problem] = []
    try:
        _, points = create_group(
            session, orders, ipc_buffer_bytes=node.ipc_buffer_bytes, timeout_s=timeout_s
        )
        for point in points:
            name = DeviceName.parse(point.device)
            device = devices[name]
            session.reporter.update(f"connecting to site {site.name}")
            try:
                with contextlib.ExitStack() as links:

                    def connected(links: contextlib.ExitStack = links) -> SiteLink:
                        link = links.enter_context(connect(site))
                        rate = site.limit_bytes_s if limit_bytes_s is None else limit_bytes_s
                        link.limit(rate, session.clock)
                        return link

                    link = connected()
                    link.open(site.path, site.mark, folder_of(device))
                    run = DeviceRun(session, link, site, device, node, is_whole)
                    run, sent = send_patiently(
                        run, point, there[name], keep=keep, connect=connected, group=group
                    )
                    # From here on the restore point is the base of the next copy.
                    del left[name]
                    made[point.device] = run.note(sent, there[name], keep)
            except SanctlError as error:
                problems += error.problems
                if name in left:
                    give_up(session, device, site, left.pop(name))
    except BaseException:
        for name, token in left.items():
            give_up(session, devices[name], site, token)
        raise
    if problems:
        raise CommandError(_incomplete(site.name, points, made), *problems)
    # A copy of it may have gone meanwhile: one run for its device alone that keeps few is enough.
    with connect(site) as link:
        there_now = complete_moments(group_copies(link.folders(site.path, site.mark)))
    tokens = {point.token for point in points}
    if not any(tokens == {*moment.tokens} for moment in there_now):
        raise CommandError(_incomplete(site.name, points, {}))
    moment = CompleteMoment(
        points[0].name,
        min(each.copy.made_s for each in made.values()),
        max(each.copy.proven_s for each in made.values()),
    )
    session.change(
        lambda seen: plan_group_complete(seen, tuple(devices.values()), site.name, moment),
        reads_replicas=False,
    )
    return made


def _incomplete(site: str, points: Sequence[RestorePoint], made: dict[str, CopyMade]) -> Problem:
    missing = ", ".join(point.device for point in points if point.device not in made)
    lacks = f"it lacks {missing}" if made else "a copy of it has gone, or none was made"
    return Problem(
        "SAN-SITE-030",
        f"moment {points[0].name} is not complete at site {site}: {lacks}",
        "what was complete there before stays; the next run makes a moment anew",
    )
