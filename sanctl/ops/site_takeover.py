# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate takeover` and `replicate giveback`: which of two sites goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.model.cib_change import RemoveTakeover
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import ASKED, TURNED
from sanctl.model.names import DeviceName
from sanctl.model.site import ProvenCopy, Site
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Claim, Ending, Successor, Takeover
from sanctl.ops.noted_state import await_noted
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.restore_refusals import refuse_unknown_content
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.group_choice import (
    devices_taking_over,
    refuse_unlisted,
    taken_together,
)
from sanctl.plan.site.grouping import folder_of
from sanctl.plan.site.hold_release import GOES_ON_ELSEWHERE, goes_on_problem, rivals_after_turn
from sanctl.plan.site.takeover import (
    TURN_REFUSALS,
    as_filled,
    before_turn,
    choose_taken,
    copy_taken,
    ending_of,
    known_takeovers,
    plan_takeovers,
    plan_turn,
    refuse_own_copy,
    replaced_takeover,
    taken_over_problem,
)
from sanctl.plan.site.takeover_age import older_problem


class TakenOver(NamedTuple):
    """The result of the takeover by one device.

    Attributes:
        device: the device.
        copy: the copy that the device was made from.
        changed: the site has a new note of the takeover.
        took_back: the other device had taken this one over, and that takeover has ended.
    """

    device: str
    copy: SiteCopy
    changed: bool
    took_back: bool


def take_over(
    session: Session,
    names: Sequence[DeviceName],
    node: str,
    connect: Callable[[Site], SiteLink],
    *,
    allows_mix: bool,
    allows_older: bool = False,
    replaced: Sequence[str] = (),
) -> tuple[TakenOver, ...]:
    """Note at the site that devices go on instead of those whose copies they were made from.

    With a device the others of its group do, which were made from the same moment. Those at one
    site all or none, and only while the site has no copy of them but those that were looked at: it
    sees to that itself. If this ends between two sites, the same command notes the rest, and no
    copy of the group is begun meanwhile.

    Args:
        session: the cluster.
        names: the devices that go on.
        node: this node.
        connect: makes a connection to a site.
        allows_mix: these devices alone, whatever moments they were made from.
        allows_older: also if the site has newer copies than those that they were made from.
        replaced: the begins of the UUIDs of devices that go on until now, and then no more.

    Raises:
        Refused: there is no such device, it was not made from a copy or does not hold it yet, the
            site has a newer one, or others of its group were not made from the same moment; or what
            is on one is not known, as the CIB is older than what nodes have noted, or may be.
        CommandError: a third device goes on already, a copy has come meanwhile, or the site cannot
            be reached.
    """
    looked = _look(session, session.observe(), names, connect, allows_mix=allows_mix)
    if looked.problems and not allows_older:
        raise Refused(*looked.problems)
    devices = looked.devices
    await_noted(session, *(device.name.value for device in devices))
    cluster = session.observe()
    for device in devices:
        refuse_unknown_content(cluster, device)
    done: dict[str, TakenOver] = {}
    for site_name in dict.fromkeys(copy_taken(device).site for device in devices):
        done |= _take_over(
            session,
            existing_site(cluster, site_name),
            [device for device in devices if copy_taken(device).site == site_name],
            seen=None if allows_older else looked.seen.get(site_name, {}),
            replaced=replaced,
            node=node,
            connect=connect,
        )
    return tuple(done[device.name.value] for device in devices)


def refuse_turn(
    session: Session,
    name: DeviceName,
    copy: SiteCopy,
    connect: Callable[[Site], SiteLink],
    *,
    allows_mix: bool,
    accepted: Collection[str] = (),
) -> None:
    """Refuse where a device would not take over once it holds a copy, by what there is now.

    Before anything is ordered: a copy takes hours, and no host is let in after it before the roles
    have turned. What comes to the site meanwhile `take_over` refuses.

    Args:
        session: the cluster.
        name: the device.
        copy: the copy that it is to hold.
        connect: makes a connection to a site.
        allows_mix: this device alone, whatever moments others are of.
        accepted: the codes of refusals that the operator accepts.

    Raises:
        Refused: the copy is one of the device itself, the site has a newer one, or others of its
            group were not made from the same moment; or a third device goes on already, instead of
            either.
        CommandError: the site cannot be reached.
    """
    cluster = as_filled(session.observe(), name, copy)
    filled = existing_device(cluster, name)
    refuse_own_copy(existing_device(session.observe(), name), copy)
    looked = _look(session, cluster, [name], connect, allows_mix=allows_mix)
    others = rivals_after_turn(cluster, filled, copy, looked.successors)
    if others and GOES_ON_ELSEWHERE not in accepted:
        raise Refused(before_turn(name, goes_on_problem(filled, others)))
    problems = [*looked.problems]
    for device in looked.devices:
        current = looked.successors.get(copy_taken(device).folder)
        try:
            if current is not None:
                replaced_takeover(device, current, ())
        except CommandError as error:
            problems += error.problems
    if problems:
        raise Refused(*(before_turn(name, each) for each in problems))


class _Looked(NamedTuple):
    """What sites have of the devices that are to take over.

    Attributes:
        devices: the devices, with the others of their groups.
        problems: why they do not take over unasked, as a site has newer copies.
        seen: the copies that were looked at, by the site's name and the folder.
        successors: the devices that go on now, by the folder of the replaced one.
    """

    devices: tuple[DeviceSpec, ...]
    problems: list[Problem]
    seen: dict[str, dict[str, tuple[ProvenCopy, ...]]]
    successors: dict[str, Successor]


def _look(
    session: Session,
    cluster: Cluster,
    names: Sequence[DeviceName],
    connect: Callable[[Site], SiteLink],
    *,
    allows_mix: bool,
) -> _Looked:
    """Look at what the sites have; nothing is changed.

    Raises:
        Refused: a device does not hold a copy, or others of its group are of another moment.
        CommandError: a site cannot be reached.
    """
    found = {name: copy_taken(existing_device(cluster, name)) for name in names}
    folders: dict[str, tuple[ProvenCopy, ...]] = {}
    unread: dict[str, tuple[str, ...]] = {}
    seen: dict[str, dict[str, tuple[ProvenCopy, ...]]] = {}
    successors: dict[str, Successor] = {}
    for site_name in sorted({copy.site for copy in found.values()}):
        site = existing_site(cluster, site_name)
        session.reporter.update(f"connecting to site {site.name}")
        with connect(site) as link:
            there = seen[site.name] = {}
            successors |= link.takeovers(site.path, site.mark).successors
            # With a mix nothing is asked of other devices: a folder of theirs may be damaged there.
            for copy in found.values() if allows_mix else ():
                if copy.site == site.name:
                    there[copy.folder] = link.open(site.path, site.mark, copy.folder)
                    unread |= link.unread
            if not allows_mix:
                there |= link.folders(site.path, site.mark)
                unread |= link.unread
            folders |= there
    for copy in found.values() if not allows_mix else ():
        refuse_unlisted(copy.site, copy.folder, folders, unread)
    devices = devices_taking_over(cluster, names, folders, allows_mix=allows_mix)
    # Of all before any is noted.
    _refuse_rivals(devices)
    problems = [
        problem
        for device in devices
        if (problem := older_problem(device, folders, unread, allows_mix=allows_mix)) is not None
    ]
    return _Looked(devices, problems, seen, successors)


def _refuse_rivals(devices: Sequence[DeviceSpec]) -> None:
    """Raise Refused if two devices would go on instead of the same one."""
    first: dict[tuple[str, str], DeviceSpec] = {}
    for device in devices:
        copy = copy_taken(device)
        other = first.setdefault((copy.site, copy.folder), device)
        if other is not device:
            raise Refused(
                Problem(
                    "SAN-SITE-021",
                    f"devices {other.name} and {device.name} were both made from copies of "
                    f"{copy.device}, and one alone goes on instead of it",
                    "name that one",
                )
            )


def _take_over(
    session: Session,
    site: Site,
    devices: Sequence[DeviceSpec],
    *,
    seen: Mapping[str, Sequence[ProvenCopy]] | None,
    replaced: Sequence[str],
    node: str,
    connect: Callable[[Site], SiteLink],
) -> dict[str, TakenOver]:
    """Note at a site that devices go on instead of others, if no copy came that was not seen.

    If one of those had taken over the device that goes on instead of it, that ends, and only then:
    whatever dies in between, none of both is copied.
    """
    copies = {device.name.value: copy_taken(device) for device in devices}
    session.reporter.update(f"connecting to site {site.name}")
    done = {}
    with connect(site) as link:
        now_s = int(session.clock.wall_s())
        before = link.takeovers(site.path, site.mark).successors
        claims = {}
        for device in devices:
            copy = copies[device.name.value]
            current = before.get(copy.folder)
            ends = replaced_takeover(device, current, replaced) if current is not None else None
            claims[copy.folder] = Claim(
                Successor(device.name.value, device.uuid, copy.point, now_s),
                None if seen is None else tuple(each.token for each in seen.get(copy.folder, ())),
                Ending(ends, now_s, node) if ends is not None else None,
            )
        # What dies from here on leaves it open whether the roles have turned, and says so.
        names = [device.name for device in devices]
        session.change(lambda seen: plan_turn(seen, names, ASKED), reads_replicas=False)
        try:
            changed = link.take_over(site.path, site.mark, claims)
        except CommandError as error:
            if {each.code for each in error.problems} <= TURN_REFUSALS:
                # The site says that it has noted nothing. What it refuses is what is said, also
                # where that cannot be noted here: then the turn is one that broke off.
                with contextlib.suppress(SanctlError):
                    _say_turn_as_before(session, devices)
            raise
        found = link.takeovers(site.path, site.mark)
        known = known_takeovers(session.observe(), site.name, found)
        for device in devices:
            name, copy, own = device.name.value, copies[device.name.value], folder_of(device)
            current = known.get(own)
            took_back = current is not None and current.uuid == copy.uuid
            if current is not None and took_back:
                ending = Ending(current, int(session.clock.wall_s()), node)
                holder = (copy.folder, device.uuid)
                link.give_back(site.path, site.mark, own, ending, holder)
            done[name] = TakenOver(name, copy, changed[copy.folder], took_back)
        note_takeovers(session, site, link)
        session.change(lambda seen: plan_turn(seen, names, TURNED), reads_replicas=False)
    return done


def _say_turn_as_before(session: Session, devices: Sequence[DeviceSpec]) -> None:
    """Say of devices how far the turn is as before the site was asked."""
    known = [(each.name, each.restore.turn) for each in devices if each.restore is not None]
    for word in dict.fromkeys(turn for _, turn in known):
        names = [name for name, turn in known if turn == word]
        session.change(partial(plan_turn, names=names, turn=word), reads_replicas=False)


def find_taken(
    session: Session,
    site_name: str,
    wanted: WantedCopy,
    connect: Callable[[Site], SiteLink],
    *,
    allows_mix: bool,
) -> tuple[tuple[str, Successor], ...]:
    """Return the folders of a device that was taken over and of its group, and who goes on.

    The devices that are copied with the named one and were taken over, too, come before it, unless
    `allows_mix` is given. The named one is the last, so that the same command goes on where one
    ended half way. The site's takeovers are noted in the CIB.

    Returns:
        An empty tuple, if the named device was not taken over.

    Raises:
        Refused: there is no such site, several devices may be meant, or the site cannot read which
            belong together.
        CommandError: the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    with connect(site) as link:
        found = link.takeovers(site.path, site.mark)
        folders = {} if allows_mix else link.folders(site.path, site.mark)
        unread = link.unread
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    known = known_takeovers(session.observe(), site.name, found)
    named = choose_taken(site.name, known, wanted)
    if named is None:
        return ()
    refuse_unlisted(site.name, named[0], folders, unread)
    return (*((each, known[each]) for each in taken_together(named[0], known, folders)), named)


def give_back(
    session: Session,
    site_name: str,
    taken: tuple[str, Successor],
    node: str,
    connect: Callable[[Site], SiteLink],
) -> None:
    """End the takeover of a device, also one that is lost at the site.

    The site notes that it has ended, so that the other cluster learns of it.

    Args:
        session: the cluster.
        site_name: the site.
        taken: the folder of the device that was taken over, and by what, as `find_taken` says.
        node: this node.
        connect: makes a connection to a site.

    Raises:
        Refused: there is no such site.
        CommandError: another device has taken over meanwhile, or the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    folder, successor = taken
    with connect(site) as link:
        ending = Ending(successor, int(session.clock.wall_s()), node)
        link.give_back(site.path, site.mark, folder, ending)
        note_takeovers(session, site, link)


class Noted(NamedTuple):
    """The takeovers that a site has, as they are noted in the CIB.

    Attributes:
        successors: the devices that go on, by the folder of the replaced device, DEVICE.UUID; also
            from takeovers that the site has lost and this cluster has noted.
        ended: the takeovers that are noted no more, each with the record of its end, if there is
            one.
    """

    successors: dict[str, Successor]
    ended: tuple[tuple[Takeover, Ending | None], ...]


def note_takeovers(session: Session, site: Site, link: SiteLink) -> Noted:
    """Read the takeovers that a site has, and note those of this cluster's devices in the CIB.

    Raises:
        CommandError: the site cannot be reached, or the CIB not be changed.
    """
    found = link.takeovers(site.path, site.mark)
    made = session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    gone = (each.takeover for each in made if isinstance(each, RemoveTakeover))
    known = known_takeovers(session.observe(), site.name, found)
    return Noted(dict(known), tuple((each, ending_of(each, found)) for each in gone))


def learn_takeovers(session: Session, site_name: str, connect: Callable[[Site], SiteLink]) -> None:
    """Note in the CIB what a site has of takeovers of this cluster's devices.

    Raises:
        Refused: there is no such site.
        CommandError: the site cannot be reached, or the CIB not be changed.
    """
    site = existing_site(session.observe(), site_name)
    with connect(site) as link:
        note_takeovers(session, site, link)


def refuse_taken_over(session: Session, site: Site, device: DeviceSpec, link: SiteLink) -> None:
    """Refuse if another device goes on instead of this one; note the site's takeovers in the CIB.

    Raises:
        Refused: another device goes on.
        CommandError: the site cannot be reached, or the CIB not be changed.
    """
    found = link.takeovers(site.path, site.mark)
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    folder = f"{device.name}.{device.uuid}"
    successor = known_takeovers(session.observe(), site.name, found).get(folder)
    if successor is not None:
        is_lost = folder not in found.successors
        name = device.name.value
        raise Refused(taken_over_problem(name, site.name, successor, is_lost=is_lost))
