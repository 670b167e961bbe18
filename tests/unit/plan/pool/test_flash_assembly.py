# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's disk and flash are only put together in ways that show the latest acknowledged write.

Every order of writes, failures, returns, crashes, orderly stops and steps of changing the mode,
on a model of what bcache does (read in Linux 6.7: super.c, writeback.c, request.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Attachment, Superblock
from sanctl.plan.pool.flash_assembly import AssemblyAction, choose_assembly

LABEL = "a" * 32
MOST_WRITES = 3
Rule = Callable[..., AssemblyAction]


@dataclass(frozen=True)
class World:
    """One node's disk and flash. Versions count acknowledged writes to one block."""

    acked: int = 0
    disk: int = 0
    flash: int | None = None
    flash_set: int = 1
    is_here: bool = True
    disk_set: int = 1
    state: Attachment = Attachment.CLEAN
    is_running: bool = False
    is_attached: bool = False
    is_write_back: bool = False
    is_noted: bool = False
    stopped_with: int = 0

    @property
    def shown(self) -> int:
        return self.flash if self.is_attached and self.flash is not None else self.disk

    @property
    def is_clean(self) -> bool:
        return self.flash is None or self.flash <= self.disk


def kernel(now: World) -> Iterator[World]:
    """What bcache and the world do by themselves."""
    if now.is_running and now.acked < MOST_WRITES:
        next_ = now.acked + 1
        if now.is_attached and now.is_write_back:
            written = replace(now, acked=next_, flash=next_)
            # The superblock follows a little later: a crash may come before it.
            yield written
            yield replace(written, state=Attachment.DIRTY)
        else:
            flash = next_ if now.is_attached else now.flash
            yield replace(now, acked=next_, disk=next_, flash=flash)
    if now.is_running and now.is_attached:
        if now.flash is not None:
            yield replace(now, disk=now.flash, state=Attachment.CLEAN)
        if not now.is_clean or now.state is Attachment.DIRTY:
            yield replace(now, is_here=False, is_running=False, is_attached=False)
        else:
            # The agent's next monitor takes the note away. A crash before that, with flash that
            # works again afterwards, is what docs/adr/0031 leaves open.
            yield replace(now, is_here=False, is_attached=False, is_noted=False)
    yield replace(now, is_running=False, is_attached=False)
    yield replace(now, is_here=not now.is_here) if not now.is_attached else now


def steps(now: World) -> Iterator[World]:
    """The steps of flash.py's changes of the mode, each of which may be the last."""
    if not (now.is_running and now.is_attached):
        return
    if not now.is_write_back:
        yield replace(now, is_noted=True)
        if now.is_noted:
            yield replace(now, is_write_back=True)
        if now.is_clean and now.state is not Attachment.DIRTY:
            yield replace(now, is_noted=False)
    else:
        yield replace(now, is_write_back=False)


def unit(now: World, rule: Rule) -> Iterator[World]:
    """The service's start and stop."""
    if now.is_running:
        stopped = replace(now, is_running=False, is_attached=False)
        if now.is_attached and now.state is Attachment.CLEAN:
            yield replace(stopped, stopped_with=now.disk_set)
        yield stopped
        return
    act = rule(
        label=LABEL,
        origin=Superblock(False, str(now.disk_set), LABEL, now.state, CacheMode.NONE),
        flash=Superblock(True, str(now.flash_set), LABEL, Attachment.NONE, CacheMode.NONE)
        if now.is_here
        else None,
        is_noted_write_back=now.is_noted,
        stopped_with=str(now.stopped_with) if now.stopped_with else "",
    )
    begun = replace(now, stopped_with=0, is_running=True)
    if act is AssemblyAction.ATTACH:
        yield replace(begun, is_attached=True)
    elif act is AssemblyAction.RENEW:
        number = 3 - now.flash_set  # another than the one before
        yield replace(
            begun,
            is_attached=True,
            flash=None,
            flash_set=number,
            disk_set=number,
            state=Attachment.CLEAN,
            is_write_back=False,
        )
    elif act is AssemblyAction.ALONE:
        yield replace(begun, state=Attachment.STALE)


def wrong(rule: Rule) -> World | None:
    """Return a reachable world that shows something else than was acknowledged."""
    seen = {World()}
    left = [World()]
    while left:
        now = left.pop()
        if now.is_running and now.shown != now.acked:
            return now
        for following in (*kernel(now), *steps(now), *unit(now, rule)):
            if following not in seen:
                seen.add(following)
                left.append(following)
    assert len(seen) > 500
    return None


def test_whatever_happens_the_latest_write_is_shown() -> None:
    assert wrong(choose_assembly) is None


def trusting_any_clean_flash(**facts: object) -> AssemblyAction:
    origin = facts["origin"]
    assert isinstance(origin, Superblock)
    return choose_assembly(**{**facts, "stopped_with": origin.set_uuid})  # type: ignore[arg-type]


def without_the_note(**facts: object) -> AssemblyAction:
    return choose_assembly(**{**facts, "is_noted_write_back": False})  # type: ignore[arg-type]


def using_the_disk_alone(**facts: object) -> AssemblyAction:
    act = choose_assembly(**facts)  # type: ignore[arg-type]
    return AssemblyAction.ALONE if act is AssemblyAction.REFUSE else act


@pytest.mark.parametrize("rule", [trusting_any_clean_flash, without_the_note, using_the_disk_alone])
def test_a_weaker_rule_is_found_out(rule: Rule) -> None:
    assert wrong(rule) is not None


def ours(state: Attachment = Attachment.CLEAN, set_uuid: str = "1") -> Superblock:
    return Superblock(False, set_uuid, LABEL, state, CacheMode.WRITE_THROUGH)


@pytest.mark.parametrize(
    "origin", [None, ours()._replace(label="b"), ours()._replace(is_flash=True)]
)
def test_a_disk_that_is_not_the_pools_is_not_touched(origin: Superblock | None) -> None:
    told = choose_assembly(
        label=LABEL, origin=origin, flash=None, is_noted_write_back=False, stopped_with=""
    )
    assert told is AssemblyAction.FOREIGN


@pytest.mark.parametrize("state", Attachment)
@pytest.mark.parametrize("label", ["b", ""])
def test_flash_that_is_not_the_pools_is_not_emptied(state: Attachment, label: str) -> None:
    flash = Superblock(True, "1", label, Attachment.NONE, CacheMode.NONE)
    told = choose_assembly(
        label=LABEL, origin=ours(state), flash=flash, is_noted_write_back=False, stopped_with="1"
    )
    assert told is (AssemblyAction.REFUSE if state is Attachment.DIRTY else AssemblyAction.ALONE)


def test_flash_stays_warm_over_an_orderly_stop() -> None:
    flash = Superblock(True, "1", LABEL, Attachment.NONE, CacheMode.NONE)
    told = choose_assembly(
        label=LABEL, origin=ours(), flash=flash, is_noted_write_back=False, stopped_with="1"
    )
    assert told is AssemblyAction.ATTACH
