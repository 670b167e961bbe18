# SPDX-License-Identifier: GPL-2.0-or-later
"""The order to make a device what a restore point, a backup or a copy is; what a node says of it.

Light: the agents read them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.model.site_copy import SiteCopy

#: Followed by a device's name: the transient attribute in which a node says how far it has come.
REPORT_PREFIX = "sanctl.restore."
#: Nothing has been written yet; an order that gets no further is given up.
ORDERED = "ordered"
#: The device may hold a part of this and a part of that.
COPYING = "copying"
#: The device is the copy, and hosts wait for an operator: for a later copy, or to be let in.
HELD = "held"
DONE = "done"
#: Nothing was written.
GIVEN_UP = "given-up"
#: Of the turn of the roles of a device that is held: the site was asked to note it, and its answer
#: is not known; the site has it.
ASKED, TURNED = "asked", "turned"
#: How long an order may wait for what it needs before anything is written.
ORDER_LIFE_S = 180
#: The field in which a replica publishes the order that is noted beside its data, while the CIB is
#: older than that (agents/restore/noted_hold.py).
OLDER_KEY = "hold-older"
#: In its place where that cannot be read.
UNREADABLE = "?"
#: The field in which a replica publishes that an order, or its end, could not be noted there.
UNNOTED_KEY = "hold-unnoted"
#: How the point begins that keeps what was on the device.
KEPT_PREFIX = "before-restore-"

#: Between the names of a repository and of a backup in it. No restore point's name has that.
_IN_REPOSITORY = "::"
_NOT_KEPT = "-"
_KEPT_ON_FEW = "kept-on-few"
_HOLDS = "hold"
_BASE = "base="
_TURN = "turn="
_UNSURE = "unsure"
_ENDED = frozenset({DONE, GIVEN_UP})
_STATES = frozenset({ORDERED, COPYING, HELD, *_ENDED})
_TOKEN = re.compile(r"[0-9a-f]{16}")
_COPYING, _WAITING, _FAILED = "copying", "waiting", "failed"


class RestoreOrder(NamedTuple):
    """The order, as the device's parameter `restore` has it.

    Attributes:
        token: 16 hex digits that no other order has.
        point: the name of the restore point; or `REPOSITORY::BACKUP`, or a copy at a site
            (SiteCopy).
        point_token: the restore point's token; of anything else: the order's own.
        kept_token: the token of the restore point that keeps what was on the device; empty: none.
        given_s: when it was given, in seconds since 1970.
        state: `ordered`, `copying`, `held`, `done` or `given-up`.
        may_keep_on_few: the operator has accepted that not all nodes keep what was on the device.
            Only then the order has a word more, which releases before it cannot read: they keep
            hosts out, and do not begin.
        holds: it does not end when the device is the copy: no host is let in then (docs/adr/0093).
        base: the copy that the device was held as when the order was given, and is until the order
            begins; None: it was not held. These two are words of their own as well.
        turn: of a device that is held, or was and is to be again: `asked` or `turned`; empty: the
            roles have not turned, as far as is known here. It is of the device whose copy `base`
            is, or else `copy`. A word of its own, too.
        is_unsure: the order was given while a node had noted a newer hold than the CIB: what is on
            the device before it begins may be half of a copy, which no host may see. It is not
            withdrawn. A word of its own as well.
    """

    token: str
    point: str
    point_token: str
    kept_token: str
    given_s: int
    state: str = ORDERED
    may_keep_on_few: bool = False
    holds: bool = False
    base: SiteCopy | None = None
    turn: str = ""
    is_unsure: bool = False

    @classmethod
    def parse(cls, text: str) -> RestoreOrder | None:
        """Read what `str` wrote; None for anything else."""
        words = text.split(" ")
        if len(words) < 6 or not words[4].isdecimal() or words[5] not in _STATES:
            return None
        kept = "" if words[3] == _NOT_KEPT else words[3]
        tokens = (words[0], words[2], *((kept,) if kept else ()))
        if not words[1] or not all(map(_TOKEN.fullmatch, tokens)):
            return None
        more = words[6:]
        found = cls(
            words[0],
            words[1],
            words[2],
            kept,
            int(words[4]),
            words[5],
            _KEPT_ON_FEW in more,
            _HOLDS in more,
            SiteCopy.parse(_value_of(more, _BASE)),
            _value_of(more, _TURN),
            _UNSURE in more,
        )
        # What this release would not have written may say what it does not know.
        return found if str(found) == text and found._is_sound else None

    @property
    def _is_sound(self) -> bool:
        """Whether no state says of the device what the rest of the order cannot."""
        if self.turn not in {"", ASKED, TURNED} or (self.is_unsure and self.base is not None):
            return False
        if self.state == ORDERED:
            has_turn = self.base is not None or (self.is_unsure and self.holds)
            return has_turn or not self.turn
        if self.base is not None or self.is_unsure:
            return False
        if self.state == HELD:
            return self.holds and self.copy is not None
        return not self.turn or (self.state == COPYING and self.holds and self.copy is not None)

    @classmethod
    def from_backup(cls, token: str, repository: str, backup: str, given_s: int) -> RestoreOrder:
        """Return the order with which a device is created that is to hold a backup.

        There is nothing on it that could be kept, so it begins with the copy.
        """
        source = f"{repository}{_IN_REPOSITORY}{backup}"
        return cls(token, source, token, "", given_s, COPYING)

    @classmethod
    def from_copy(cls, token: str, copy: SiteCopy, given_s: int) -> RestoreOrder:
        """Return the order with which a device is created that is to hold a copy at a site."""
        return cls(token, str(copy), token, "", given_s, COPYING)

    def in_state(self, state: str) -> RestoreOrder:
        """Return the order in a later state, without the words that only its begin needs.

        An earlier release that cannot read these words would keep hosts out for good. From the
        begin on the device is not the base any more. How far the turn is stays until hosts are let
        in, or the device is to be something else than a copy of the one that it goes on instead of.
        """
        holds = self.holds and state not in _ENDED
        return self._replace(
            state=state,
            may_keep_on_few=False,
            holds=holds,
            base=None,
            turn=self.turn_towards(self.copy) if holds else "",
            is_unsure=False,
        )

    def turn_towards(self, copy: SiteCopy | None) -> str:
        """Return how far the turn is where the device is to be a copy: one of the same device."""
        known = self.base or self.copy
        is_same = copy is not None and known is not None and copy.is_of_same(known)
        return self.turn if is_same else ""

    @property
    def withdrawn(self) -> RestoreOrder:
        """The order when it ends before anything was written: a device that was held still is.

        None is withdrawn where that is unsure.
        """
        assert not self.is_unsure
        if self.base is None:
            return self.in_state(GIVEN_UP)
        held = self.in_state(HELD)
        return held._replace(
            point=str(self.base), point_token=self.token, holds=True, turn=self.turn
        )

    @property
    def distrusted(self) -> RestoreOrder:
        """The order where the device may not be what this one says, or a process is about to say.

        All is read then. By another token, so that no process ends it that began before.
        """
        token = f"{(int(self.token, 16) + 1) % 2**64:016x}"
        other = self.in_state(COPYING) if self.is_held else self
        return other._replace(
            token=token, point_token=self.point_token if self.is_of_point else token
        )

    @property
    def is_held(self) -> bool:
        """Whether the device is a copy as a whole, and no host has been let in since it became it.

        That is `copy`, or `base` if another one is to take its place.
        """
        return self.state == HELD or self.base is not None

    @property
    def is_of_holds(self) -> bool:
        """Whether a release has to know of held devices to carry it out."""
        return self.holds or self.base is not None or self.is_unsure

    @property
    def copy(self) -> SiteCopy | None:
        """The copy at a site; None: the order is for a restore point or a backup."""
        return SiteCopy.parse(self.point)

    @property
    def held_copy(self) -> SiteCopy | None:
        """The copy at a site that is on the device, or will be before a host is let in.

        None also while nothing of the copy is written, and after an order that was given up: the
        device has its content from before the order, and the order does not say which that is.
        """
        return self.copy if self.state in {COPYING, HELD, DONE} else None

    @property
    def is_of_point(self) -> bool:
        """Whether the device is to hold a restore point of its own."""
        return self.backup is None and self.copy is None

    @property
    def backup(self) -> tuple[str, str] | None:
        """The names of the repository and of the backup; None: the order is for no backup."""
        repository, sign, backup = self.point.partition(_IN_REPOSITORY)
        return (repository, backup) if sign else None

    @property
    def source(self) -> str:
        """The restore point, backup or copy that the device is to hold, for people."""
        copy = self.copy
        if copy is not None:
            return f"copy {copy.name}"
        return f"{'restore point' if self.backup is None else 'backup'} {self.point}"

    @property
    def is_open(self) -> bool:
        """Whether no host may use the device because of it."""
        return self.state not in _ENDED

    def __str__(self) -> str:
        kept = self.kept_token or _NOT_KEPT
        words = [self.token, self.point, self.point_token, kept, str(self.given_s), self.state]
        words += [_KEPT_ON_FEW] * self.may_keep_on_few + [_HOLDS] * self.holds
        words += [_UNSURE] * self.is_unsure + [f"{_TURN}{self.turn}"] * bool(self.turn)
        return " ".join((*words, *((f"{_BASE}{self.base}",) if self.base else ())))


def _value_of(words: list[str], prefix: str) -> str:
    """Return what follows a prefix in the one word that has it; empty: none has."""
    return next((each.removeprefix(prefix) for each in words if each.startswith(prefix)), "")


def packed(order: str) -> str:
    """Return an order as one word; none has the sign that stands for a space."""
    return order.replace(" ", "+")


def parse_packed(text: str) -> RestoreOrder | None:
    """Read what `packed` wrote; None for anything else."""
    return RestoreOrder.parse(text.replace("+", " "))


def closes(text: str) -> bool:
    """Whether a device with this parameter `restore` lets no host in.

    An order of another release that this one cannot read closes the device, too.
    """
    if not text:
        return False
    order = RestoreOrder.parse(text)
    return order is None or order.is_open


class RestoreReport(NamedTuple):
    """How far a node has come with an order.

    Attributes:
        token: the order's.
        code: of the problem that keeps it from going on; empty: none.
        text: the problem, or what it waits for; empty while it copies.
        done_bytes: how much of the device has been compared, and written where it differed.
        total_bytes: the size of the device.
        written_bytes: how much differed.
    """

    token: str
    code: str = ""
    text: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    written_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> RestoreReport | None:
        """Read what `str` wrote; None for anything else."""
        token, _, rest = text.partition(" ")
        kind, _, rest = rest.partition(" ")
        if not _TOKEN.fullmatch(token) or not rest:
            return None
        if kind == _WAITING:
            return cls(token, text=rest)
        if kind == _FAILED:
            code, _, why = rest.partition(" ")
            return cls(token, code, why) if why else None
        numbers = rest.split(" ")
        if kind != _COPYING or len(numbers) != 3 or not all(map(str.isdecimal, numbers)):
            return None
        return cls(token, "", "", *map(int, numbers))

    @property
    def percent(self) -> float:
        """The share that is done."""
        return 100.0 * min(1.0, self.done_bytes / self.total_bytes) if self.total_bytes else 0.0

    def __str__(self) -> str:
        if self.code:
            return f"{self.token} {_FAILED} {self.code} {self.text}"
        if self.text:
            return f"{self.token} {_WAITING} {self.text}"
        numbers = (self.done_bytes, self.total_bytes, self.written_bytes)
        return " ".join((self.token, _COPYING, *map(str, numbers)))
