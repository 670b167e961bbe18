# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: which copy at a site is meant by what was typed. Where that is not clear, none is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.plan.site.copy_order import newest_first, rival_of
from sanctl.plan.site.moments import UNLISTED

_SHOWN = 8


def unread_problem(site: str, folder: str, names: Sequence[str], hint: str) -> Problem:
    """Return that notes of a device's copies cannot be read, so that any may be the newest one.

    Or that its folder there cannot be, so that none of its copies is known.
    """
    if UNLISTED in names:
        return Problem(
            "SAN-SITE-035",
            f"site {site} cannot read the folder {folder.rstrip('.')}, so it is not known which "
            f"copies of {folder.partition('.')[0]} are there",
            f"look at the kernel's log there: its disk or filesystem may be damaged; {hint}",
        )
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return Problem(
        "SAN-SITE-035",
        f"what site {site} has noted of the copies {shown} of {folder.partition('.')[0]} cannot be "
        "read, and one of them may be the newest",
        f"a later release may read it; look into the .json beside it in {folder} there; {hint}",
    )


def stuck_problem(site: str, device: str, stuck: Sequence[str]) -> Problem:
    """Return that a site could not remove older copies of a device.

    Args:
        site: the site's name.
        device: the device's name.
        stuck: which copies, each with the reason.
    """
    shown = "; ".join(stuck[:_SHOWN]) + ("; ..." if len(stuck) > _SHOWN else "")
    return Problem(
        "SAN-SITE-014",
        f"site {site} could not remove copies of {device} that are not kept any more: {shown}",
        "look at the kernel's log there; the next run tries again, and until then they need room",
    )


def refuse_unread(
    site: str, folder: str, unread: Mapping[str, Sequence[str]], others: Sequence[str] = ()
) -> None:
    """Refuse to choose the newest copy where notes in its folder, or in others, cannot be read."""
    for each in (folder, *others):
        if unread.get(each):
            hint = f"or say {folder.partition('.')[0]}@POINT"
            if UNLISTED in unread[each]:
                # The moment is not known to be complete: no name of one helps.
                hint += " with --allow-mix: what the devices then hold may not belong together"
            raise Refused(unread_problem(site, each, unread[each], hint))


def meant_folder(
    site: str,
    folders: Mapping[str, Sequence[ProvenCopy]],
    wanted: WantedCopy,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the folder at a site, DEVICE.UUID, of the device that was typed.

    Raises:
        Refused: there is none with a copy, there are several, or of none there can be read what it
            is.
    """
    unread = unread or {}
    found = sorted(
        folder
        for folder in {*folders, *unread}
        if (folders.get(folder) or unread.get(folder))
        and folder.partition(".")[0] == wanted.device
        and folder.partition(".")[2].startswith(wanted.uuid)
    )
    if len(found) == 1 and not folders.get(found[0]):
        raise Refused(unread_problem(site, found[0], unread[found[0]], "or take a backup"))
    if not found:
        known = sorted({folder.partition(".")[0] for folder, copies in folders.items() if copies})
        raise Refused(
            Problem(
                "SAN-SITE-018",
                f"site {site} has no copy {wanted}",
                f"it has copies of: {', '.join(known[:_SHOWN])}" if known else "it has none at all",
            )
        )
    if len(found) > 1:
        each = ", ".join(
            f"{folder[: folder.index('.') + 9]}@"
            + (newest_first(folders[folder])[0].name if folders.get(folder) else "?")
            for folder in found
        )
        raise Refused(
            Problem(
                "SAN-SITE-019",
                f"site {site} has copies of {len(found)} devices that {wanted} may mean; the "
                f"newest of each: {each}",
                "say which, as DEVICE.UUID: the begin of the UUID is enough",
            )
        )
    return found[0]


def choose_copy(
    cluster: Cluster,
    site: str,
    folders: Mapping[str, Sequence[ProvenCopy]],
    wanted: WantedCopy,
    *,
    token: str = "",
    unread: Mapping[str, Sequence[str]] | None = None,
) -> tuple[SiteCopy, ProvenCopy]:
    """Return the copy that is meant: of the newest restore point, unless one was named.

    Args:
        cluster: the cluster, which knows the digests of the copies that it has made last.
        site: the site's name.
        folders: the proven copies at the site by folder, DEVICE.UUID.
        wanted: what was typed.
        token: the token of the copy, where what was typed is known to mean that one.
        unread: the names of copies there whose notes cannot be read, by folder.

    Raises:
        Refused: there is none, there are several, or one that cannot be read may be the newest.
        CommandError: the site's digest of it is not the one that this cluster has noted.
    """
    folder = meant_folder(site, folders, wanted, unread)
    copies = newest_first(folders[folder])
    named = [
        copy
        for copy in copies
        if (copy.token == token if token else wanted.point in {"", copy.name})
    ]
    if not named or (wanted.point and len(named) > 1):
        listed = ", ".join(copy.name for copy in copies[:_SHOWN])
        raise Refused(
            Problem(
                "SAN-SITE-019" if named else "SAN-SITE-018",
                f"site {site} has {len(named) or 'no'} copies {wanted}",
                f"the newest of {folder.partition('.')[0]}: {listed}",
            )
        )
    proven = named[0]
    if not wanted.point and not token:
        refuse_unread(site, folder, unread or {})
        _refuse_unclear_order(folder, proven, copies)
    device, _, uuid = folder.partition(".")
    copy = SiteCopy(site, device, uuid, proven.name, proven.token, proven.digest)
    _check_noted(cluster, copy)
    return copy, proven


def _refuse_unclear_order(folder: str, newest: ProvenCopy, copies: Sequence[ProvenCopy]) -> None:
    """Refuse where another copy may be newer than the one that seems to be the newest."""
    rival = rival_of(newest, copies)
    if rival is not None:
        raise Refused(
            Problem(
                "SAN-SITE-019",
                f"of {folder.partition('.')[0]} the newest copy seems to be {newest.name}, and "
                f"{rival.name} may be newer: a node's clock may have been wrong, or one run has "
                "overtaken another",
                "find out which one holds the latest data, and say DEVICE@POINT",
            )
        )


def _check_noted(cluster: Cluster, copy: SiteCopy) -> None:
    """Raise CommandError if this cluster has noted another digest of a copy than the site has."""
    noted = [
        record.proven
        for record in cluster.cib.copies
        if record.site == copy.site and record.proven and record.proven.token == copy.token
    ]
    if any(each.digest != copy.digest for each in noted):
        raise CommandError(
            Problem(
                "SAN-SITE-017",
                f"the site says another digest of copy {copy.name} than was noted when it was "
                "proven",
                "use another copy, and find out who has changed what lies at the site",
            )
        )


def copies_in_use(cluster: Cluster, site: str) -> frozenset[str]:
    """Return the tokens of the copies at a site that devices are being filled from, or held as."""
    orders = [device.restore for device in cluster.cib.devices if device.is_restoring]
    # Also where the CIB does not know of it any more.
    orders += [state.noted_hold for state in cluster.cib.replicas.values()]
    copies = [copy for order in orders if order is not None for copy in (order.copy, order.base)]
    return frozenset(copy.token for copy in copies if copy is not None and copy.site == site)
