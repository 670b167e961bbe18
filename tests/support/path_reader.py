#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a ledger's blocks down one iSCSI path by SG_IO, and logs the answer to each read.

Standard library only, so that it can be copied to an initiator and run by its python3:

    path_reader.py /dev/sdX LOG BLOCKS

The reads are commands of SCSI (READ(10) by SG_IO): multipath has no part in them, nothing is
cached, and the node at the path's other end is asked whatever the host believes of that path. The
log has a line when a read is asked for and one when it has ended, so that one that hangs is seen.
What it says is held against what the ledger wrote, whose clock (CLOCK_MONOTONIC of that host) it
shares.
"""

from __future__ import annotations

import bisect
import ctypes
import fcntl
import itertools
import json
import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

BLOCK_BYTES = 4096
#: In the reason of a read that the node itself refused: its own words follow.
SENSE = "sense"
# What a block of the ledger begins with: magic, run, sequence, block
# (sanctl.lab.measure.ledger_writer).
_HEAD = struct.Struct("<8s16sQQ")
_MAGIC = b"SANLEDG1"
_INTERVAL_S = 0.1
# Longer than any request is held in the tests that use this.
_TIMEOUT_S = 180
_SENSE_BYTES = 64
# scsi/sg.h and linux/fs.h.
_SG_IO, _FROM_DEVICE, _IS_WRONG = 0x2285, -3, 0x1
_BLKSSZGET = 0x1268
_READ_10 = 0x28


class Read(NamedTuple):
    """One read, as the host saw it; the times are nanoseconds of its monotonic clock."""

    block: int
    asked_ns: int
    ended_ns: int | None  # None: it hangs
    sequence: int | None  # the write that it saw, 0 if none of the ledger's; None: it got no data
    why: str  # it got none


class _Header(ctypes.Structure):
    """struct sg_io_hdr."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("interface_id", ctypes.c_int),
        ("dxfer_direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte),
        ("mx_sb_len", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("dxfer_len", ctypes.c_uint),
        ("dxferp", ctypes.c_void_p),
        ("cmdp", ctypes.c_void_p),
        ("sbp", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte),
        ("sb_len_wr", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("resid", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    ]


def parse(text: str) -> list[Read]:
    """Read a log, which may be growing: the last read may not have ended."""
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    reads = []
    for number in range(0, len(whole), 2):
        block, asked_ns = whole[number]
        ended = whole[number + 1] if number + 1 < len(whole) else (None, None, "")
        reads.append(Read(block, asked_ns, *ended))
    return reads


def stale(reads: Iterable[Read], acknowledged: Iterable[tuple[int, int, int]]) -> list[str]:
    """Return the reads that saw less than had been acknowledged before they were asked for.

    Args:
        reads: what was read.
        acknowledged: block, sequence and time of each acknowledgement, in the order of the ledger's
            log; later writes of a block have higher sequences, and none begins before the one
            before it was acknowledged.
    """
    times: dict[int, list[int]] = {}
    sequences: dict[int, list[int]] = {}
    for block, sequence, at_ns in acknowledged:
        times.setdefault(block, []).append(at_ns)
        sequences.setdefault(block, []).append(sequence)
    found = []
    for read in reads:
        known = bisect.bisect_left(times.get(read.block, []), read.asked_ns)
        if read.sequence is None or not known:
            continue
        newest = sequences[read.block][known - 1]
        if read.sequence < newest:
            age_s = (read.asked_ns - times[read.block][known - 1]) / 1e9
            found.append(
                f"block {read.block}: write {read.sequence} was read {age_s:.3f} s after"
                f" write {newest} had been acknowledged"
            )
    return found


def _read(fd: int, block: int, sectors: int) -> tuple[int | None, str]:
    """Ask for one block; return the write that is there, or None and why nothing came."""
    words = struct.pack(">BBIBHB", _READ_10, 0, block * sectors, 0, sectors, 0)
    command = ctypes.create_string_buffer(words, len(words))
    sense = ctypes.create_string_buffer(_SENSE_BYTES)
    data = ctypes.create_string_buffer(BLOCK_BYTES)
    header = _Header(
        interface_id=ord("S"),
        dxfer_direction=_FROM_DEVICE,
        cmd_len=len(words),
        mx_sb_len=_SENSE_BYTES,
        dxfer_len=BLOCK_BYTES,
        dxferp=ctypes.addressof(data),
        cmdp=ctypes.addressof(command),
        sbp=ctypes.addressof(sense),
        timeout=_TIMEOUT_S * 1000,
    )
    try:
        fcntl.ioctl(fd, _SG_IO, header)
    except OSError as error:
        return None, f"errno {error.errno}"
    if header.info & _IS_WRONG or header.resid:
        reported = sense.raw[: header.sb_len_wr].hex()
        messages = f" {SENSE} {reported}" if reported else ""
        return None, f"status {header.status} host {header.host_status}{messages}"
    magic, _run, sequence, named_block = _HEAD.unpack_from(data.raw)
    return (sequence if magic == _MAGIC and named_block == block else 0), ""


def _lines(fd: int, blocks: int) -> Iterator[list[object]]:
    sector_bytes = struct.unpack("I", fcntl.ioctl(fd, _BLKSSZGET, bytes(4)))[0]
    for block in itertools.cycle(range(blocks)):
        yield [block, time.monotonic_ns()]
        sequence, why = _read(fd, block, BLOCK_BYTES // sector_bytes)
        yield [time.monotonic_ns(), sequence, why]
        time.sleep(_INTERVAL_S)


def main() -> None:
    """Read until killed."""
    path, log, blocks = sys.argv[1:]
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(log, "a", buffering=1, encoding="ascii") as out:
        for line in _lines(fd, int(blocks)):
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
