# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that comes back with an older CIB knows from its own disk that the device was held."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import lost_writes, older_cib
from sanctl.agents.replica.parts import Device
from sanctl.agents.restore import closure, noted_hold, own_cib
from sanctl.drivers.pool_files import DeviceFiles, delete
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    HELD,
    OLDER_KEY,
    ORDERED,
    RestoreOrder,
    packed,
)
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.device.restoring import Stuck
from sanctl.system import state_files
from tests.unit.agents.restore.test_closure import (
    COPY,
    DEVICE,
    HOLDS,
    ORDER,
    RUNNER,
    InCib,
    in_cib,
)
from tests.unit.plan.device.test_held_restore import needing
from tests.unit.plan.device.test_restoring import step

__all__ = ["in_cib"]

HELD_ORDER = HOLDS._replace(state=HELD)
#: What the CIB on a node's disk may have had before.
BEFORE = ORDER._replace(token="e" * 16, given_s=ORDER.given_s - 1, state=DONE)


class Replica:
    """The files of a device on this node, and what the journal says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = folder / f"web.{DEVICE.uuid}.data"
        self.data.touch()
        self.note = Path(noted_hold.path_of(str(self.data)))
        self.said: list[str] = []
        self.is_on_disk = self.is_attached = True
        monkeypatch.setattr(
            lost_writes, "data_file", lambda _name: str(self.data) if self.is_attached else None
        )
        monkeypatch.setattr(closure, "_log", lambda _name, text: self.said.append(text))
        monkeypatch.setattr(own_cib, "is_on_disk", lambda *_, **__: self.is_on_disk)

    @property
    def noted(self) -> RestoreOrder | None:
        return RestoreOrder.parse(self.note.read_text().strip()) if self.note.exists() else None

    def boot(self, in_cib: InCib, order: str) -> Device:
        """Start the replica after a boot, with what the CIB has then."""
        state_files.remove_device("web")
        in_cib.order = order
        self.is_attached = False
        found = closure.at_start(RUNNER, closure.as_ordered(DEVICE, order), str(self.data))
        self.is_attached = True
        return found


@pytest.fixture
def replica(in_cib: InCib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    folder = tmp_path / "devices-of-pool"
    folder.mkdir()
    return Replica(folder, monkeypatch)


def seen(order: RestoreOrder) -> Device:
    return closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(order)))


def published() -> str:
    return older_cib.published_field("web")


@pytest.mark.parametrize("before", ["", str(BEFORE)])
@pytest.mark.parametrize("last", [HOLDS, HOLDS._replace(state=COPYING), HELD_ORDER])
def test_an_older_cib_lets_no_host_in(
    in_cib: InCib, replica: Replica, last: RestoreOrder, before: str
) -> None:
    assert seen(last).restore and replica.noted == last and published() == ""
    found = replica.boot(in_cib, before)
    assert found.restore and found.all_initiators == ()
    for _ in range(2):
        assert closure.as_known(RUNNER, DEVICE).restore
    assert published() == f" {OLDER_KEY}={packed(str(last))}"
    assert parse_replica_state(published()).noted_hold == last
    assert len(replica.said) == 1 and "SAN-HLT-170" in replica.said[0], "once, and not each time"
    # A node with the newer CIB comes back: there it is held, and then let in.
    in_cib.order = str(HELD_ORDER)
    assert seen(HELD_ORDER).restore and published() == "" and replica.noted == HELD_ORDER
    in_cib.order = str(HELD_ORDER.in_state(DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert replica.noted == HELD_ORDER.in_state(DONE)
    assert replica.boot(in_cib, in_cib.order) == DEVICE, "it is held no more"


def test_an_operator_lets_hosts_in(in_cib: InCib, replica: Replica) -> None:
    seen(HELD_ORDER)
    assert replica.boot(in_cib, "").restore
    # An order that no node takes for an older one (plan/site/hold_release.py).
    in_cib.order = str(HELD_ORDER._replace(given_s=HELD_ORDER.given_s + 1).in_state(GIVEN_UP))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and published() == ""


def test_a_node_that_has_booted_knows_that_it_was_held(in_cib: InCib, replica: Replica) -> None:
    """So it waits for its own disk before a host is let in, as one that has seen the order."""
    seen(HELD_ORDER)
    replica.is_on_disk = False
    ended = str(HELD_ORDER.in_state(DONE))
    assert replica.boot(in_cib, ended).restore
    assert replica.noted == HELD_ORDER and "not on this node's disk" in replica.said[0]
    assert closure.as_known(RUNNER, DEVICE).restore
    replica.is_on_disk = True
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    # From then on an older CIB that lets hosts in does what the newer one did.
    for order in (ended, "", str(BEFORE)):
        assert replica.boot(in_cib, order) == DEVICE


def test_an_older_cib_does_not_begin_the_hold_again(in_cib: InCib, replica: Replica) -> None:
    ended = HELD_ORDER.in_state(DONE)
    seen(HELD_ORDER)
    in_cib.order = str(ended)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert replica.boot(in_cib, str(HELD_ORDER)).restore
    assert closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(HELD_ORDER))).restore
    assert replica.noted == ended, "what hosts wrote since is not that copy"


@pytest.mark.parametrize("state", [ORDERED, COPYING])
@pytest.mark.parametrize("later_s", [0, 1000])
def test_an_older_cib_carries_out_no_order_that_has_ended_here(
    in_cib: InCib, replica: Replica, state: str, later_s: int
) -> None:
    """Also where the note is of a later hold: what hosts wrote since would be overwritten."""
    order = HOLDS._replace(state=state)
    last = HELD_ORDER._replace(given_s=HELD_ORDER.given_s + later_s)
    ended = last.in_state(DONE)
    seen(last)
    in_cib.order = str(ended)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and replica.noted == ended
    assert replica.boot(in_cib, str(order)).restore
    assert replica.noted == ended and parse_replica_state(published()).noted_hold == ended
    for _ in range(2):
        assert seen(order).restore and replica.noted == ended
    found = step(needing(order), noted_here=str(replica.noted))
    assert isinstance(found, Stuck) and found.problem.code == "SAN-REST-015"


@pytest.mark.parametrize("order", [HOLDS._replace(state=COPYING), ORDER._replace(state=COPYING)])
def test_what_another_node_has_noted_is_noted_here(
    in_cib: InCib, replica: Replica, order: RestoreOrder
) -> None:
    """So the older order does not go on once that node leaves again."""
    ended = HELD_ORDER._replace(given_s=9000).in_state(DONE)
    in_cib.order = str(order)
    assert seen(order).restore and not published()
    closure.note_of_others("web", str(ended))
    assert replica.noted == ended
    for _ in range(2):
        assert seen(order).restore and replica.noted == ended
        assert parse_replica_state(published()).noted_hold == ended
    found = step(needing(order), noted_here=str(replica.noted))
    assert isinstance(found, Stuck) and found.problem.code == "SAN-REST-015"
    # A later one takes its place, as ever, and the CIB of the end is the newer one here, too.
    in_cib.order = str(ended)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and not published()
    assert replica.noted == ended


def test_an_order_of_an_older_cib_does_not_take_the_note_away(
    in_cib: InCib, replica: Replica
) -> None:
    """It is one that was under way then, and ends as ever."""
    seen(HELD_ORDER)
    assert replica.boot(in_cib, str(BEFORE._replace(state=COPYING))).restore
    assert replica.noted == HELD_ORDER
    # What is ordered in its place has to be newer than that as well.
    assert parse_replica_state(published()).noted_hold == HELD_ORDER
    in_cib.order = str(BEFORE)
    assert closure.as_known(RUNNER, DEVICE).restore and published()


def test_an_open_order_of_an_older_cib_is_published_as_such(
    in_cib: InCib, replica: Replica
) -> None:
    """By a clock that was ahead the noted one would be newer than all that follow."""
    ahead = HELD_ORDER._replace(given_s=9000)
    seen(ahead)
    for order in (HOLDS, HOLDS._replace(state=COPYING), HELD_ORDER):
        assert seen(order).restore and replica.noted == ahead
        assert parse_replica_state(published()).noted_hold == ahead
    # What is given then is newer, is noted, and ends.
    newer = HOLDS._replace(token="6" * 16, given_s=9001, state=COPYING)
    assert seen(newer).restore and replica.noted == newer and not published()
    in_cib.order = str(newer.in_state(DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and not published()
    # So it is where the hold has ended here, and is said to stand.
    assert replica.boot(in_cib, str(newer._replace(state=HELD))).restore
    assert parse_replica_state(published()).noted_hold == newer.in_state(DONE)


def test_a_plain_restore_after_the_hold_publishes_nothing(in_cib: InCib, replica: Replica) -> None:
    seen(HELD_ORDER)
    assert replica.boot(in_cib, str(BEFORE)).restore and published()
    state_files.remove_device("web")
    newer = ORDER._replace(token="6" * 16, given_s=9000)
    assert seen(newer).restore and not published() and replica.noted == newer


def test_half_of_a_plain_restore_after_a_hold_is_no_device_for_a_host(
    in_cib: InCib, replica: Replica
) -> None:
    """The CIB of its begin is lost, and the one of before says that the hold has ended."""
    ended = HELD_ORDER.in_state(DONE)
    seen(HELD_ORDER)
    in_cib.order = str(ended)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and replica.noted == ended
    plain = ORDER._replace(token="6" * 16, given_s=9000, state=COPYING)
    assert seen(plain).restore and replica.noted == plain
    assert replica.boot(in_cib, str(ended)).restore and published()
    done = plain._replace(state=DONE)
    in_cib.order = str(done)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and replica.noted == done


def test_a_node_that_starts_does_not_say_what_may_have_begun_elsewhere(
    in_cib: InCib, replica: Replica
) -> None:
    """All nodes lost their power when another one had begun, and the CIB here is of before."""
    later = COPY._replace(point="later", token="5" * 16)
    following = HOLDS._replace(token="6" * 16, given_s=2000, point=str(later), base=COPY)
    seen(HELD_ORDER)
    assert seen(following).restore and replica.noted == following and not published()
    begun = following.in_state(COPYING)
    assert replica.boot(in_cib, str(following)).restore and replica.noted == begun
    assert parse_replica_state(published()).noted_hold == begun
    # Where the CIB is of the begin, or of a later one, it says nothing more.
    for order in (begun, begun.in_state(HELD)):
        assert replica.boot(in_cib, str(order)).restore and not published()


def test_a_start_that_fails_for_want_of_room_says_it_when_it_is_tried_again(
    in_cib: InCib, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no stop has come in between: the state file stands then."""
    later = COPY._replace(point="later", token="5" * 16)
    following = HOLDS._replace(token="6" * 16, given_s=2000, point=str(later), base=COPY)
    assert seen(following).restore and replica.noted == following

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(noted_hold, "write_atomically", full)
        with pytest.raises(OSError, match="no space"):
            replica.boot(in_cib, str(following))
    again = closure.as_ordered(DEVICE, str(following))
    assert closure.at_start(RUNNER, again, str(replica.data)).restore
    assert replica.noted == following.in_state(COPYING)


def test_a_note_that_a_damaged_disk_gives_does_no_harm_to_what_is_published(
    in_cib: InCib, replica: Replica
) -> None:
    """The state of the replica would be gone, or say what the note says."""
    in_cib.order = str(HELD_ORDER.in_state(DONE))
    odd = str(HELD_ORDER).replace(str(COPY), "x\trole=Primary")
    for text in ("a\0b", 'a;b"<>&', "a\nb disk=UpToDate", "a\tdisk=UpToDate", "\ufffd", odd):
        replica.note.write_text(f"{text}\n")
        assert replica.boot(in_cib, in_cib.order).restore
        assert published() == f" {OLDER_KEY}=?"
        found = parse_replica_state(f"disk=Outdated{published()} role=Secondary")
        assert found.is_cib_older and found.noted_hold is None
        assert (found.disk, found.role) == ("Outdated", "Secondary")


def test_a_restore_that_is_no_hold_is_not_noted(in_cib: InCib, replica: Replica) -> None:
    seen(ORDER)
    closure.note("web", str(ORDER._replace(state=COPYING)))
    assert not replica.note.exists()
    in_cib.order = str(ORDER._replace(state=DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert replica.boot(in_cib, "") == DEVICE


def test_what_cannot_be_read_or_written(
    in_cib: InCib, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(noted_hold, "write_atomically", full)
        assert seen(HOLDS).restore and replica.boot(in_cib, str(HOLDS)).restore
        # So that the node that serves does not begin.
        assert parse_replica_state(published()).is_hold_unnoted
        assert not parse_replica_state(published()).is_cib_older
        with pytest.raises(OSError, match="no space"):
            closure.note("web", str(HOLDS))
    assert replica.noted is None
    # The next monitor makes up for it.
    assert seen(HOLDS).restore and replica.noted == HOLDS and not published()
    # Hosts are let in where the end cannot be noted: the CIB on the disk says so, too.
    in_cib.order = str(HOLDS._replace(holds=False, state=DONE))
    with monkeypatch.context() as patched:
        patched.setattr(noted_hold, "write_atomically", full)
        for _ in range(2):
            assert closure.as_known(RUNNER, DEVICE) == DEVICE
        # An older CIB would say that it is the copy still: each monitor tries again.
        assert parse_replica_state(published()).is_hold_unnoted and replica.noted == HOLDS
        assert len([text for text in replica.said if "SAN-HLT-175" in text]) == 1
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and not published()
    assert replica.noted == RestoreOrder.parse(in_cib.order)
    replica.note.write_text("damaged\n")
    assert replica.boot(in_cib, in_cib.order).restore
    assert parse_replica_state(published()).is_cib_older

    def broken(*_: object) -> str:
        raise OSError(5, "input/output error")

    # A replica that keeps hosts out is worth more than none.
    with monkeypatch.context() as patched:
        patched.setattr(noted_hold, "read_text_or", broken)
        assert closure.as_known(RUNNER, DEVICE).restore
        for order in ("", in_cib.order):
            assert replica.boot(in_cib, order).restore
            found = parse_replica_state(published())
            assert found.is_cib_older and found.noted_hold is None
    replica.note.write_text(f"{HOLDS}\n")
    in_cib.order = str(HOLDS._replace(holds=False, state=DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and not published()


def test_a_plain_restore_beside_a_note_that_cannot_be_read(
    in_cib: InCib, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An action that was ordered before it lets no host in, and what it could not note is over."""

    def broken(*_: object) -> str:
        raise OSError(5, "input/output error")

    in_cib.order = str(ORDER)
    with monkeypatch.context() as patched:
        patched.setattr(noted_hold, "read_text_or", broken)
        assert seen(ORDER).restore and parse_replica_state(published()).is_hold_unnoted
        assert closure.as_known(RUNNER, DEVICE).restore
    in_cib.order = str(ORDER._replace(state=DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE and not published()
    assert replica.noted is None


def test_without_its_disk_a_node_goes_by_the_cib(in_cib: InCib, replica: Replica) -> None:
    seen(HOLDS)
    replica.is_attached = False
    seen(HELD_ORDER)
    assert replica.noted == HOLDS
    replica.is_attached = True
    seen(HELD_ORDER)
    assert replica.noted == HELD_ORDER, "the next monitor makes up for it"
    replica.is_attached = False
    in_cib.order = str(BEFORE)
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert replica.noted == HELD_ORDER, "which the next start looks at"


def test_the_note_goes_with_the_data(replica: Replica) -> None:
    seen(HELD_ORDER)
    assert replica.noted
    (replica.data.parent.parent / "points").mkdir(exist_ok=True)
    delete(DeviceFiles(str(replica.data), str(replica.data.with_suffix(".meta"))))
    assert not replica.note.exists()
