# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which device may take over one that was copied to a site; the notes in its CIB of that.

A cluster that is cut off does not know what happened elsewhere. Both clusters reach the site, so
the note of a takeover is there; the CIB has the notes that the cluster has seen last. A takeover
ends when the device is given back, and the site has a record of that end. A note that is gone at
the site without such a record was lost there: the CIB's note is kept, marked as lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sanctl.errors import CommandError, Problem, Refused, UsageError
from sanctl.model.cib_change import Change, RemoveTakeover, SetParameter, SetTakeover
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import DONE, HELD, RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Ending, SiteTakeovers, Successor, Takeover
from sanctl.model.utc_time import utc_text

#: By these a site refuses a takeover, and has noted nothing: a third device goes on, a newer copy.
TURN_REFUSALS = frozenset({"SAN-SITE-021", "SAN-SITE-036"})
_REPLACED = re.compile(r"[0-9a-f]{8,32}")


def copy_taken(device: DeviceSpec) -> SiteCopy:
    """Return the copy that a device goes on from, which says what it may take over.

    Raises:
        Refused: the device was not made from a copy of another device, or does not hold it yet.
    """
    order = device.restore
    copy = order.copy if order is not None else None
    if order is None or copy is None:
        why = "was not made from a copy at a site"
    elif copy.uuid == device.uuid:
        why = "was put back to a copy of itself"
    elif order.held_copy is None:
        raise Refused(
            Problem(
                "SAN-SITE-022",
                f"device {device.name} does not hold the copy {copy.name} of {copy.device} that it "
                f"was to be filled from: that order is '{order.state}', and nothing was written",
                f"'sanctl replicate failback {device.name}' fills it; then again",
            )
        )
    elif order.state not in {DONE, HELD}:
        raise Refused(
            Problem(
                "SAN-SITE-022",
                f"device {device.name} is being filled from the copy {copy.name} of {copy.device}, "
                "and does not hold it yet",
                f"'sanctl device show {device.name}' shows how far it is; when it is done, again",
            )
        )
    else:
        return copy
    raise Refused(
        Problem(
            "SAN-SITE-022",
            f"device {device.name} {why}",
            "only a device that 'sanctl replicate restore' has made, or 'sanctl replicate "
            "failback' has filled, takes over the one that was copied",
        )
    )


def as_filled(cluster: Cluster, name: DeviceName, copy: SiteCopy) -> Cluster:
    """Return the cluster as it is once a device is held as a copy: what could it take over then?"""
    order = RestoreOrder(copy.token, str(copy), copy.token, "", 0, HELD, holds=True)
    devices = tuple(
        replace(device, restore=order) if device.name == name else device
        for device in cluster.cib.devices
    )
    return replace(cluster, cib=replace(cluster.cib, devices=devices))


def before_turn(name: DeviceName, problem: Problem) -> Problem:
    """Return why a device would not take over, where nothing was ordered yet."""
    # Each names an option of `replicate takeover`.
    steps = (
        ". What is an option of 'sanctl replicate takeover' needs three steps: this failback with "
        f"--hold for --takeover, 'sanctl replicate takeover {name}' with it, 'sanctl replicate "
        f"failback {name} --release'"
    )
    hint = problem.hint + steps * (problem.code in TURN_REFUSALS)
    return Problem(problem.code, f"{problem.text}; nothing was ordered", hint)


def plan_turn(cluster: Cluster, names: Sequence[DeviceName], turn: str) -> tuple[Change, ...]:
    """Return the changes that say of held devices how far the turn of the roles is; often none.

    Also of one that is to hold a later copy, and is the one of before still. A device that is not
    held lets hosts in already, and needs no word of it.
    """
    found = (cluster.cib.device(name) for name in names)
    return tuple(
        SetParameter(
            name=device.name, parameter="restore", value=str(device.restore._replace(turn=turn))
        )
        for device in found
        if device is not None
        and device.restore is not None
        and device.restore.is_held
        and device.restore.turn != turn
    )


def refuse_own_copy(device: DeviceSpec, copy: SiteCopy) -> None:
    """Raise Refused if a device that is to take over would be put back to a copy of itself.

    Before anything is ordered: it would be held then, with no takeover that ends that.
    """
    if copy.uuid == device.uuid:
        order = device.restore
        ends = " and with --accept SAN-REST-016" * (order is not None and order.holds)
        raise Refused(
            Problem(
                "SAN-SITE-022",
                f"copy {copy.name} is one of device {device.name} itself, which takes over no "
                "other one by it; nothing was ordered",
                f"the same command without --takeover{ends} puts it back and lets hosts in; "
                f"'sanctl replicate failback {device.name} --release' lets them in to a device "
                "that is held already; 'sanctl replicate takeover' is for one that was made from "
                "another's copy",
            )
        )


def deletion_note(device: DeviceSpec) -> str:
    """Return what a deletion of a device means where it may go on instead of another; often empty.

    Whether it has taken that one over the site knows, which is not asked.
    """
    copy = device.restore.held_copy if device.restore is not None else None
    if copy is None or copy.uuid == device.uuid:
        return ""
    return (
        f"It was made from {copy.name}: if it has taken {copy.device} over (sanctl replicate "
        "takeover), hosts have nothing to go on with, and the takeover stays at the site until it "
        "is handed on or given back. "
    )


def choose_taken(
    site: str, successors: Mapping[str, Successor], wanted: WantedCopy
) -> tuple[str, Successor] | None:
    """Return the folder of a device that was taken over, and the device that goes on instead.

    Args:
        site: the site's name.
        successors: the devices that go on, by the folder of the replaced device, DEVICE.UUID.
        wanted: the names as the operator typed them.

    Returns:
        None: no such device was taken over.

    Raises:
        Refused: the names fit several devices that were taken over.
    """
    found = [
        folder
        for folder in sorted(successors)
        if folder.partition(".")[0] == wanted.device
        and folder.partition(".")[2].startswith(wanted.uuid)
    ]
    if len(found) > 1:
        each = ", ".join(folder[: folder.index(".") + 9] for folder in found)
        raise Refused(
            Problem(
                "SAN-SITE-019",
                f"at site {site} {len(found)} devices were taken over that {wanted} may mean: "
                f"{each}",
                "say which, as DEVICE.UUID: the begin of the UUID is enough",
            )
        )
    return (found[0], successors[found[0]]) if found else None


def known_takeovers(cluster: Cluster, site: str, found: SiteTakeovers) -> dict[str, Successor]:
    """Return the devices that go on, by the folder of the replaced one.

    The takeovers that the site has come first; those that the CIB notes and the site has lost are
    in force as well.

    Args:
        cluster: the cluster.
        site: the site's name.
        found: all takeovers that the site has.
    """
    noted = {
        each.folder: each.successor
        for each in cluster.cib.takeovers
        if each.site == site and _is_kept(cluster, each, found)
    }
    return {**noted, **found.successors}


def ending_of(takeover: Takeover, found: SiteTakeovers) -> Ending | None:
    """Return the site's record of the end of a noted takeover; None: the takeover has not ended."""
    return next(
        (
            each
            for each in found.endings.get(takeover.folder, ())
            if each.successor == takeover.successor
        ),
        None,
    )


def _is_kept(cluster: Cluster, known: Takeover, found: SiteTakeovers) -> bool:
    """Whether a takeover that was noted and is not at the site is in force all the same."""
    # That of a device that cannot be read may be its own: nothing else keeps both from going on.
    is_own = cluster.cib.takeover(known.device, known.site) is not None or any(
        identifier == known.device for identifier, _ in cluster.cib.unreadable
    )
    return is_own and ending_of(known, found) is None


def plan_takeovers(cluster: Cluster, site: str, found: SiteTakeovers) -> tuple[Change, ...]:
    """Return the changes by which the cluster has what a site says of its devices; often none.

    Args:
        cluster: the cluster.
        site: the site's name.
        found: all that the site has.
    """
    if cluster.cib.site(site) is None:
        return ()
    changes: list[Change] = []
    for device in cluster.cib.devices:
        successor = found.successors.get(f"{device.name}.{device.uuid}")
        if successor is not None:
            seen = Takeover(device.name.value, site, device.uuid, successor)
            if seen not in cluster.cib.takeovers:
                changes.append(SetTakeover(takeover=seen))
    for known in cluster.cib.takeovers:
        if known.site != site or known.folder in found.successors:
            continue
        if _is_kept(cluster, known, found):
            if not known.is_lost:
                changes.append(SetTakeover(takeover=known._replace(is_lost=True)))
            continue
        replaced = any(
            isinstance(each, SetTakeover) and each.takeover.id == known.id for each in changes
        )
        if not replaced:
            changes.append(RemoveTakeover(takeover=known))
    return tuple(changes)


def replaced_takeover(
    device: DeviceSpec, successor: Successor, replaced: Sequence[str]
) -> Successor | None:
    """Return the takeover by another device that ends when this device takes over.

    Args:
        device: the device that is to go on.
        successor: the device that goes on by now.
        replaced: the begins of the UUIDs of the devices that are to go on no more.

    Returns:
        None: this device goes on already, so no takeover ends.

    Raises:
        CommandError: another device goes on, and `replaced` does not name it.
    """
    if successor.uuid == device.uuid:
        return None
    if any(successor.uuid.startswith(each) for each in replaced):
        return successor
    taken = copy_taken(device)
    raise CommandError(
        Problem(
            "SAN-SITE-021",
            f"{successor_text(successor)} goes on instead of {taken.device}.{taken.uuid[:8]} "
            f"already, says site {taken.site}",
            f"if {device.name} is to go on instead of it, and no host writes to that one any more: "
            f"'sanctl replicate takeover {device.name} --instead-of {successor.uuid[:8]}'",
        )
    )


def parse_replaced(text: str) -> str:
    """Return the begin of the UUID of a device that is to go on no more.

    Raises:
        UsageError: the text is no begin of a UUID, or too short to tell devices apart.
    """
    if not _REPLACED.fullmatch(text):
        raise UsageError(
            Problem(
                "SAN-SITE-001",
                f"{text!r} is not the begin of a device's UUID",
                "write 8 to 32 hex digits, as the refusal (SAN-SITE-021) names them",
            )
        )
    return text


def successor_text(successor: Successor) -> str:
    """Return the device that goes on, with its copy and since when, for people."""
    return (
        f"device {successor.device}.{successor.uuid[:8]}, made from the copy of "
        f"{successor.point}, since {utc_text(successor.at_s)} UTC,"
    )


def takeover_text(site: str, successor: Successor, *, is_lost: bool) -> str:
    """Return the device that goes on, and from which site that is known, for people."""
    said = (
        f"said site {site}; it says so no more, and not that it was given back, as where its "
        "storage went back to an older state"
        if is_lost
        else f"says site {site}"
    )
    return f"{successor_text(successor)} goes on instead of it, {said}"


def taken_over_problem(device: str, site: str, successor: Successor, *, is_lost: bool) -> Problem:
    """Return why no copy is made of a device that was taken over."""
    return Problem(
        "SAN-SITE-021",
        f"no copy is made of device {device}: {takeover_text(site, successor, is_lost=is_lost)}",
        "docs/howto/site-lost.md: bring home what was written there, and 'sanctl replicate "
        f"takeover {device}'; or 'sanctl replicate giveback {device} --at {site}' if nothing that "
        "was written there is wanted",
    )
