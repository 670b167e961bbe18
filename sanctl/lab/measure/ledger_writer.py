#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The ledger: writes numbered blocks, logs each acknowledgement, checks the blocks afterwards.

One file, standard library only, so that it can be copied to an initiator and run by its python3:

    ledger_writer.py write --device /dev/mapper/X --log FILE --seconds 60
    ledger_writer.py check --device /dev/mapper/X --log FILE
    ledger_writer.py watch --log FILE

Before a write is issued its intent goes to the log, after it is acknowledged the acknowledgement
does. For each block the checker therefore knows the only values it may hold: the last one
acknowledged, or a later one that was issued and never answered. The log lies on the initiator's
own disk and is not synced: the faults it is meant for hit the storage, the initiator survives them.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import mmap
import os
import random
import signal
import stat
import struct
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from types import FrameType
from typing import NamedTuple

BLOCK_BYTES = 4096
_MAGIC = b"SANLEDG1"
# magic, run id, sequence, block, crc32 of the whole block with this field zero.
_BLOCK_HEAD = struct.Struct("<8s16sQQI4x")
_LOG_HEAD_BYTES = 512
# kind, writer, errno, block, sequence, monotonic ns, wall ns: 32 bytes, never split by an append.
_RECORD = struct.Struct("<BBHIQqq")
_FIRST_RETRY_S, _LAST_RETRY_S = 0.05, 0.5
_WATCH_INTERVAL_S = 0.5


class RecordKind(IntEnum):
    """The kind of a record in the log."""

    INTENT = 1
    ACK = 2
    ERROR = 3


class Record(NamedTuple):
    """One line of the log."""

    kind: RecordKind
    writer: int
    errno: int
    block: int
    sequence: int
    mono_ns: int
    wall_ns: int


class BlockVerdict(StrEnum):
    """The checker's verdict on one block."""

    OK = "ok"
    LOST = "lost"  # no ledger block is there, though a write was acknowledged
    STALE = "stale"  # an older value came back
    TORN = "torn"  # part of one value and part of another
    MISPLACED = "misplaced"  # a good value of another block, or one never issued for this block
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class BlockHistory:
    """The sequence numbers that one block may hold."""

    acked: int | None = None
    pending: set[int] = field(default_factory=set)
    issued: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """The first 512 bytes of a log: the parameters of the run."""

    run_id: str
    device: str
    seed: int
    start_bytes: int
    blocks: int
    rate: float
    depth: int
    started_wall_ns: int

    def encode(self) -> bytes:
        """Return the head as one JSON line, padded to its fixed size."""
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})
        line = text.encode().ljust(_LOG_HEAD_BYTES - 1) + b"\n"
        if len(line) != _LOG_HEAD_BYTES:
            raise ValueError(f"the log's head does not fit {_LOG_HEAD_BYTES} bytes: {text}")
        return line

    @classmethod
    def decode(cls, data: bytes) -> LogHead:
        """Parse the head of a log.

        Raises:
            ValueError: it is not one.
        """
        try:
            return cls(**json.loads(data[:_LOG_HEAD_BYTES]))
        except (TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a ledger log: {error}") from error


def encode_block(run_id: str, sequence: int, block: int) -> bytes:
    """Return the 4096 bytes of one write: head, then its sequence number in every 8 bytes.

    The repetition makes every sector differ from the one an earlier write left there, so a block
    put together from two writes cannot keep a right checksum.
    """
    run = uuid.UUID(run_id).bytes
    body = struct.pack("<Q", sequence) * ((BLOCK_BYTES - _BLOCK_HEAD.size) // 8)
    bare = _BLOCK_HEAD.pack(_MAGIC, run, sequence, block, 0) + body
    return _BLOCK_HEAD.pack(_MAGIC, run, sequence, block, zlib.crc32(bare)) + body


def judge_block(data: bytes, run_id: str, block: int, history: BlockHistory) -> BlockVerdict:
    """Compare the contents of a block with the writes it may hold."""
    magic, run, sequence, told_block, crc = _BLOCK_HEAD.unpack_from(data)
    if magic != _MAGIC:
        if any(data):
            # Only the ledger writes here: neither zeros nor a ledger block is part of a write.
            return BlockVerdict.TORN
        return BlockVerdict.OK if history.acked is None else BlockVerdict.LOST
    bare = _BLOCK_HEAD.pack(magic, run, sequence, told_block, 0) + data[_BLOCK_HEAD.size :]
    if zlib.crc32(bare) != crc:
        return BlockVerdict.TORN
    if told_block != block:
        return BlockVerdict.MISPLACED
    if run != uuid.UUID(run_id).bytes:  # left by an earlier run
        return BlockVerdict.OK if history.acked is None else BlockVerdict.STALE
    if sequence == history.acked or sequence in history.pending:
        return BlockVerdict.OK
    return BlockVerdict.STALE if sequence in history.issued else BlockVerdict.MISPLACED


def read_log(path: Path) -> tuple[LogHead, list[Record]]:
    """Read a whole log; a record cut short by a crash of the writer is left out."""
    with path.open("rb") as log:
        head = LogHead.decode(log.read(_LOG_HEAD_BYTES))
        body = log.read()
    whole = len(body) - len(body) % _RECORD.size
    return head, [
        Record(RecordKind(fields[0]), *fields[1:]) for fields in _RECORD.iter_unpack(body[:whole])
    ]


def build_histories(records: Sequence[Record]) -> dict[int, BlockHistory]:
    """Return the writes that each touched block may hold.

    A block has one writer, which issues nothing more for it until the write before was
    acknowledged (errors are retried with the same value). So an acknowledgement settles all
    earlier values, and what is pending was issued after it.
    """
    histories: dict[int, BlockHistory] = {}
    for record in records:
        history = histories.setdefault(record.block, BlockHistory())
        if record.kind is RecordKind.INTENT:
            history.issued.add(record.sequence)
            history.pending.add(record.sequence)
        elif record.kind is RecordKind.ACK:
            history.acked = record.sequence
            history.pending.clear()
    return histories


def open_device(path: str, *, write: bool, buffered: bool, synced: bool = True) -> int:
    """Open the device so that an acknowledgement means as much as it does to a database.

    O_DIRECT: no page cache of the initiator between the write and the device. O_DSYNC: the write
    is acknowledged when it is stable, because the kernel sends FUA or a cache flush with it as the
    device's write cache flag demands. Without it, a write lost from a volatile cache would not be
    a broken promise, and the check would prove less. `buffered` is for files on tmpfs, in tests.

    `synced=False` is for a device in write-back that loses one of two nodes: no acknowledged write
    may be lost then, flushed or not, and flushes would leave nothing dirty.
    """
    flags = os.O_RDWR if write else os.O_RDONLY
    if not buffered:
        flags |= os.O_DIRECT
    if synced:
        flags |= os.O_DSYNC
    return os.open(path, flags | os.O_CLOEXEC)


def device_bytes(fd: int) -> int:
    """Return the size of an open block device or file."""
    return os.lseek(fd, 0, os.SEEK_END)


def blocks_of_writer(index: int, depth: int, blocks: int) -> range:
    """Return the blocks that one of `depth` writers writes: each block has exactly one writer.

    Two writers of one block would leave the checker without an order of their writes.
    """
    return range(index, blocks, depth)


class Writer:
    """Writes from `depth` threads, each to blocks of its own, until `stopping` is set."""

    def __init__(self, head: LogHead, device_fd: int, log_fd: int) -> None:
        self._head = head
        self._device_fd = device_fd
        self._log_fd = log_fd
        self._sequence = itertools.count(1)
        self.stopping = threading.Event()

    def run(self, seconds: float) -> None:
        """Write for `seconds` (0: until stopped); returns when the last write has ended."""
        threads = [
            threading.Thread(target=self._run_one, args=(index,), name=f"writer-{index}")
            for index in range(self._head.depth)
        ]
        for thread in threads:
            thread.start()
        self.stopping.wait(seconds or None)
        self.stopping.set()
        for thread in threads:
            thread.join()

    def _run_one(self, index: int) -> None:
        head = self._head
        # Addresses that can be repeated from the seed, not secrets.
        choose = random.Random(f"{head.seed}/{index}")  # noqa: S311
        own_blocks = blocks_of_writer(index, head.depth, head.blocks)
        # An anonymous mapping is page-aligned, as O_DIRECT demands of the buffer.
        buffer = mmap.mmap(-1, BLOCK_BYTES)
        interval_s = head.depth / head.rate if head.rate else 0.0
        due_s = time.monotonic() + interval_s * index / head.depth
        while not self.stopping.is_set():
            block = choose.choice(own_blocks)
            sequence = next(self._sequence)
            buffer[:] = encode_block(head.run_id, sequence, block)
            self._write_one(buffer, index, block, sequence)
            # After a pause go on at the steady rate; a burst to catch up would hide the pause.
            due_s = max(due_s + interval_s, time.monotonic() - interval_s)
            self.stopping.wait(max(0.0, due_s - time.monotonic()))

    def _write_one(self, buffer: mmap.mmap, index: int, block: int, sequence: int) -> None:
        at = self._head.start_bytes + block * BLOCK_BYTES
        retry_s = _FIRST_RETRY_S
        while True:
            self._log(RecordKind.INTENT, index, 0, block, sequence)
            try:
                written = os.pwrite(self._device_fd, buffer, at)
                if written != BLOCK_BYTES:
                    raise OSError(errno.EIO, f"short write of {written} bytes")
            except OSError as error:
                self._log(RecordKind.ERROR, index, error.errno or errno.EIO, block, sequence)
                if self.stopping.wait(retry_s):
                    return
                retry_s = min(retry_s * 2, _LAST_RETRY_S)
            else:
                self._log(RecordKind.ACK, index, 0, block, sequence)
                return

    def _log(self, kind: RecordKind, index: int, number: int, block: int, sequence: int) -> None:
        now = (time.monotonic_ns(), time.time_ns())
        os.write(self._log_fd, _RECORD.pack(kind, index, number, block, sequence, *now))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of reading every touched block back."""

    run_id: str
    issued: int
    acknowledged: int
    unanswered: int
    errors: int
    blocks_checked: int
    verdicts: dict[str, int]
    findings: tuple[str, ...]

    @property
    def lost(self) -> int:
        """The number of blocks with any verdict but `ok`."""
        return sum(count for name, count in self.verdicts.items() if name != BlockVerdict.OK)

    def to_json(self) -> str:
        """Return the result as one JSON line."""
        return json.dumps({**{n: getattr(self, n) for n in self.__slots__}, "lost": self.lost})


def check(device_fd: int, head: LogHead, records: Sequence[Record]) -> CheckResult:
    """Read every touched block back and judge it."""
    verdicts: dict[str, int] = dict.fromkeys(map(str, BlockVerdict), 0)
    findings: list[str] = []
    histories = build_histories(records)
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    for block in sorted(histories):
        history = histories[block]
        try:
            got = os.preadv(device_fd, [buffer], head.start_bytes + block * BLOCK_BYTES)
            if got == BLOCK_BYTES:
                verdict = judge_block(buffer[:], head.run_id, block, history)
            else:
                verdict = BlockVerdict.UNREADABLE
        except OSError:
            verdict = BlockVerdict.UNREADABLE
        verdicts[verdict] += 1
        if verdict is not BlockVerdict.OK:
            findings.append(
                f"block {block}: {verdict}; last acknowledged {history.acked}, later unanswered "
                f"{sorted(history.pending)}, holds {_describe(buffer[:])}"
            )
    count = {kind: sum(record.kind is kind for record in records) for kind in RecordKind}
    issued = {record.sequence for record in records if record.kind is RecordKind.INTENT}
    return CheckResult(
        run_id=head.run_id,
        issued=len(issued),
        acknowledged=count[RecordKind.ACK],
        unanswered=len(issued) - count[RecordKind.ACK],
        errors=count[RecordKind.ERROR],
        blocks_checked=len(histories),
        verdicts=verdicts,
        findings=tuple(findings[:50]),
    )


def _describe(data: bytes) -> str:
    magic, run, sequence, block, _crc = _BLOCK_HEAD.unpack_from(data)
    if magic != _MAGIC:
        return "zeros" if not any(data) else f"foreign bytes {data[:16].hex()}"
    return f"run {uuid.UUID(bytes=run).hex[:8]} sequence {sequence} block {block}"


def follow(log_fd: int) -> Iterator[dict[str, float | int]]:
    """Yield the state of a running ledger about twice a second."""
    os.lseek(log_fd, _LOG_HEAD_BYTES, os.SEEK_SET)
    acked = errors = 0
    last_ack_ns = time.time_ns()
    rest = b""
    while True:
        before = acked
        while data := os.read(log_fd, 1 << 20):
            data = rest + data
            rest = data[len(data) - len(data) % _RECORD.size :]
            for fields in _RECORD.iter_unpack(data[: len(data) - len(rest)]):
                acked += fields[0] == RecordKind.ACK
                errors += fields[0] == RecordKind.ERROR
                last_ack_ns = fields[6] if fields[0] == RecordKind.ACK else last_ack_ns
        yield {
            "acked": acked,
            "errors": errors,
            "rate": round((acked - before) / _WATCH_INTERVAL_S),
            "silent_s": round(max(0.0, (time.time_ns() - last_ack_ns) / 1e9), 1),
        }
        time.sleep(_WATCH_INTERVAL_S)


def _command_write(args: argparse.Namespace) -> int:
    device_fd = open_device(
        args.device, write=True, buffered=args.buffered, synced=not args.unsynced
    )
    if not args.buffered and not stat.S_ISBLK(os.fstat(device_fd).st_mode):
        raise ValueError(f"{args.device} is not a block device (files need --buffered)")
    room = device_bytes(device_fd) - args.start
    region = min(args.region or room, room)
    if region < BLOCK_BYTES * args.depth or args.start % BLOCK_BYTES:
        raise ValueError(f"a region of {region} bytes from {args.start} cannot hold the ledger")
    head = LogHead(
        run_id=args.run_id or uuid.uuid4().hex,
        device=args.device,
        seed=args.seed,
        start_bytes=args.start,
        blocks=region // BLOCK_BYTES,
        rate=args.rate,
        depth=args.depth,
        started_wall_ns=time.time_ns(),
    )
    # O_EXCL: a log is the only record of a run's acknowledgements and is never overwritten.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    log_fd = os.open(args.log, flags, 0o644)
    os.write(log_fd, head.encode())
    writer = Writer(head, device_fd, log_fd)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        writer.stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    writer.run(args.seconds)
    return 0


def _command_check(args: argparse.Namespace) -> int:
    head, records = read_log(Path(args.log))
    result = check(open_device(args.device, write=False, buffered=args.buffered), head, records)
    sys.stdout.write(result.to_json() + "\n")
    return 1 if result.lost else 0


def _command_watch(args: argparse.Namespace) -> int:
    for line in follow(os.open(args.log, os.O_RDONLY | os.O_CLOEXEC)):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the subcommands."""
    parser = argparse.ArgumentParser(description="a ledger of acknowledged writes")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("write", _command_write), ("check", _command_check)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--device", required=True)
        command.add_argument("--log", required=True)
        command.add_argument("--buffered", action="store_true", help="without O_DIRECT, for files")
    write = commands.choices["write"]
    write.add_argument("--rate", type=float, default=0.0, help="writes per second (0: no limit)")
    write.add_argument("--depth", type=int, default=4, choices=range(1, 65), metavar="1..64")
    write.add_argument("--seconds", type=float, default=0.0, help="0: until SIGTERM")
    write.add_argument("--start", type=int, default=0, help="first byte of the region")
    write.add_argument("--region", type=int, default=0, help="bytes (0: to the end)")
    write.add_argument("--seed", type=int, default=1)
    write.add_argument(
        "--unsynced",
        action="store_true",
        help="without O_DSYNC: an acknowledgement does not mean stable",
    )
    write.add_argument("--run-id", default="", help="32 hex digits (random by default)")
    watch = commands.add_parser("watch")
    watch.set_defaults(run=_command_watch)
    watch.add_argument("--log", required=True)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"ledger: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
