#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends a host's offloads to a disk in a loop, and compares the disk with what was acknowledged.

Standard library only, so that it can be piped into a host's python3:

    python3 - DISK NAA STOP_FILE

COMPARE AND WRITE counts a block up, EXTENDED COPY (LID1, SPC-4) copies a range within the disk,
WRITE SAME writes zeros, UNMAP deallocates. The outcome of a command without GOOD is unknown: the
counter is read then, all other commands are sent again until they are GOOD. Ends when STOP_FILE is
there, and prints one line of JSON.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import sys
import time

BLOCK_BYTES = 512
SLOTS, SLOT_BYTES = 32, 256 << 10
#: Where each slot's source, its copy, its zeros and its deallocated range begin, in bytes.
SOURCES, COPIES, ZEROS, HOLES = (mib << 20 for mib in (16, 32, 48, 64))
#: Not one command may take longer; hosts give up after 30 s by default (sd's timeout).
COMMAND_MS, DEADLINE_S = 60_000, 300.0

_SG_IO, _INTERFACE = 0x2285, ord("S")
_TO_DEVICE, _NOTHING = -2, -1
_MISCOMPARE = 0x0E


class _Request(ctypes.Structure):
    """struct sg_io_hdr of scsi/sg.h."""

    _fields_ = (
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
    )


class Disk:
    """A disk by its block device: reads and writes past the page cache, and SCSI commands."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_DIRECT)
        self._memory = mmap.mmap(-1, SLOT_BYTES)

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, at most a slot."""
        assert os.preadv(self._handle, [memoryview(self._memory)[:size]], offset) == size
        return self._memory[:size]

    def write(self, offset: int, data: bytes) -> None:
        """Write at most a slot."""
        self._memory[: len(data)] = data
        view = memoryview(self._memory)[: len(data)]
        assert os.pwritev(self._handle, [view], offset) == len(data)

    def command(self, cdb: bytes, data: bytes) -> str:
        """Send a SCSI command and return `good`, `miscompare`, or what it ended with."""
        out = ctypes.create_string_buffer(data, max(len(data), 1))
        block, sense = ctypes.create_string_buffer(cdb, len(cdb)), ctypes.create_string_buffer(64)
        request = _Request(
            interface_id=_INTERFACE,
            dxfer_direction=_TO_DEVICE if data else _NOTHING,
            cmd_len=len(cdb),
            mx_sb_len=len(sense),
            dxfer_len=len(data),
            dxferp=ctypes.addressof(out),
            cmdp=ctypes.addressof(block),
            sbp=ctypes.addressof(sense),
            timeout=COMMAND_MS,
        )
        try:
            fcntl.ioctl(self._handle, _SG_IO, request)
        except OSError as error:
            return error.strerror or "error"
        if not (request.status or request.host_status or request.driver_status & 0x07):
            return "good"
        # Fixed format (70h, 71h): key, ASC and ASCQ; descriptor format (72h, 73h).
        raw = sense.raw
        found = raw[2] & 15, raw[12], raw[13]
        if raw[0] & 0x7F in {0x72, 0x73}:
            found = raw[1] & 15, raw[2], raw[3]
        if found[0] == _MISCOMPARE:
            return "miscompare"
        codes = "/".join(f"{each:02x}" for each in found)
        return f"status {request.status} host {request.host_status} sense {codes}"


def compare_and_write(block: int, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """COMPARE AND WRITE (SBC-3) of one block."""
    return bytes([0x89, 0]) + block.to_bytes(8, "big") + bytes([0, 0, 0, 1, 0, 0]), old + new


def write_same_zeros(offset: int, size: int) -> tuple[bytes, bytes]:
    """WRITE SAME (16) of zeros, which are allocated."""
    where = (offset // BLOCK_BYTES).to_bytes(8, "big") + (size // BLOCK_BYTES).to_bytes(4, "big")
    return bytes([0x93, 0]) + where + bytes(2), bytes(BLOCK_BYTES)


def unmap(offset: int, size: int) -> tuple[bytes, bytes]:
    """UNMAP of one range."""
    where = (offset // BLOCK_BYTES).to_bytes(8, "big") + (size // BLOCK_BYTES).to_bytes(4, "big")
    data = bytes([0, 22, 0, 16, 0, 0, 0, 0]) + where + bytes(4)
    return bytes([0x42, 0, 0, 0, 0, 0, 0, 0, len(data), 0]), data


def extended_copy(naa: bytes, source: int, target: int, size: int) -> tuple[bytes, bytes]:
    """EXTENDED COPY (LID1) of a range to another one of the disk with this NAA designator."""
    disk = (
        bytes([0xE4, 0, 0, 0, 1, 3, 0, len(naa)])
        + naa.ljust(20, b"\0")
        + bytes([0])
        + BLOCK_BYTES.to_bytes(3, "big")
    )
    segment = (
        bytes([0x02, 0])
        + (24).to_bytes(2, "big")
        + bytes([0, 0, 0, 1, 0, 0])
        + (size // BLOCK_BYTES).to_bytes(2, "big")
        + (source // BLOCK_BYTES).to_bytes(8, "big")
        + (target // BLOCK_BYTES).to_bytes(8, "big")
    )
    # No list identifier: the outcome comes with the command.
    head = bytes([0, 0x18]) + (2 * len(disk)).to_bytes(2, "big") + bytes(4)
    data = head + len(segment).to_bytes(4, "big") + bytes(4) + 2 * disk + segment
    return bytes([0x83, 0]) + bytes(8) + len(data).to_bytes(4, "big") + bytes(2), data


def until_good(disk: Disk, request: tuple[bytes, bytes], again: dict[str, int]) -> None:
    """Send a command until it is GOOD; a read in between lets dm-multipath find the path."""
    ends = time.monotonic() + DEADLINE_S
    while (outcome := disk.command(*request)) != "good":
        if time.monotonic() > ends:
            raise TimeoutError(f"never good: {request[0].hex()}: {outcome}")
        again[outcome] = again.get(outcome, 0) + 1
        disk.read(0, BLOCK_BYTES)
        time.sleep(0.05)


def counted(value: int) -> bytes:
    """Return the counter's block."""
    return value.to_bytes(8, "big").ljust(BLOCK_BYTES, b"\0")


def main(path: str, naa: str, stop_file: str) -> None:
    disk, designator = Disk(path), bytes.fromhex(naa)
    disk.write(0, counted(0))
    counter = acknowledged = unknown = rounds = 0
    again: dict[str, int] = {}
    wrong: list[str] = []
    written: dict[int, bytes] = {}
    longest_s = 0.0
    while not os.path.exists(stop_file):
        began = time.monotonic()
        outcome = disk.command(*compare_and_write(0, counted(counter), counted(counter + 1)))
        if outcome == "good":
            acknowledged, counter = acknowledged + 1, counter + 1
        else:
            again[outcome] = again.get(outcome, 0) + 1
            unknown += outcome != "miscompare"
            found = int.from_bytes(disk.read(0, BLOCK_BYTES)[:8], "big")
            if outcome == "miscompare" or found not in {counter, counter + 1}:
                wrong.append(f"counter {counter}: {outcome}, found {found}")
            counter = found
        slot = rounds % SLOTS
        at = slot * SLOT_BYTES
        written[slot] = os.urandom(SLOT_BYTES)
        disk.write(SOURCES + at, written[slot])
        disk.write(ZEROS + at, written[slot])
        until_good(disk, extended_copy(designator, SOURCES + at, COPIES + at, SLOT_BYTES), again)
        until_good(disk, write_same_zeros(ZEROS + at, SLOT_BYTES), again)
        until_good(disk, unmap(HOLES + at, SLOT_BYTES), again)
        if disk.read(COPIES + at, SLOT_BYTES) != written[slot]:
            wrong.append(f"copy of slot {slot} in round {rounds}")
        if any(disk.read(ZEROS + at, SLOT_BYTES)):
            wrong.append(f"zeros of slot {slot} in round {rounds}")
        rounds += 1
        longest_s = max(longest_s, time.monotonic() - began)
    for slot, data in written.items():
        at = slot * SLOT_BYTES
        for name, offset, wanted in (
            ("source", SOURCES, data), ("copy", COPIES, data), ("zeros", ZEROS, bytes(SLOT_BYTES)),
        ):  # fmt: skip
            if disk.read(offset + at, SLOT_BYTES) != wanted:
                wrong.append(f"{name} of slot {slot} at the end")
    print(
        json.dumps(
            {
                "rounds": rounds,
                "counter": int.from_bytes(disk.read(0, BLOCK_BYTES)[:8], "big"),
                "acknowledged": acknowledged,
                "unknown": unknown,
                "again": again,
                "longest_s": round(longest_s, 1),
                "wrong": wrong,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
