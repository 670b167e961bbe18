# SPDX-License-Identifier: GPL-2.0-or-later
"""The copy of one device at a second site over one connection: asked, sent, noted, or given up.

For a device alone (replicate.py) as for each one of a group (replicate_group.py), which make the
restore point before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sanctl.drivers import point_files, site_transfer
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.device import DeviceSpec
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import ProvenCopy, Site
from sanctl.ops.copy_watch import watched
from sanctl.ops.session import Session
from sanctl.ops.site_takeover import refuse_taken_over
from sanctl.plan.site.choosing import copies_in_use
from sanctl.plan.site.copying import (
    Base,
    choose_base,
    origin_of,
    plan_given_up,
    plan_proven,
    surplus_copies,
)
from sanctl.plan.site.grouping import ALONE, CopyGroup, folder_of, retained
from sanctl.plan.site.proof import ProofBasis

_NO_ROOM = "SAN-SITE-007"
_FILE_S = 30.0
_POLL_S = 0.5


class SourceNode(NamedTuple):
    """The node on which the command runs.

    Attributes:
        name: its name.
        file_of: returns the path that a restore point's file has here.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
    """

    name: str
    file_of: Callable[[RestorePoint], str]
    ipc_buffer_bytes: int


class CopyMade(NamedTuple):
    """A copy that was proven.

    Attributes:
        copy: the copy.
        base: the copy that it began as; None: it was the first.
        is_by_extents: the filesystem told what has changed; else the content was compared.
        read_bytes: how much of the restore point was read for the proof.
        why_whole: why all of it was; empty: what has changed was.
        removed: the names of older copies that were removed at the site.
        unread: the names of copies of the device whose notes the site cannot read.
        stuck: which older copies the site could not remove, and why.
        base_error: why the restore point of the base could not be read as a whole here; empty: it
            could, or was not.
    """

    copy: ProvenCopy
    base: ProvenCopy | None
    is_by_extents: bool
    removed: tuple[str, ...]
    read_bytes: int = 0
    why_whole: str = ""
    unread: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    base_error: str = ""


class CopiesThere(NamedTuple):
    """What a site has of a device.

    Attributes:
        copies: its proven copies.
        origin: the copy of another device that its first copy begins as; None: there is none.
        unread: the names of copies whose notes cannot be read. Each may be one of the newest.
    """

    copies: tuple[ProvenCopy, ...]
    origin: Base | None
    unread: tuple[str, ...]


class DeviceRun(NamedTuple):
    """The copy of one device over one connection.

    Attributes:
        session: the cluster.
        link: the connection.
        site: the site.
        device: the device.
        node: this node.
        is_whole: the copy is to be read as a whole.
    """

    session: Session
    link: SiteLink
    site: Site
    device: DeviceSpec
    node: SourceNode
    is_whole: bool = False

    def ask(self) -> CopiesThere:
        """Open the device's folder at the site; return what is there.

        Raises:
            Refused: another device goes on instead of it.
            CommandError: the site cannot be reached, or is another one.
        """
        origin = self._origin()
        copies = self.link.open(self.site.path, self.site.mark, folder_of(self.device))
        unread = self.link.unread.get(folder_of(self.device), ())
        refuse_taken_over(self.session, self.site, self.device, self.link)
        return CopiesThere(copies, origin, unread)

    def send(self, point: RestorePoint, there: CopiesThere, group: CopyGroup = ALONE) -> CopyMade:
        """Send a restore point of the opened device, and have it proven; nothing is noted yet.

        Raises:
            CommandError: a node or the site could not do its part, and says why. There is no copy.
        """
        cib = self.session.observe().cib
        points = cib.points_of(self.device.name)
        base = choose_base(there.copies, points, self.node.name) or there.origin
        after = max((each.number for each in there.copies), default=0)
        record = cib.copy(self.device.name.value, self.site.name)
        basis = ProofBasis(
            base.copy if base else None,
            record.proven if record is not None and record.uuid == self.device.uuid else None,
            self.session.clock.wall_s(),
            self.is_whole,
        )
        copy, sent, base_error = self._send(point, base, basis, group, after)
        return CopyMade(
            copy,
            basis.base,
            sent.is_by_extents,
            (),
            sent.read_bytes,
            sent.why_whole,
            there.unread,
            base_error=base_error,
        )

    def note(self, made: CopyMade, there: CopiesThere, keep: int | None) -> CopyMade:
        """Note a copy that was proven, remove those that are not kept; return it with these.

        Where a note cannot be read nothing is removed: it is not known which are the newest.
        """
        copy = made.copy
        self.session.change(lambda seen: plan_proven(seen, self.device, self.site, copy))
        if keep is None or there.unread:
            return made
        removed, stuck = self._remove_surplus((*there.copies, copy), keep, copy.token)
        return made._replace(removed=(*made.removed, *removed), stuck=stuck)

    def make_room(self, there: CopiesThere, keep: int) -> tuple[str, ...]:
        """Remove what is not kept of a device before a copy of it; return the names.

        Where the site is full the copy could never be proven, after which they go else. The one
        that it is to begin as stays.

        Raises:
            CommandError: the site cannot be reached.
        """
        copies = self.link.open(self.site.path, self.site.mark, folder_of(self.device))
        if there.unread or self.link.unread:
            return ()
        points = self.session.observe().cib.points_of(self.device.name)
        base = choose_base(there.copies, points, self.node.name)
        return self._remove_surplus(copies, keep, base.copy.token if base else "")[0]

    def _remove_surplus(
        self, copies: Sequence[ProvenCopy], keep: int, latest: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Have the site remove copies of the opened device; return which, and which it could not.

        `latest` stays, and what devices are filled from; of a group also its newest moments.
        """
        stay = copies_in_use(self.session.observe(), self.site.name)
        if any(each.group for each in copies):
            folders = self.link.folders(self.site.path, self.site.mark)
            stay |= retained(folder_of(self.device), folders, keep)
        surplus = surplus_copies(copies, keep, stay, latest)
        return (self.link.remove(surplus), self.link.stuck) if surplus else ((), ())

    def _origin(self) -> Base | None:
        """Return the copy that the device was made from, if the site has it."""
        origin = origin_of(self.device, self.site.name)
        if origin is None:
            return None
        copies = self.link.open(self.site.path, self.site.mark, origin.folder)
        found = (each for each in copies if each.token == origin.token)
        return next((Base(each, None, origin.folder) for each in found), None)

    def _send(
        self,
        point: RestorePoint,
        base: Base | None,
        basis: ProofBasis,
        group: CopyGroup,
        after: int,
    ) -> tuple[ProvenCopy, site_transfer.Sent, str]:
        session, link, node = self.session, self.link, self.node
        if node.name not in point.nodes:
            raise CommandError(
                Problem(
                    "SAN-SITE-011",
                    f"the replica on this node was not in sync when restore point {point.name} was "
                    f"made: it is on {', '.join(point.nodes)} alone",
                    "try again when it is",
                )
            )
        try:
            with contextlib.ExitStack() as files:
                handle = _opened(session, node.file_of(point), point.size_bytes)
                files.callback(os.close, handle)
                base_handle, base_error = None, ""
                if base is not None and base.point is not None:
                    path = node.file_of(base.point)
                    base_handle, base_error = _base_file(session, path, base.point)
                if base_handle is not None:
                    files.callback(os.close, base_handle)
                copied = f"{self.device.name}.{self.site.name}"
                look = files.enter_context(
                    watched(session, node.name, copied, point.token, link.limit_bytes_s)
                )
                sent = site_transfer.send(
                    link,
                    handle,
                    base_handle,
                    token=point.token,
                    base_token=base.copy.token if base else "",
                    base_folder=base.folder if base else "",
                    basis=basis,
                    report=look,
                )
        except OSError as error:
            raise CommandError(
                Problem(
                    "SAN-SITE-014", f"{node.name} cannot read restore point {point.name}: {error}"
                )
            ) from error
        copy = ProvenCopy(
            name=point.name,
            token=point.token,
            made_s=point.made_s,
            proven_s=int(session.clock.wall_s()),
            size_bytes=sent.size_bytes,
            changed_bytes=sent.changed_bytes,
            sent_bytes=link.sent_bytes,
            digest=sent.digest,
            group=group.folders,
            left=group.left,
            after=after,
            read_s=0 if sent.why_whole or base is None else base.copy.read_whole_s,
        )
        return link.prove(copy), sent, base_error or sent.base_error


def send_patiently(
    run: DeviceRun,
    point: RestorePoint,
    there: CopiesThere,
    *,
    keep: int | None,
    connect: Callable[[], SiteLink],
    group: CopyGroup = ALONE,
) -> tuple[DeviceRun, CopyMade]:
    """Send a restore point as `DeviceRun.send`; where the site is full, once more after removals.

    Args:
        run: the copy of the device.
        point: its restore point.
        there: what the site had of the device.
        keep: how many copies it keeps; None: all, and nothing is removed.
        connect: makes another connection to the site: one ends with what it has refused.
        group: the group that the copy is of.

    Returns:
        The run by the connection that is open still, and the copy.

    Raises:
        CommandError: there is no copy.
    """
    try:
        return run, run.send(point, there, group)
    except CommandError as error:
        if keep is None or all(each.code != _NO_ROOM for each in error.problems):
            raise
        again = run._replace(link=connect())
        removed = again.make_room(there, keep)
        if not removed:
            raise
    made = again.send(point, there, group)
    return again, made._replace(removed=removed)


def give_up(session: Session, device: DeviceSpec, site: Site, token: str) -> None:
    """Remove the restore point of a run that failed; what cannot be done the next run does."""
    with contextlib.suppress(SanctlError, OSError):
        session.change(lambda seen: plan_given_up(seen, device, site.name, token))


def _opened(session: Session, path: str, size_bytes: int) -> int:
    """Open a restore point's file, which may still have its first name, and has all of its end."""
    deadline = session.clock.monotonic_s() + _FILE_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            return point_files.open_whole(path, size_bytes)
        if session.clock.monotonic_s() > deadline:
            raise CommandError(Problem("SAN-SITE-014", f"{path}: there is no such file"))
        session.clock.sleep(_POLL_S)


def _base_file(session: Session, path: str, point: RestorePoint) -> tuple[int | None, str]:
    """Open the file of the restore point that a copy was made of; None: that is not possible here.

    With why not, unless the file is gone; so it is where the end of the file is missing. Then the
    contents are compared, as where the CIB knows of no such restore point, and all is proven.
    """
    try:
        return point_files.open_whole(path, point.size_bytes), ""
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        why = "is gone here" if is_gone else f"cannot be opened ({error})"
        session.reporter.update(
            f"the file of restore point {point.name} {why}: contents are compared"
        )
        return None, "" if is_gone else str(error)
