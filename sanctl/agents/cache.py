"""A replica's write cache in RAM: entered when two copies are in sync, left before one is alone.

Every replica decides by itself, from what its own kernel says; nothing here asks another node.
The orders that keep data safe (docs/adr/0026):

* enter: marker on disk, limit, buffered, no longer synchronous; then look again whether the copies
  are still in sync.
* leave: synchronous, flush, direct; marker off. Once `leave` has returned, nothing acknowledged is
  in RAM alone.

Both under one lock, which DRBD's fence-peer handler takes too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from sanctl.agents import ocf, renewal, suspicion
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import corosync, drbd, filecache, pool
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cache import Mode, Policy, parse_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.caching import Reason, allowed, has_lost_writes, must_cut
from sanctl.system import journal
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_STEPS = 16
_QUERY_TIMEOUT_S = 8.0
_PROTECTED = "power-protected"
_LIMIT = "cache-limit-"
_RATE = "flush-rate"
#: Flushing less than this tells nothing of how fast a disk is.
_TELLING_BYTES = 1 << 20


def begin(runner: Runner, device: Device, files: pool.DeviceFiles, *, is_protected: bool) -> None:
    """Put a replica that is being started into a mode that needs no peer.

    A replica that is to get new metadata holds nothing that could be lost.
    """
    _note(_PROTECTED, is_set=is_protected)
    if not os.path.exists(files.metadata):
        suspicion.clear(device.name, files.data)
    settle(runner, device, None)


def settle(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Bring a replica into the mode that its policy and DRBD's state allow.

    Raises:
        SanctlError: it could not be done, or a flush failed.
    """
    policy = _wanted(device)
    path = suspicion.data_file(device.name)
    if path is None:
        return
    with _locked(device.name, wait=False) as is_mine:
        if not is_mine:
            return  # The fence-peer handler, or another monitor; the next one looks again.
        held = filecache.observe(path)
        is_marked = suspicion.is_marked(path)
        if held is None or (held.mode is policy.mode is Mode.NONE and not is_marked):
            return
        if held.mode is Mode.WRITE_BACK:
            _check(runner, device.name, state)
        target = _allowed(policy, device.name, path, state)
        if target is Mode.WRITE_BACK and held.mode is not Mode.WRITE_BACK:
            # Seen under the lock: whoever loses the peer after this waits for it, and leaves.
            state = drbd.observe(runner, device.name)
            target = _allowed(policy, device.name, path, state)
        if target is Mode.WRITE_BACK:
            _limit(device.name, policy.dirty_bytes)
            if held.mode is not Mode.WRITE_BACK:
                _enter(runner, device.name, path)
                if not _in_sync(drbd.observe(runner, device.name)):
                    _leave(runner, device.name, path)
            return
        if is_marked or held.is_buffered:
            _leave(runner, device.name, path)
        _set_stable(device.name, path, target)


def secure(runner: Runner, name: str) -> None:
    """Leave write-back, whatever is wanted: this copy may be the only one from now on.

    For DRBD's fence-peer handler, with I/O frozen, and for whatever ends the contact on purpose.

    Raises:
        CommandError: writes that were acknowledged could not be flushed; nobody may go on with
            this copy.
    """
    try:
        path = suspicion.data_file(name)
        # Marked, not "in write-back": a process may have died on the way there, or back.
        if path is None:
            return
        with _locked(name):
            if suspicion.is_marked(path):
                refuse_suspect(name, path)
                _check(runner, name, drbd.observe(runner, name))
                _leave(runner, name, path)
    except OSError as error:
        raise CommandError(
            Problem("SAN-CACHE-001", f"{name}: {error.filename or ''}: {error.strerror}")
        ) from error


def secure_unless_in_sync(runner: Runner, name: str) -> None:
    """As `secure`, if there is no peer in sync: before a node that was promoted serves.

    Raises:
        CommandError: see `secure`.
    """
    path = suspicion.data_file(name)
    if path is None or not suspicion.is_marked(path):
        return
    state = drbd.observe(runner, name)
    if _in_sync(state):
        refuse_suspect(name, path)
        _check(runner, name, state)
    else:
        secure(runner, name)


def refuse_suspect(name: str, path: str | None = None) -> None:
    """Refuse to go on with a replica that has lost acknowledged writes.

    Raises:
        CommandError: it has.
    """
    if suspicion.is_suspect(name, path or suspicion.data_file(name)):
        raise CommandError(
            Problem(
                "SAN-CACHE-003",
                f"{name}: this replica lost writes that were in RAM; it must not serve",
                f"its peer serves and fills it; if no copy may: 'sanctl device heal {name}'",
            )
        )


def part(runner: Runner, device: Device) -> None:
    """Before a replica is stopped: make its peer flush before it goes on alone.

    DRBD calls no handler on a Primary that its peer takes leave of. One whose connection is cut
    freezes, and calls fence-peer, which leaves write-back before I/O goes on.
    """
    may_be = _is_marked(device.name) or _wanted(device).mode is Mode.WRITE_BACK
    if not may_be:
        return
    state = drbd.observe(runner, device.name)
    try:
        secure(runner, device.name)
    except SanctlError as error:
        # The marker stays, and tells the next start what this replica is worth.
        _tell(device.name, f"stopped with writes lost: {error}", "lost")
    if not must_cut(state, may_be_write_back=may_be):
        return
    try:
        drbd.cut(runner, device.name)
    except SanctlError as error:
        # It is stopped all the same: its peer's monitor ends write-back, some seconds later.
        _tell(device.name, f"the peer may stay in write-back for a moment: {error}", "cut")


def take_leave(runner: Runner, device: Device, state: ResourceState) -> None:
    """End the contact of a standby that is to come back: so that its Primary flushes before.

    Raises:
        CommandError: the contact did not end.
    """
    may_be = _is_marked(device.name) or _wanted(device).mode is Mode.WRITE_BACK
    if must_cut(state, may_be_write_back=may_be):
        drbd.cut(runner, device.name)
    else:
        drbd.disconnect(runner, device.name)


def replace_if_suspect(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Fill a replica anew that lost writes, once another one serves; return DRBD's state then.

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
    """
    if state.is_primary or not suspicion.is_suspect(device.name, suspicion.data_file(device.name)):
        return state
    if not _another_serves(runner, device):
        return state
    if must_cut(state, may_be_write_back=True):
        drbd.cut(runner, device.name)
    _tell(device.name, "this replica lost writes that were in RAM; it is filled anew", "replace")
    renewal.begin_anew(runner, device)
    return drbd.observe(runner, device.name) or state


def _another_serves(runner: Runner, device: Device) -> bool:
    """Whether a quorate cluster shows another replica that is good and serves."""
    if not corosync.membership(runner).is_quorate:
        return False
    here = os.uname().nodename
    answer = runner.run(
        ["cibadmin", "--query", "--xpath",
         f"//node_state//nvpair[@name='sanctl-{device.name}']/ancestor::node_state"],
        timeout_s=_QUERY_TIMEOUT_S,
        ok=(0, 6, 105),  # no such object: nobody has told anything
    )  # fmt: skip
    if answer.status != 0:
        return False
    for node in ET.fromstring(answer.stdout).iter("node_state"):  # noqa: S314 - our own CIB
        if node.get("uname") in {None, here}:
            continue
        for pair in node.iter("nvpair"):
            if pair.get("name") == f"sanctl-{device.name}":
                told = pair.get("value", "").split()
                if {"disk=UpToDate", "role=Primary"} <= set(told) and "suspect=1" not in told:
                    return True
    return False


def end(name: str) -> None:
    """Drop what is kept on tmpfs of a device that is stopped here."""
    for note in (_limit_note(name), f"{RUNTIME}/cache-{name}.lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(note)


def words(device: Device, state: ResourceState | None) -> str:
    """Return what is published of the cache, ` key=value` each; nothing where there is none."""
    try:
        return _words(device, state)
    except (SanctlError, OSError) as error:
        return f" cache=? cache-why={type(error).__name__}"


def _words(device: Device, state: ResourceState | None) -> str:
    path = suspicion.data_file(device.name)
    if path is None:
        return ""
    policy, held = _wanted(device), filecache.observe(path)
    if held is None:
        return ""
    mode = held.mode
    if mode is Mode.NONE and policy.mode is not Mode.NONE and _is_protected():
        # On a node whose power is protected the disk's own cache is as good as the disk.
        mode = Mode.WRITE_THROUGH
    text = f" cache={mode.value}"
    if suspicion.is_suspect(device.name, path):
        text += " suspect=1"
    if mode is not policy.mode:
        _, reason = _judge(policy, device.name, path, state)
        text += f" cache-why={(reason or Reason.CHANGING).value}"
    if mode is Mode.WRITE_BACK:
        text += _usage_words(path, policy)
    return text


def _usage_words(path: str, policy: Policy) -> str:
    """How much is dirty, in sixteenths of the limit: it must not be news with every monitor."""
    used, rate = filecache.usage(path), _flush_rate(path)
    text = f" limit={policy.dirty_bytes}"
    if used is None:
        return text
    step = max(policy.dirty_bytes // _STEPS, 1)
    dirty = -(-used.dirty // step) * step
    text += f" dirty={dirty}"
    return text if rate is None else f"{text} flush-s={-(-dirty // rate)}"


def _flush_rate(path: str) -> int | None:
    """Bytes a second: as measured in the last flush, or else as the kernel reckons."""
    measured = read_text_or(f"{RUNTIME}/{_RATE}", "")
    return int(measured) if measured.isdecimal() else filecache.flush_rate(path)


def _wanted(device: Device) -> Policy:
    try:
        return parse_policy(device.cache)
    except ValueError as error:
        raise CommandError(Problem("SAN-CACHE-004", f"{device.name}: {error}")) from error


def _judge(
    policy: Policy, name: str, path: str, state: ResourceState | None
) -> tuple[Mode, Reason]:
    return allowed(
        policy.mode,
        state,
        is_suspect=suspicion.is_suspect(name, path),
    )


def _allowed(policy: Policy, name: str, path: str, state: ResourceState | None) -> Mode:
    return _judge(policy, name, path, state)[0]


def _in_sync(state: ResourceState | None) -> bool:
    return state is not None and state.is_in_sync


def _check(runner: Runner, name: str, state: ResourceState | None) -> None:
    """Find out whether DRBD has met a flush that failed; such a replica counts as lost."""
    if has_lost_writes(state or drbd.observe(runner, name)):
        suspicion.note_failure(name)
        refuse_suspect(name)


def _enter(runner: Runner, name: str, path: str) -> None:
    begun = time.monotonic()
    suspicion.mark(path)
    filecache.set_buffered(runner, path, on=True)
    filecache.set_synchronous(path, on=False)
    ocf.stop_here_if_asked("cache-entered")
    _tell(name, "write-back: both copies are in sync", Mode.WRITE_BACK.value, begun)


def _leave(runner: Runner, name: str, path: str) -> None:
    begun = time.monotonic()
    dirty = filecache.usage(path)
    filecache.set_synchronous(path, on=True)
    ocf.stop_here_if_asked("cache-synchronous")
    try:
        filecache.flush(path)
    except CommandError:
        suspicion.note_failure(name)
        raise
    took_s = time.monotonic() - begun
    if dirty is not None and dirty.dirty >= _TELLING_BYTES:
        write_atomically(f"{RUNTIME}/{_RATE}", str(max(round(dirty.dirty / took_s), 1)))
    ocf.stop_here_if_asked("cache-flushed")
    filecache.set_buffered(runner, path, on=False)
    _limit(name, None)
    if not suspicion.is_suspect(name, path):
        suspicion.clear(name, path)
    _tell(
        name, "write-through: all that was in RAM is on the disk", Mode.WRITE_THROUGH.value, begun
    )


def _set_stable(name: str, path: str, target: Mode) -> None:
    """Make writes synchronous, or no longer, where nothing is held back in RAM."""
    wanted = target is Mode.WRITE_THROUGH and not _is_protected()
    held = filecache.observe(path)
    if held is None or held.is_synchronous == wanted:
        return
    if not wanted and held.is_buffered:
        return  # The kernel refuses direct I/O here: synchronous is all that keeps it safe.
    filecache.set_synchronous(path, on=wanted)
    if wanted:
        # What was written before is to be as stable as what follows.
        filecache.flush(path)
    _tell(name, f"{target.value}", target.value)


def _limit(name: str, limit_bytes: int | None) -> None:
    """Limit what is dirty on this node to what its devices in write-back may have together."""
    note = _limit_note(name)
    text = "" if limit_bytes is None else str(limit_bytes)
    if read_text_or(note, "") == text:
        return
    with _flocked(f"{RUNTIME}/dirty.lock"):
        if limit_bytes is None:
            os.unlink(note)
        else:
            write_atomically(note, text)
        limits = [
            int(read_text_or(f"{RUNTIME}/{entry}", "0") or 0)
            for entry in os.listdir(RUNTIME)
            if entry.startswith(_LIMIT) and ".new." not in entry
        ]
        filecache.limit_dirty(sum(limits) or None, saved_in=f"{RUNTIME}/dirty-before")


def _limit_note(name: str) -> str:
    return f"{RUNTIME}/{_LIMIT}{name}"


def _is_marked(name: str) -> bool:
    path = suspicion.data_file(name)
    return path is not None and suspicion.is_marked(path)


def _is_protected() -> bool:
    return os.path.exists(f"{RUNTIME}/{_PROTECTED}")


def _note(name: str, *, is_set: bool) -> None:
    path = f"{RUNTIME}/{name}"
    if is_set:
        with open(path, "w", encoding="utf-8"):
            pass
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _locked(name: str, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's cache lock; without `wait` only if nobody else does."""
    return _flocked(f"{RUNTIME}/cache-{name}.lock", wait=wait)


@contextlib.contextmanager
def _flocked(path: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold a kernel lock, which ends with the process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _tell(name: str, text: str, step: str, begun: float | None = None) -> None:
    journal.write(
        f"{name}: cache: {text}",
        priority=journal.NOTICE,
        device=name,
        action="cache",
        step=step,
        duration_ms=None if begun is None else round((time.monotonic() - begun) * 1000),
    )
