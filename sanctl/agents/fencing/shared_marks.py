# SPDX-License-Identifier: GPL-2.0-or-later
"""Marks one peer's replicas of several devices in one change of the CIB: requests, leader, answers.

Each change of the CIB ends the transition that is under way, and costs every node processor time.
When a node is lost, the handlers of all its devices ask for a mark at about the same time. Each
writes a request, in a file, and takes the node's lock for that peer; who has it leads. The leader
carries out all requests that stand: one question for quorum, one for the CIB, one change, both
questions again; then each handler gets its answer, in a file. Handlers that come meanwhile are the
next leader's. A single handler is its own leader, at once. One that is called for a promotion first
waits for the other promotions of this node, for some seconds at most (`promotion_begun`).

The source of a resync asks with a token that says that a mark that is there is enough: where all of
them find their peers marked, the leader asks both questions twice and changes nothing.

A leader that dies gives the lock back, as the kernel does for it; the next one leads all that is
unanswered. One that hangs is not waited for: the others go on alone, as if there were no lock. The
lock is there to share, not to protect: what protects a device is its own lock, which its handler
holds from before its request until after its answer. The handler may die meanwhile, or go on alone
and end, while its leader is paused before the change. So a leader holds a second lock of each
device that it marks for, `change_lock`, and a demotion takes both: the peer serves only after it.

The rules are in sanctl/plan/failover/shared_marks.py; what is certain, in fence_rules.py there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from sanctl.agents.fencing import joined_peers, quorum_overlap
from sanctl.drivers import drbd_kernel, outdated_marks
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.plan.failover import fence_rules, shared_marks
from sanctl.plan.failover.shared_marks import Facts
from sanctl.system import journal, process_start, state_files
from sanctl.system.runner import Runner

#: As long as one program of the leader may take. Less than what a promotion has left after it.
WAIT_S = 20.0
# Then more seldom, by a tenth of what was waited: a dozen handlers that look fifty times a second
# take the processor from the one that they wait for.
_POLL_S, _POLL_SHARE, _LONGEST_POLL_S = 0.02, 0.1, 0.5
#: How long a leader waits for other promotions. One that hangs costs the others so much, once for
#: each change; of twenty on a node with one processor the last one asks some 4 to 6 s after the
#: first. So while further ones ask the leader waits on, and no longer than half of what the others
#: wait for it (`WAIT_S`): the next change costs those that it leaves out more than that.
GATHER_S, GATHER_AT_MOST_S = 5.0, 10.0
_GATHER_POLL_S = 0.1
_REQUEST, _BEGUN = "mark-request", "promotion-begun"


class _Round(NamedTuple):
    """One transaction: the peer, and the tokens of the requests by device."""

    runner: Runner
    peer: str
    tokens: Mapping[str, str]
    is_promoting: Callable[[str], bool]
    may_lead_alone: bool = True


def mark(
    runner: Runner,
    device: str,
    peer: str,
    *,
    is_promoting: Callable[[str], bool],
    wait_s: float = WAIT_S,
    may_lead_alone: bool = True,
    keeps_mark: bool = False,
    last: str | None = None,
) -> str:
    """Mark a peer's replica, for a caller who holds the device's fencing lock.

    Args:
        runner: starts the cluster's tools.
        device: the device's name.
        peer: the node's name.
        is_promoting: whether a promotion of a device's replica is under way here.
        wait_s: how long another handler that marks for this one, too, is waited for.
        may_lead_alone: after that, make a change of its own, without the lock.
        keeps_mark: a mark that is there is enough (`is_kept` in
            sanctl/plan/failover/shared_marks.py).
        last: what the same handler was answered before, empty at first; the peer is marked before
            it is certain where this node serves on without it (`ahead` there). None: it is not.

    Returns:
        The peer's membership, or `shared_marks.OWN_MARKED`, or `AHEAD` there.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain.
    """
    token = _new_token()
    if keeps_mark:
        token = shared_marks.keeping(token)
    elif last is not None:
        token = shared_marks.ahead(token, last)
    request, answer = _request(device, peer), _answer(device, peer)
    # Without a place for files (a full /run) the handler is its own leader.
    with contextlib.suppress(OSError):
        request.write(token)
    try:
        this = _Round(runner, peer, {device: token}, is_promoting, may_lead_alone)
        said = _wait_or_lead(this, device, wait_s)
    finally:
        with contextlib.suppress(OSError):
            request.remove()
            answer.remove()
            _begun(device).remove()
    what, _, why = said.partition(" ")
    if what == shared_marks.ERROR:
        raise CommandError(Problem("SAN-AGENT-014", why))
    return said


@contextlib.contextmanager
def promotion_begun(device: str) -> Iterator[contextlib.ExitStack]:
    """Have the handlers of other promotions wait for this one's request, before they mark a peer.

    Until the handler has an answer, or the stack is closed, which the promotion does once DRBD is
    Primary. Without room for the note the others do not wait, and no harm is done.
    """
    note = _begun(device)
    with contextlib.ExitStack() as begun:
        begun.callback(_remove, note)
        with contextlib.suppress(OSError):
            note.write(_new_token())
        yield begun


def is_begun(device: str) -> bool:
    """Whether a promotion of the device is under way, whose handler has not been answered."""
    try:
        return _begun(device).exists()
    except OSError:
        return True


def change_lock(device: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock under which a leader marks for another handler's device; yields whether."""
    return state_files.locked(state_files.device_lock(device, "mark"), wait_s=wait_s)


def _wait_or_lead(this: _Round, own: str, wait_s: float) -> str:
    """Return the answer of the handler that leads, or lead."""
    began_s = time.monotonic()
    deadline = began_s + wait_s
    lock = state_files.node_lock(f"marks-{this.peer}")
    while True:
        with contextlib.ExitStack() as held:
            try:
                leads = held.enter_context(state_files.locked(lock, wait_s=0.0))
            except OSError:
                return _lead(this, own)  # no room for the lock's file, either
            # After the attempt: a leader answers before it gives the lock back.
            said = _read_answer(own, this.peer, this.tokens[own])
            if said is not None:
                return said
            if leads:
                _gather(this, own)
                return _lead(this._replace(tokens={**_unanswered(this.peer), **this.tokens}), own)
        now_s = time.monotonic()
        if now_s >= deadline:
            if not this.may_lead_alone:
                return f"{shared_marks.ERROR} another process marks for {this.peer}, and is slow"
            return _lead(this, own)
        time.sleep(min(max(_POLL_S, (now_s - began_s) * _POLL_SHARE), _LONGEST_POLL_S))


def _gather(this: _Round, own: str) -> None:
    """Wait until the other promotions that have begun here have asked as well.

    For `GATHER_S`, and after that while they go on asking, up to `GATHER_AT_MOST_S`.

    Only for a promotion, and while promotions alone ask: a Primary whose I/O is frozen, and the
    source of a resync, whose peer's requests wait, gain nothing by it. Nor where there is no room
    for the own request: such a handler leads at once.
    """
    begin_s = changed_s = time.monotonic()
    seen: shared_marks.Promotions | None = None
    with contextlib.suppress(OSError):
        while shared_marks.may_gather(
            (now_s := time.monotonic()) - begin_s,
            unchanged_s=now_s - changed_s,
            usual_s=GATHER_S,
            longest_s=GATHER_AT_MOST_S,
        ):
            asking = _open_requests(this.peer)
            if own not in asking or not all(map(this.is_promoting, asking)):
                break
            before, seen = seen, _promotions(asking)
            if seen != before:
                changed_s = now_s
            if not shared_marks.waits_for_more(
                seen, unchanged_s=now_s - changed_s, is_alive=_is_alive
            ):
                break
            time.sleep(_GATHER_POLL_S)


def _promotions(asking: Iterable[str]) -> shared_marks.Promotions:
    begun = {device: _begun(device).read() for device in state_files.node_suffixes(_BEGUN)}
    others = {device for device in begun if state_files.device_suffixes(device, _REQUEST)}
    asked = frozenset(asking) | others
    return shared_marks.Promotions(begun, asked, drbd_kernel.count_standbys_without_peer())


def _lead(this: _Round, own: str) -> str:
    """Carry a transaction out, answer the other requests, and return the answer to the own one."""
    answers: dict[str, str] = {}

    def give(device: str, said: str) -> None:
        answers[device] = said
        if device != own:
            text = shared_marks.answer_text(this.tokens[device], said)
            with contextlib.suppress(OSError):
                _answer(device, this.peer).write(text)

    try:
        _transact(this, own, give)
    except Exception as error:
        # Of whatever kind: a request without an answer would fail the next leader's round, too.
        for device in this.tokens.keys() - answers.keys() - {own}:
            give(device, f"{shared_marks.ERROR} {error}")
        if own not in answers and len(this.tokens) > 1 and not _is_silence(error):
            # It may be another device's fault, such as a mark that the CIB refuses.
            return _lead(this._replace(tokens={own: this.tokens[own]}), own)
        answers.setdefault(own, f"{shared_marks.ERROR} {error!r}")
    return answers[own]


def _is_silence(error: Exception) -> bool:
    """Whether the cluster gave no answer in time: asked again at once, it would give none."""
    return isinstance(error, SanctlError) and error.problems[0].code == "SAN-CMD-002"


def _transact(this: _Round, own: str, give: Callable[[str, str], None]) -> None:
    """Mark what may be marked; each device's answer goes to `give` as soon as it is known.

    The order matters. A mark counts only if this partition is quorate, and the CIB takes node
    attributes without quorum, too. So quorum is asked before, lest a node that is cut off change
    its own CIB, and after, lest quorum was lost in between. Last the marks are read back:
    partitions that joined meanwhile may have agreed on the CIB of the other partition.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain of what has no answer yet.
    """
    before, seen, ring = _look(this, this.tokens, give)
    to_mark: dict[str, Facts] = {}
    kept: dict[str, Facts] = {}
    for device, facts in before.items():
        refused = shared_marks.refusal(this.tokens[device], facts)
        if refused is not None:
            give(device, refused)
        elif shared_marks.is_kept(this.tokens[device], facts):
            kept[device] = facts
        else:
            to_mark[device] = facts
    with contextlib.ExitStack() as held:
        locked = {device for device in to_mark.keys() - {own} if _hold_change_lock(held, device)}
        # After the locks: a handler that has died before them has given its device's lock back.
        still = _open_requests(this.peer)
        to_mark = {
            device: facts
            for device, facts in to_mark.items()
            if device == own or (device in locked and still.get(device) == this.tokens[device])
        }
        if seen is None or not (to_mark or kept):
            return
        raised = shared_marks.rise(to_mark)
        if to_mark:
            number = fence_rules.raised_admin_epoch(
                seen.admin_epoch, raised, ring=ring if seen.number else None
            )
            outdated_marks.set_marks(
                this.runner, to_mark, this.peer, seen, admin_epoch=number if raised else None
            )
    after, _, ring_after = _look(this, to_mark | kept, give)
    for device, facts in after.items():
        said = shared_marks.confirmation(
            facts, raised=raised, is_same_membership=ring_after == ring
        )
        give(device, said)
    if to_mark:
        names = ", ".join(sorted(to_mark))
        journal.write(
            f"{this.peer} is marked as outdated in one change, for {len(to_mark)} devices: {names}",
            action="mark",
            step="set",
        )


def _hold_change_lock(held: contextlib.ExitStack, device: str) -> bool:
    """Hold a device's lock until the end of the change; False: its handler leads in its turn."""
    try:
        return held.enter_context(change_lock(device, wait_s=0.0))
    except OSError:
        return False  # no room for the lock's file


def _look(
    this: _Round, devices: Mapping[str, object], give: Callable[[str, str], None]
) -> tuple[dict[str, Facts], outdated_marks.SeenMarks | None, int | None]:
    """Return what is known of the devices, the marks, and the membership's sequence number.

    A device with an answer is left out. Quorum is asked first. Without it all are answered, and no
    marks are read.

    Raises:
        SanctlError: the cluster did not answer.
    """
    view = quorum_overlap.ClusterView(this.runner, devices.keys())
    if not view.present.is_quorate:
        for device in devices:
            give(device, "alone")
        return {}, None, None
    seen = outdated_marks.read(this.runner, devices, this.peer)
    joined_peers.record_joined(this.peer, seen.state)
    is_member = this.peer in view.present.members
    # A node in maintenance may have a Primary of which the CIB has no history (ADR 87).
    is_down = not (is_member and seen.is_maintained) and quorum_overlap.is_down(
        seen.state, is_member=is_member
    )
    found: dict[str, Facts] = {}
    for device in devices:
        marks = seen.devices.get(device)
        if marks is None:
            give(device, f"{shared_marks.ERROR} the CIB has no device {device}")
            continue
        is_primary = device in seen.primary
        membership = fence_rules.peer_membership(
            is_quorate=True,
            is_member=is_member,
            has_joined=lambda: joined_peers.has_joined(seen.state),
            is_fenced=partial(fence_rules.is_fenced, is_down=is_down, is_primary=is_primary),
        )
        known = quorum_overlap.membership_for_device(
            view, device, this.peer, membership, seen.state
        )
        is_own_marked = os.uname().nodename in marks.nodes()
        is_promoting = this.is_promoting(device)
        if is_own_marked and shared_marks.wants_ahead(this.tokens[device]):
            known = quorum_overlap.apply_own_mark(view, device, known, is_promoting=is_promoting)
        may_go_on = known == "unknown" and shared_marks.wants_ahead(this.tokens[device])
        found[device] = Facts(
            membership=known,
            is_marked=this.peer in marks.nodes(),
            is_own_marked=is_own_marked,
            is_promoting=is_promoting,
            goes_on=may_go_on and quorum_overlap.goes_on_without(view, device, this.peer),
        )
    return found, seen, view.present.ring


def _open_requests(peer: str) -> dict[str, str]:
    """Return the tokens of the requests that stand for a peer, by device."""
    kind = f"{_REQUEST}.{peer}"
    try:
        tokens = {
            device: _request(device, peer).read() for device in state_files.devices_with(kind)
        }
    except OSError:
        return {}  # each handler leads in its turn
    return shared_marks.open_requests(tokens, is_alive=_is_alive)


def _unanswered(peer: str) -> dict[str, str]:
    """Return those of them that no leader has answered yet."""
    requests = _open_requests(peer)
    return {
        device: token
        for device, token in requests.items()
        if _read_answer(device, peer, token) is None
    }


def _read_answer(device: str, peer: str, token: str) -> str | None:
    try:
        return shared_marks.answer_for(token, _answer(device, peer).read())
    except OSError:
        return None


def _request(device: str, peer: str) -> state_files.StateFile:
    """The token of the handler that wants a peer marked; removed before it unlocks the device."""
    return state_files.of_device(device, f"{_REQUEST}.{peer}")


def _answer(device: str, peer: str) -> state_files.StateFile:
    """The answer to a request, with its token."""
    return state_files.of_device(device, f"mark-answer.{peer}")


def _begun(device: str) -> state_files.StateFile:
    """The token of the promotion that is under way; of the node, as none need be started here."""
    return state_files.of_node(f"{_BEGUN}.{device}")


def _remove(note: state_files.StateFile) -> None:
    with contextlib.suppress(OSError):
        note.remove()


def _new_token() -> str:
    """Return what no other request has: this process, its start, and the time."""
    pid = os.getpid()
    return f"{pid}:{process_start.ticks(pid)}:{time.monotonic_ns()}"


def _is_alive(token: str) -> bool:
    """Whether the process that has written a token runs; where that is not known, it does not."""
    pid, _, rest = token.partition(":")
    started = rest.partition(":")[0]
    return bool(started) and pid.isdecimal() and process_start.ticks(int(pid)) == started
