# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy is proven by what has changed, and read as a whole once a day: what each finds out.

The real receiver, on this machine; the restore points' files are made by the tests.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from sanctl.cli.views.site import copy_state, utc
from sanctl.drivers import reflink
from sanctl.errors import CommandError
from sanctl.model.cib_change import SetCopy
from sanctl.model.site import CopyRecord, ProvenCopy
from sanctl.ops.copy_run import CopyMade
from sanctl.ops.site import remove_site
from sanctl.plan.site.proof import (
    DUE,
    FIRST,
    NO_BASE_HERE,
    NO_LIST,
    NOT_EQUAL,
    NOT_NOTED,
    RESIZED,
    WANTED,
    WHOLE_AFTER_S,
)
from tests.fakes.pacemaker import FakeClock
from tests.unit.ops.test_replicate import BLOCK, SIZE, Sites, noted, sites

__all__ = ["sites"]

MIB = 1 << 20


def file_at_site(sites: Sites, made: CopyMade, suffix: str = "") -> Path:
    (file,) = sites.folder.glob(f"*/{made.copy.name}.{made.copy.token}{suffix}")
    return file


def content_of(sites: Sites, made: CopyMade) -> bytes:
    return file_at_site(sites, made).read_bytes()


def begin(sites: Sites) -> CopyMade:
    """Make the first copy, all of which is written."""
    sites.change(0, SIZE)
    made = sites.run()
    assert (made.why_whole, made.read_bytes, made.copy.read_s) == (FIRST, SIZE, 0)
    return made


def spoil(path: Path, at: int) -> None:
    """Change a byte of a file that nobody writes any more, as a disk that rots."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_what_has_changed_proves_the_next_copies(sites: Sites) -> None:
    first = begin(sites)
    sites.change(MIB - BLOCK, 2 * BLOCK)
    second = sites.run()
    assert (second.why_whole, second.read_bytes) == ("", 2 * MIB)
    sites.content[2 * MIB : SIZE] = bytes(MIB)
    third = sites.run()
    assert (third.why_whole, third.read_bytes) == ("", MIB)
    fourth = sites.run()
    assert (fourth.why_whole, fourth.read_bytes, fourth.copy.changed_bytes) == ("", 0, 0)
    for made in (third, fourth):
        assert content_of(sites, made) == sites.content
    # Each goes back to the first one, which was read as a whole, here and in the CIB.
    for made in (second, third, fourth):
        assert made.copy.read_s == made.copy.read_whole_s == first.copy.proven_s
    assert sites.proven() == noted(fourth) and noted(fourth).read_s == first.copy.proven_s
    # What is proven whole has the same digest.
    whole = sites.run(is_whole=True)
    assert whole.copy.digest == fourth.copy.digest and whole.why_whole == WANTED
    assert (whole.copy.read_s, whole.read_bytes) == (0, SIZE)
    assert sites.proven() == noted(whole)


def test_it_is_read_as_a_whole_once_a_day(sites: Sites) -> None:
    clock = sites.bed.session.clock
    assert isinstance(clock, FakeClock)
    first = begin(sites)
    clock.now += WHOLE_AFTER_S / 2
    second = sites.run()
    assert not second.why_whole and second.copy.read_whole_s == first.copy.proven_s
    clock.now += WHOLE_AFTER_S / 2
    third = sites.run()
    assert third.why_whole == DUE and third.copy.read_whole_s == third.copy.proven_s
    clock.now += 60
    fourth = sites.run()
    assert not fourth.why_whole
    (record,) = sites.bed.seen().cib.copies
    shown = copy_state(sites.bed.seen(), record, clock.now, None)["copy"]
    assert shown is not None and shown["read_whole"] == utc(third.copy.proven_s)
    assert shown["proven"] == utc(fourth.copy.proven_s) > shown["read_whole"]


def test_what_has_rotted_at_the_site_is_found_by_the_whole_reading(sites: Sites) -> None:
    first = begin(sites)
    spoil(file_at_site(sites, first), 2 * MIB + 5)
    sites.change(0)
    quick = sites.run()
    assert not quick.why_whole
    assert content_of(sites, quick) != sites.content, "it is not seen: nobody has read it"
    whole = sites.run(is_whole=True)
    assert content_of(sites, whole) == sites.content
    assert whole.copy.changed_bytes == MIB, "the chunk was sent anew"


def test_extents_that_tell_wrong_are_found_by_the_whole_reading(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(sites)
    sites.change(2 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(reflink, "extents_of", lambda _handle: [])
        assert not sites.run().why_whole
    made = sites.run(is_whole=True)
    assert not made.is_by_extents and content_of(sites, made) == sites.content


WRONG_ONCE = b"""
_write, _wrong = write_all, []
def write_all(handle, data, at):
    if len(data) == %d and not _wrong:
        _wrong.append(at)
        data = bytes([data[0] ^ 1]) + data[1:]
    _write(handle, data, at)
"""


def test_a_chunk_that_came_wrong_is_found_at_once(sites: Sites) -> None:
    """By its digest; the whole reading then sends it anew, in the same run."""
    begin(sites)
    sites.change(0)
    sites.more = WRONG_ONCE % BLOCK
    made = sites.run()
    assert made.why_whole == NOT_EQUAL and made.read_bytes == MIB + SIZE
    assert content_of(sites, made) == sites.content and made.copy.read_s == 0


def test_a_list_that_the_cluster_does_not_know_proves_nothing(sites: Sites) -> None:
    first = begin(sites)
    spoil(file_at_site(sites, first), 2 * MIB + 5)
    sites.more = b"def chunks_of(folder, copy):\n    return b'f' * 96\n"
    sites.change(0)
    made = sites.run()
    assert made.why_whole == NOT_EQUAL and content_of(sites, made) == sites.content
    sites.more = b""
    # Nor one that is not of the digest that the site has noted, nor that of another copy.
    note = file_at_site(sites, made, ".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "digest": "e" * 64}))
    assert sites.run().why_whole == NO_LIST
    record = CopyRecord.parse("sanctl-copy.web.far", sites.bed.seen().cib.copies[0].value)
    assert record is not None and record.proven is not None
    other = record._replace(proven=record.proven._replace(digest="e" * 64))
    sites.bed.session.change(lambda _: (SetCopy(record=other),))
    assert sites.run().why_whole == NOT_NOTED


def test_without_the_list_or_the_base_or_with_another_size(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(sites)
    file_at_site(sites, first, ".chunks").unlink()
    sites.change(0)
    second = sites.run()
    assert second.why_whole == NO_LIST and not sites.run().why_whole, "it has a list again"
    # A part of the base cannot be read here: the disk may be failing.
    last = sites.run()
    inode = os.stat(sites.pool / last.copy.token).st_ino
    real = os.pread

    def pread(handle: int, length: int, at: int) -> bytes:
        if os.fstat(handle).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return real(handle, length, at)

    sites.change(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        made = sites.run()
    assert made.why_whole == NO_BASE_HERE and made.base_error
    sites.content += os.urandom(MIB + BLOCK)
    sites.bed.cluster.point_bytes = len(sites.content)
    grown = sites.run()
    assert grown.why_whole == RESIZED and content_of(sites, grown) == sites.content
    sites.change(len(sites.content) - BLOCK)
    made = sites.run()
    assert (made.why_whole, made.read_bytes) == ("", BLOCK), "the last chunk is a part of one"
    assert content_of(sites, made) == sites.content


def test_a_copy_whose_answer_was_lost_is_read_as_a_whole_or_not_the_base(sites: Sites) -> None:
    begin(sites)
    sites.change(0)
    sites.more = b"_rename = os.rename\ndef _gone(a, b):\n    _rename(a, b)\n"
    sites.more += b"    if a.endswith('.partial'): os._exit(9)\nos.rename = _gone\n"
    with pytest.raises(CommandError, match="SAN-SITE-005"):
        sites.run()
    sites.more = b""
    sites.change(BLOCK)
    made = sites.run()
    assert made.base is not None and made.base.name == "to-far-1" and not made.why_whole
    assert content_of(sites, made) == sites.content


def test_when_it_was_read_goes_with_the_record_and_counts_for_its_copy_alone(sites: Sites) -> None:
    begin(sites)
    sites.change(0)
    quick = sites.run()
    (record,) = sites.bed.seen().cib.copies
    assert record.read_value == f"{quick.copy.token} {quick.copy.read_s}"
    bare = CopyRecord.parse(record.id, record.value)
    assert bare is not None and bare.proven == noted(quick)._replace(read_s=0), "as before"
    assert CopyRecord.parse(record.read_id, record.read_value) is None
    assert bare.with_read(record.read_value) == record
    for value in ("", "x", f"{'f' * 16} 5", f"{quick.copy.token} x"):
        assert bare.with_read(value) == bare
    empty = CopyRecord("web", "far", "d" * 32, "", None)
    assert empty.with_read(f"{quick.copy.token} 5") == empty and empty.read_value == ""
    # Another one that was read as a whole leaves what was noted of this one.
    whole = sites.run(is_whole=True)
    assert sites.proven() == noted(whole) and sites.proven() != quick.copy
    assert record.read_id in sites.bed.seen().cib.ids
    remove_site(sites.bed.session, "far")
    assert record.read_id not in sites.bed.seen().cib.ids
    assert ProvenCopy(*whole.copy).read_whole_s == whole.copy.proven_s
