# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends what a copy at a second site lacks of a restore point, and has it proven equal.

What is read is the restore point's file, never the device: it does not change meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sanctl.drivers import reflink
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    chunk_digests,
    digest_of,
    read_all,
    with_updated,
)
from sanctl.errors import CommandError, Problem
from sanctl.model.copy_progress import COMPARING, SENDING, WAITING, CopyStep
from sanctl.plan.site.proof import NOT_EQUAL, ProofBasis, why_whole
from sanctl.plan.site.ranges import (
    Range,
    changed_ranges,
    chunk_ranges,
    differing_chunks,
    differing_runs,
    pieces,
    total_bytes,
    touched_chunks,
)


class Sent(NamedTuple):
    """What was sent, and found equal.

    Attributes:
        size_bytes: the size of the restore point.
        changed_bytes: how much of the copy was not as the restore point.
        digest: the digest of both.
        is_by_extents: what has changed was told by the filesystem, and that was right.
        read_bytes: how much of the restore point was read for the proof.
        why_whole: why all of it was; empty: what has changed was.
        base_error: why not all of the base could be read; empty: all that was needed could.
    """

    size_bytes: int
    changed_bytes: int
    digest: str
    is_by_extents: bool
    read_bytes: int
    why_whole: str
    base_error: str = ""


def send(
    link: SiteLink,
    point: int,
    base: int | None,
    *,
    token: str,
    base_token: str,
    base_folder: str = "",
    basis: ProofBasis,
    report: Callable[[CopyStep], None],
) -> Sent:
    """Send a restore point; return when the copy at the site is equal to it.

    Both are read as a whole, or as far as they may differ from the base (plan/site/proof.py).
    What the extents of two restore points do not tell, or told wrong, the digests of chunks do.
    Where the base cannot be read all is sent of which it would have said that it has not changed.

    Args:
        link: the connection, on which the device was opened.
        point: the restore point's open file.
        base: the open file of the restore point that the copy begins as; None: this node has none.
        token: the restore point's token.
        base_token: the token of the copy that it begins as; empty: the site has none.
        base_folder: the folder of another device that has that copy; empty: the opened one.
        basis: what is known of that copy.
        report: told how far it is.

    Raises:
        CommandError: the site reports an error or is gone, or the copy does not become equal.
        OSError: the restore point's file cannot be read.
    """
    size_bytes = os.fstat(point).st_size
    before, base_error = [], ""
    if base is not None:
        try:
            before = reflink.extents_of(base)
        except OSError as error:
            base, base_error = None, str(error)
    is_by_extents = base is not None or not base_token
    ranges: tuple[Range, ...] = ()
    if is_by_extents:
        ranges = changed_ranges(before, reflink.extents_of(point), size_bytes)
    needed = total_bytes(each for each in ranges if not each.is_zero)
    has_list = link.begin(token, base_token, size_bytes, needed, base_folder)
    changed_bytes, piece_error = _send_ranges(link, point, base, ranges, report)
    base_error = base_error or piece_error
    why = why_whole(
        basis, size_bytes, is_by_extents=is_by_extents, base_error=base_error, has_list=has_list
    )
    read_bytes = 0
    if not why:
        chunks, read_bytes = _prove_changes(link, point, ranges, basis, report)
        if chunks:
            digest = digest_of(chunks, size_bytes)
            return Sent(size_bytes, changed_bytes, digest, is_by_extents, read_bytes, "")
        why = NOT_EQUAL
    own = b""

    def wait() -> None:
        report(CopyStep(WAITING, 0, size_bytes))

    # Where the extents told nothing, or were wrong, the digests of the chunks tell what differs.
    for is_last in (False, True):
        link.ask_chunks()
        own = own or _own_chunks(point, size_bytes, report)
        wait()
        theirs = link.chunks(wait)
        if theirs == own:
            digest = digest_of(own, size_bytes)
            read_bytes += size_bytes
            return Sent(
                size_bytes, changed_bytes, digest, is_by_extents, read_bytes, why, base_error
            )
        if is_last or len(theirs) != len(own):
            break
        is_by_extents = False
        ranges = chunk_ranges(differing_chunks(own, theirs, DIGEST_BYTES), size_bytes)
        changed_bytes += _send_ranges(link, point, None, ranges, report)[0]
    raise CommandError(
        Problem(
            "SAN-SITE-009",
            "the copy at the site does not become equal to the restore point",
            "try again; if it stays so, one of the two cannot read what it has written: look at "
            "the kernel's log on both",
        )
    )


def _send_ranges(
    link: SiteLink,
    point: int,
    base: int | None,
    ranges: tuple[Range, ...],
    report: Callable[[CopyStep], None],
) -> tuple[int, str]:
    """Send ranges of a restore point, as far as they differ from the base.

    Returns:
        How much did, and why not all of the base could be read; empty: it could.
    """
    done = changed = 0
    base_error = ""
    total_length = total_bytes(each for each in ranges if not each.is_zero)
    for piece in pieces(ranges):
        length = piece.end - piece.begin
        if piece.is_zero:
            link.zero(piece.begin, length)
            changed += length
        else:
            done += length
            data = read_all(point, piece.begin, length)
            runs: Iterable[Range] = (piece,)
            if base is not None:
                try:
                    old = os.pread(base, length, piece.begin)
                except OSError as error:
                    # A block that is damaged stays so: each run would end here, for good.
                    old, base_error = b"", base_error or f"at byte {piece.begin}: {error}"
                runs = differing_runs(piece.begin, data, old)
            for run in runs:
                link.put(run.begin, data[run.begin - piece.begin : run.end - piece.begin])
                changed += run.end - run.begin
        report(CopyStep(SENDING, done, total_length))
    return changed, base_error


def _prove_changes(
    link: SiteLink,
    point: int,
    ranges: tuple[Range, ...],
    basis: ProofBasis,
    report: Callable[[CopyStep], None],
) -> tuple[bytes, int]:
    """Compare the chunks that may differ from the base, on both sides.

    For the others the restore point has the digests that the base was proven with. The site says
    which: that they are these follows from the digest of the base that the cluster has noted.

    Returns:
        The digests of all chunks, empty if the copy is not equal; and how much was read here.
    """
    size_bytes = os.fstat(point).st_size
    numbers = touched_chunks(ranges)
    length = sum(min(CHUNK_BYTES, size_bytes - number * CHUNK_BYTES) for number in numbers)

    def look(done_bytes: int) -> None:
        report(CopyStep(COMPARING, done_bytes, length))

    link.ask_chunks(only_changed=True)
    own = chunk_digests(point, size_bytes, look, numbers)
    base, theirs = link.changed_chunks(size_bytes, lambda: report(CopyStep(WAITING, 0, length)))
    is_base = basis.noted is not None and digest_of(base, size_bytes) == basis.noted.digest
    is_equal = is_base and theirs == with_updated(base, numbers, own)
    return theirs if is_equal else b"", length


def _own_chunks(point: int, size_bytes: int, report: Callable[[CopyStep], None]) -> bytes:
    def look(done_bytes: int) -> None:
        report(CopyStep(COMPARING, done_bytes, size_bytes))

    return chunk_digests(point, size_bytes, look)
