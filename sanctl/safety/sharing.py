# SPDX-License-Identifier: GPL-2.0-or-later
"""A second model: two devices of one node whose handlers share a change of the CIB, any may die.

The model of one device (sanctl/safety/world.py) says why a mark that was read back with quorum is
enough. This one says that sharing hands out no other: a device goes on alone only with such a mark,
and no replica that serves is marked, however late a change comes. What decides is not copied but
called: sanctl/plan/failover/shared_marks.py.

Any number of links lost, moves, deaths of handlers and losses of quorum: nothing is counted, and
the states are finite. A leader may pause for as long as it takes between its last look at the
requests and the change of the CIB. A `cibadmin` that outlives its handler is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sanctl.plan.failover import fence_rules, shared_marks
from sanctl.plan.failover.shared_marks import Facts
from sanctl.safety.search import Exploration, explore

DEVICES = (0, 1)
NAMES = ("x", "y")

LINKED, FROZEN, ALONE, AWAY = "linked", "FROZEN", "alone", "away"
NO_HANDLER, WAITS, KILLED = "", "waits", "killed"
NO_MARK, LONE, KEPT = "", "lone", "kept"
LOOKS, RECHECKS, MARKS, LOOKS_AGAIN = "looks", "rechecks", "marks", "looks again"
# The peer is fenced, and each change outranks its CIB.
_RAISED = fence_rules.admin_epoch_rise("fenced")
# Tokens: of the handler that runs now, and of one before.
NEW, OLD = "new", "old"


class SharingRules(NamedTuple):
    """What is relied on; the defaults are what is shipped.

    Attributes:
        matches_tokens: a handler takes only the answer to its own request.
        rechecks: the leader leaves out whose handler has died, as its last step before the change.
        demotion_waits: a demotion waits for the end of a change that includes its device.
        looks_again: it answers after it has looked a second time.
        answers_its_own: it answers the requests that it had when it looked first, no others.
    """

    matches_tokens: bool = True
    rechecks: bool = True
    demotion_waits: bool = True
    looks_again: bool = True
    answers_its_own: bool = True


class Device(NamedTuple):
    """A device whose peer is another node.

    Attributes:
        phase: linked to its peer; its I/O frozen without it; going on alone; or served by the peer.
        handler: waits (for its answer, or leads), or was killed. While it waits it holds the lock.
        request: the token in the file, which a killed handler leaves there.
        answer: the text in the file.
        mark: of the peer: set without quorum, or with it.
    """

    phase: str = LINKED
    handler: str = NO_HANDLER
    request: str = ""
    answer: str = ""
    mark: str = NO_MARK


class Round(NamedTuple):
    """A transaction that the handler of one device leads.

    Attributes:
        stage: its next step.
        tokens: of the requests it carries out, by device; empty: none.
        has_lock: it holds the node's lock; else it goes on alone.
    """

    stage: str
    tokens: tuple[str, str]
    has_lock: bool


class Sharing(NamedTuple):
    """One state: both devices, the round that the handler of each leads, and quorum."""

    devices: tuple[Device, Device] = (Device(), Device())
    rounds: tuple[Round | None, Round | None] = (None, None)
    is_quorate: bool = True


Event = tuple[str, Sharing]


def explore_sharing(rules: SharingRules) -> Exploration[Sharing]:
    """Visit every state of two devices that share.

    The devices are alike: of two states that differ by their names alone one is visited.
    """
    return explore(
        Sharing(),
        lambda state: [each for each in _events(state, rules) if each[1] != state],
        broken_sharing,
        lambda state: state == Sharing(),
        key=_ordered,
    )


def _ordered(state: Sharing) -> Sharing:
    """Return the state, with the devices exchanged where they come in the other order."""
    (x, y), (led_x, led_y) = state.devices, state.rounds
    if x < y:
        return state
    other = Sharing((y, x), (_exchanged(led_y), _exchanged(led_x)), state.is_quorate)
    if x == y and _rounds_key(state) <= _rounds_key(other):
        return state
    return other


def _rounds_key(state: Sharing) -> tuple[tuple[object, ...], ...]:
    return tuple(led or () for led in state.rounds)


def _exchanged(led: Round | None) -> Round | None:
    if led is None:
        return None
    stage, (first, second), has_lock = led
    return Round(stage, (second, first), has_lock)


def broken_sharing(state: Sharing) -> str | None:
    """Return what is wrong with a state, None where nothing is."""
    for name, device in zip(NAMES, state.devices, strict=True):
        if device.phase == ALONE and device.mark != KEPT:
            return f"{name} goes on alone, and its peer is not marked"
        if device.phase == AWAY and device.mark == KEPT:
            return f"the peer of {name} serves, and is marked"
    return None


def sharing_text(state: Sharing) -> str:
    """Return one line for a reader of a trace."""
    parts = []
    for name, device, led in zip(NAMES, state.devices, state.rounds, strict=True):
        words = [f"{name}: {device.phase}"]
        words += [f"handler {device.handler}"] if device.handler else []
        words += [f"request {device.request}"] if device.request else []
        words += [f"answer '{device.answer}'"] if device.answer else []
        words += [f"{device.mark} mark"] if device.mark else []
        words += [f"leads {led.tokens}, {led.stage}"] if led else []
        parts.append(", ".join(words))
    return " | ".join(parts) + ("" if state.is_quorate else " | no quorum")


def _events(state: Sharing, rules: SharingRules) -> Iterator[Event]:
    if state.is_quorate:
        yield "quorum is lost", state._replace(is_quorate=False)
    else:
        # What was written without quorum gives way to the CIB of those who had it.
        first, second = (
            device._replace(mark=NO_MARK) if device.mark == LONE else device
            for device in state.devices
        )
        yield "quorum is back", state._replace(devices=(first, second), is_quorate=True)
    for i in DEVICES:
        yield from _drbd_and_cluster(state, i, rules)
        if state.devices[i].handler == WAITS:
            yield from _handler(state, i, rules)


def _is_in_change(state: Sharing, i: int) -> bool:
    """Whether the handler of the other device holds the lock by which a demotion waits for it."""
    led = state.rounds[1 - i]
    return led is not None and led.stage == MARKS and bool(led.tokens[i])


def _drbd_and_cluster(state: Sharing, i: int, rules: SharingRules) -> Iterator[Event]:
    device, name = state.devices[i], NAMES[i]
    may_demote = not (rules.demotion_waits and _is_in_change(state, i))
    is_locked = device.handler == WAITS
    if device.phase == LINKED and not is_locked:
        yield f"the link of {name} is lost", _ask(state, i, device._replace(phase=FROZEN))
        if device.mark == KEPT and state.is_quorate:
            yield f"{name} clears the mark", _with(state, i, device._replace(mark=NO_MARK))
    if device.phase in {FROZEN, ALONE}:
        handler = NO_HANDLER if device.handler == KILLED else device.handler
        linked = device._replace(phase=LINKED, handler=handler)
        yield f"the link of {name} is back", _with(state, i, linked)
    is_promotable_there = device.phase in {LINKED, FROZEN} and device.mark != KEPT
    if is_promotable_there and not is_locked and may_demote:
        away = device._replace(phase=AWAY, handler=NO_HANDLER)
        yield f"{name} is demoted, its peer promoted", _with(state, i, away)
    if device.phase == FROZEN and device.handler == KILLED:
        yield f"a monitor has the handler of {name} called again", _ask(state, i, device)
    if device.phase == AWAY:
        yield f"{name} moves back", _with(state, i, device._replace(phase=LINKED))


def _handler(state: Sharing, i: int, rules: SharingRules) -> Iterator[Event]:
    device, name, led = state.devices[i], NAMES[i], state.rounds[i]
    handler = f"the handler of {name}"
    dead = KILLED if device.phase == FROZEN else NO_HANDLER
    killed = _with(state, i, device._replace(handler=dead))
    yield f"{handler} is killed", _with_round(killed, i, None)
    if led is not None:
        yield from _lead(state, i, led, rules)
        return
    said = shared_marks.answer_for(NEW, device.answer)
    if said is None and device.answer and not rules.matches_tokens:
        said = device.answer.partition(" ")[2]
    ended = device._replace(handler=NO_HANDLER, request="", answer="")
    if said is not None and fence_rules.is_certain(said):
        phase = ALONE if device.phase == FROZEN else device.phase
        yield f"{handler} is answered: {said}", _with(state, i, ended._replace(phase=phase))
    elif said is not None:
        yield f"{handler} is answered: {said}", _ask(state, i, device._replace(answer=""))
    if device.phase == LINKED:
        yield f"{handler} ends: the link is back", _with(state, i, ended)
    own = (NEW, "") if i == 0 else ("", NEW)
    if any(each is not None and each.has_lock for each in state.rounds):
        yield f"{handler} goes on alone", _with_round(state, i, Round(LOOKS, own, has_lock=False))
    else:
        requests = _open_requests(state)
        tokens = requests.get(NAMES[0], ""), requests.get(NAMES[1], "")
        yield f"{handler} leads", _with_round(state, i, Round(LOOKS, tokens, has_lock=True))


def _lead(state: Sharing, i: int, led: Round, rules: SharingRules) -> Iterator[Event]:
    leader = f"the handler of {NAMES[i]}"
    carried = [j for j in DEVICES if led.tokens[j]]
    if led.stage == LOOKS:
        facts = [(j, shared_marks.refusal(led.tokens[j], _facts(state, j))) for j in carried]
        refused = {j: said for j, said in facts if said is not None}
        tokens = tuple("" if j in refused else led.tokens[j] for j in DEVICES)
        after = _give(state, led, refused)
        next_round = Round(RECHECKS, (tokens[0], tokens[1]), led.has_lock) if any(tokens) else None
        yield f"{leader} looks", _with_round(after, i, next_round)
    elif led.stage == RECHECKS:
        still = (
            _open_requests(state) if rules.rechecks else dict(zip(NAMES, led.tokens, strict=True))
        )
        tokens = tuple(
            led.tokens[j] if j == i or still.get(NAMES[j]) == led.tokens[j] else "" for j in DEVICES
        )
        next_round = Round(MARKS, (tokens[0], tokens[1]), led.has_lock) if any(tokens) else None
        yield f"{leader} looks at the requests again", _with_round(state, i, next_round)
    elif led.stage == MARKS:
        after = state
        for j in DEVICES:
            if led.tokens[j]:
                before = after.devices[j]
                # What those with quorum have, too, stays when the partitions meet.
                mark = KEPT if state.is_quorate or before.mark == KEPT else LONE
                after = _with(after, j, before._replace(mark=mark))
        next_round = led._replace(stage=LOOKS_AGAIN)
        yield f"{leader} marks", _with_round(after, i, next_round)
    else:
        answers = {
            j: shared_marks.confirmation(_facts(state, j), raised=_RAISED)
            if rules.looks_again
            else "fenced"
            for j in carried
        }
        if not rules.answers_its_own:
            answers = dict.fromkeys(DEVICES, answers[i])
            led = led._replace(tokens=(state.devices[0].request, state.devices[1].request))
        yield f"{leader} looks again, and answers", _with_round(_give(state, led, answers), i, None)


def _facts(state: Sharing, j: int) -> Facts:
    membership = fence_rules.peer_membership(
        is_quorate=state.is_quorate,
        is_member=False,
        has_joined=lambda: False,
        is_fenced=lambda: True,
    )
    is_marked = state.devices[j].mark != NO_MARK
    return Facts(membership, is_marked=is_marked, is_own_marked=False, is_promoting=False)


def _open_requests(state: Sharing) -> dict[str, str]:
    """Return the requests that stand, by the rule, which sees one device's process at a time."""
    found: dict[str, str] = {}
    for name, device in zip(NAMES, state.devices, strict=True):
        is_alive = _alive_if(device.handler == WAITS)
        if device.request:
            found |= shared_marks.open_requests({name: device.request}, is_alive=is_alive)
    return found


def _alive_if(runs: bool) -> Callable[[str], bool]:
    return lambda token: runs and token == NEW


def _give(state: Sharing, led: Round, answers: dict[int, str]) -> Sharing:
    for j, said in answers.items():
        if led.tokens[j]:
            text = shared_marks.answer_text(led.tokens[j], said)
            state = _with(state, j, state.devices[j]._replace(answer=text))
    return state


def _ask(state: Sharing, i: int, device: Device) -> Sharing:
    """Return the state after a handler has written a request: every token before it is old."""
    answer = device.answer.replace(NEW, OLD, 1) if device.answer.startswith(NEW) else device.answer
    asked = device._replace(handler=WAITS, request=NEW, answer=answer)
    first, second = (None if led is None else _aged(led, i) for led in state.rounds)
    return _with(state._replace(rounds=(first, second)), i, asked)


def _aged(led: Round, i: int) -> Round:
    first, second = (OLD if j == i and led.tokens[j] else led.tokens[j] for j in DEVICES)
    return led._replace(tokens=(first, second))


def _with(state: Sharing, i: int, device: Device) -> Sharing:
    (x, y), rounds, is_quorate = state
    return Sharing((device, y) if i == 0 else (x, device), rounds, is_quorate)


def _with_round(state: Sharing, i: int, led: Round | None) -> Sharing:
    devices, (x, y), is_quorate = state
    return Sharing(devices, (led, y) if i == 0 else (x, led), is_quorate)


class BrokenSharing(NamedTuple):
    """A rule of sharing, the model without it, and the shortest way to the harm.

    Attributes:
        name: its name for --rules.
        rule: the rule that is broken, one sentence.
        rules: all rules, with this one broken.
        finds: how the sentence of the counterexample ends.
        steps: the number of events of the shortest way there.
    """

    name: str
    rule: str
    rules: SharingRules
    finds: str
    steps: int


_UNMARKED = "goes on alone, and its peer is not marked"

BROKEN_SHARING = (
    BrokenSharing(
        "old-answer",
        "A handler takes only the answer to its own request, and none from before it asked.",
        SharingRules(matches_tokens=False),
        finds=_UNMARKED,
        steps=11,
    ),
    BrokenSharing(
        "dead-request",
        "Whose handler has died meanwhile is not marked for: its device's lock is free.",
        SharingRules(rechecks=False),
        finds="serves, and is marked",
        steps=8,
    ),
    BrokenSharing(
        "late-change",
        "No device is demoted while a change that may mark its peer is under way, however late.",
        SharingRules(demotion_waits=False),
        finds="serves, and is marked",
        steps=8,
    ),
    BrokenSharing(
        "answers-unread",
        "The leader answers after it has read the marks back with quorum.",
        SharingRules(looks_again=False),
        finds=_UNMARKED,
        steps=8,
    ),
    BrokenSharing(
        "answers-everybody",
        "The leader answers the requests that it has marked for, not those that came later.",
        SharingRules(answers_its_own=False),
        finds=_UNMARKED,
        steps=8,
    ),
)
