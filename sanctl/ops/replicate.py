# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate run`: a restore point, the copy of it at a second site, what then goes.

What holds if the process, its node or the site dies after each step:

1. The site is asked what it has, and whether another device goes on instead of this one: then
   there is no copy. Nothing has changed.
2. The CIB notes the token of the restore point that will be made for this run. The next run
   removes the point, if there is one by then.
3. The restore point is made, on every replica in sync.
4. What has changed is sent into a file at the site that begins as a reflink of a proven copy. It
   is no copy, and the next run removes it.
5. Both ends have read all of it, or what may have changed, and the digests are equal: the file
   gets its name. If only the answer was lost, the next run is told by the site, and goes on from
   it.
6. The CIB notes that, and the restore point before it, which was the base, goes.
7. The site removes the oldest copies. The next run does that, too. A site that is full in step 4
   removes them first, as far as they are not kept, and the copy begins once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from sanctl.drivers.site_link import SiteLink
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder
from sanctl.model.site import Site
from sanctl.ops.cib_room import within_room
from sanctl.ops.copy_run import CopyMade, DeviceRun, SourceNode, give_up, send_patiently
from sanctl.ops.copy_watch import copies_under_way
from sanctl.ops.session import Session
from sanctl.ops.snapshot import create_point_patiently
from sanctl.plan.site.copy_progress import refuse_second_copy
from sanctl.plan.site.copying import plan_attempt, refuse_sender
from sanctl.plan.site.definition import existing_site


def point_name(site: str, moment_s: int) -> str:
    """Return the name of the restore point that is made for a site."""
    return datetime.fromtimestamp(moment_s, UTC).strftime(f"to-{site}-%Y%m%d-%H%M%S")


def replicate(
    session: Session,
    name: DeviceName,
    site_name: str,
    order: PointOrder,
    node: SourceNode,
    *,
    connect: Callable[[Site], SiteLink],
    keep: int | None,
    from_active: bool,
    timeout_s: float,
    limit_bytes_s: int | None = None,
    is_whole: bool = False,
    accepted: Collection[str] = (),
) -> CopyMade:
    """Copy a device to a second site once.

    Args:
        session: the cluster.
        name: the device.
        site_name: the site.
        order: the restore point that is to be made for it.
        node: this node.
        connect: makes a connection to a site.
        keep: how many copies the site keeps; None: all.
        from_active: also if this node serves the device.
        timeout_s: how long the restore point may take.
        limit_bytes_s: how much is sent in a second at most, 0 for as much as the line takes; None:
            what the site says.
        is_whole: the copy is to be read as a whole, whatever has changed.
        accepted: codes of refusals that were accepted.

    Raises:
        Refused: there is no such device or site, this node is not to send it, or another copy of
            it is under way.
        CommandError: a node or the site could not do its part, and says why. No copy was made.
        NotConverged: the restore point was not made in time.
    """
    cluster = session.observe()
    site = existing_site(cluster, site_name)
    device = refuse_sender(cluster, name, node.name, from_active=from_active)
    refuse_second_copy((name.value,), site.name, copies_under_way(session, cluster), accepted)
    session.reporter.update(f"connecting to site {site.name}")
    with contextlib.ExitStack() as links:

        def connected() -> SiteLink:
            link = links.enter_context(connect(site))
            rate = site.limit_bytes_s if limit_bytes_s is None else limit_bytes_s
            link.limit(rate, session.clock)
            return link

        run = DeviceRun(session, connected(), site, device, node, is_whole)
        there = run.ask()
        token = ""

        def note(given: PointOrder) -> None:
            nonlocal token
            token = given.token
            session.change(
                within_room(
                    session,
                    lambda seen: plan_attempt(seen, device, site.name, token, there.copies),
                    node.ipc_buffer_bytes,
                )
            )

        try:
            point = create_point_patiently(
                session,
                name,
                order,
                ipc_buffer_bytes=node.ipc_buffer_bytes,
                timeout_s=timeout_s,
                begins=note,
            )
            run, made = send_patiently(run, point, there, keep=keep, connect=connected)
        except BaseException:
            if token:
                give_up(session, device, site, token)
            raise
        return run.note(made, there, keep)
