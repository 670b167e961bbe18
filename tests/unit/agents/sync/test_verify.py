# SPDX-License-Identifier: GPL-2.0-or-later
"""A verify order is carried out once; with DRBD 8.4 only a standby has differences repaired."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify, verify_history
from sanctl.drivers import drbdadm, kernel_log, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.verify_result import VerifyResult
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

NOW = int(time.time())
PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
ACTIVE = ResourceState("vm1", "Primary", "no", "UpToDate", 1024, (PEER,))
LOG = [
    (1, "block drbd3: Out of sync: start=8, size=8 (sectors)"),
    (7, "block drbd3: Out of sync: start=16, size=16 (sectors)"),
    (8, "block drbd4: Out of sync: start=16, size=16 (sectors)"),
    (9, "block drbd3: Out of sync: start=1024, size=8 (sectors)"),
    (10, "block drbd3: Online verify done (total 1 sec; paused 0 sec; 65536 K/sec)"),
    (11, "drbd vm1/0 drbd3 n2: Online verify done (total 1 sec; paused 0 sec; 65536 K/sec)"),
    (12, "drbd vm1/0 drbd3 n3: Online verify done (total 1 sec; paused 0 sec; 65536 K/sec)"),
]


def standby(*, kib: int = 8, replication: str = "Established") -> ResourceState:
    peer = PEER._replace(role="Primary", out_of_sync_kib=kib, replication=replication)
    return ACTIVE._replace(role="Secondary", peers=(peer,))


def device(order: str = "", policy: str = "") -> Device:
    return Device("vm1", "a" * 32, 1 << 20, "", ("n1", "n2"), 3, (), policy, order)


class Node(FakeRunner):
    def __init__(self, published: str = "") -> None:
        super().__init__(self._answer)
        self.published = published

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[1] == "--query":
            return f'name="sanctl.verify.vm1" host="n2" value="{self.published}"\n'
        return ""

    @property
    def acts(self) -> list[str]:
        return [" ".join(argv[:3]) for argv, _ in self.calls if argv[0].startswith("drbd")]


@pytest.fixture(autouse=True)
def here(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_node.states["vm1"] = None
    monkeypatch.setattr(
        device_files, "note_path", lambda d, kind: str(tmp_path / f"{d.name}.{kind}")
    )
    monkeypatch.setattr(kernel_log, "newest", lambda: 5)
    monkeypatch.setattr(kernel_log, "records", lambda: iter(LOG))
    return tmp_path


def latest(here: Path) -> VerifyResult:
    found = VerifyResult.parse((here / "vm1.verify").read_text().splitlines()[-1])
    assert found is not None
    return found


def test_an_order_is_carried_out_once_and_the_ranges_that_differ_are_recorded(here: Path) -> None:
    node, ordered = Node(), device(str(NOW))
    assert verify.begin(node, ordered, ACTIVE)
    assert not verify.begin(node, ordered, ACTIVE)
    assert node.acts == ["drbdsetup verify 3"]
    going = ACTIVE._replace(peers=(PEER._replace(replication="VerifyS"),))
    assert verify.track(node, ordered, going)
    ended = ACTIVE._replace(peers=(PEER._replace(out_of_sync_kib=12),))
    assert not verify.track(node, ordered, ended)
    result = latest(here)
    assert (result.result, result.found_kib) == ("differs", 12)
    # Of this device, and found by this verify.
    assert result.ranges == ("8192+8192", "524288+4096")
    assert not verify.begin(node, ordered, ACTIVE)


@pytest.mark.parametrize(
    ("result", "number", "is_begun"),
    [
        ("same", NOW, False),
        ("differs", NOW, False),
        ("repaired", NOW, False),
        ("interrupted", NOW, True),
        ("running", NOW, True),
        ("same", NOW - 60, True),
    ],
)
def test_a_new_primary_does_not_repeat_a_verify_that_is_done(
    here: Path, result: str, number: int, is_begun: bool
) -> None:
    done = VerifyResult(number, result, NOW - 9, NOW - 3, 0)
    node = Node(done.published)
    assert verify.begin(node, device(str(NOW)), ACTIVE) is is_begun
    if not is_begun:
        asked = len(node.calls)
        assert latest(here) == done
        assert not verify.begin(node, device(str(NOW)), ACTIVE)
        assert not any(argv[1] == "--query" for argv, _ in node.calls[asked:]), "asked once"


def test_an_order_that_is_done_is_not_repeated_after_one_that_lies_ahead(here: Path) -> None:
    """The clock was ahead when a verify by schedule ran, and was put back since."""
    done, ahead = (VerifyResult(at, "same", at, at, 0) for at in (NOW, NOW + 10**8))
    (here / "vm1.verify").write_text(f"{done}\n{ahead}\n")
    assert not verify.begin(Node(), device(str(NOW)), ACTIVE)
    assert verify.begin(Node(), device(str(NOW + 1)), ACTIVE), "one that is not done"


def test_a_new_primary_repeats_a_verify_whose_differences_have_to_be_repaired(here: Path) -> None:
    result = VerifyResult(NOW, "differs", NOW - 9, NOW - 3, 8)
    assert verify.begin(Node(result.published), device(f"{NOW}:repair"), ACTIVE)
    assert latest(here).result == "running"


def test_a_verify_without_connection_is_interrupted(here: Path) -> None:
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, ACTIVE)
    gone = PEER._replace(connection="Connecting", replication="Off", disk="DUnknown")
    verify.track(node, ordered, ACTIVE._replace(peers=(gone,)))
    assert latest(here).result == "interrupted"


def without_end_in_log(monkeypatch: pytest.MonkeyPatch, here: Path, how: str) -> None:
    """What leaves the replicas in sync although the verify did not compare all of them."""
    broken_off = [(number, text) for number, text in LOG if "Online verify" not in text]
    if how == "another's":
        broken_off += [(10, "block drbd4: Online verify done (total 1 sec)")]
    elif how == "an earlier one's":
        broken_off += [(5, "block drbd3: Online verify done (total 1 sec)")]
        broken_off += [(5, "drbd vm1/0 drbd3 n2: Online verify done (total 1 sec)")]
    elif how == "another peer's":
        broken_off += [(10, "drbd vm1/0 drbd3 n3: Online verify done (total 1 sec)")]
    elif how == "the node crashed":
        (here / "devices/vm1/verify-position").unlink()
        return
    monkeypatch.setattr(kernel_log, "records", lambda: iter(broken_off))


@pytest.mark.parametrize("how", ["none", "another's", "an earlier one's", "the node crashed"])
def test_replicas_in_sync_are_no_proof_before_drbd_logs_the_end(
    here: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Connection lost and back between two polls: what is in sync was not compared."""
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, ACTIVE)
    without_end_in_log(monkeypatch, here, how)
    assert not verify.track(node, ordered, ACTIVE)
    assert latest(here).result == "interrupted"


def test_a_verify_that_is_refused_keeps_the_position_of_the_one_before(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, ordered = Node(), device(str(NOW - 9))
    verify.begin(node, ordered, ACTIVE)
    node.answer = CommandError(Problem("SAN-CMD-003", "a verify runs"))
    monkeypatch.setattr(kernel_log, "newest", lambda: 10)
    monkeypatch.setattr(verify, "_is_done_on_peer", lambda *_: False)
    with pytest.raises(CommandError):
        verify.begin(node, device(str(NOW)), ACTIVE)
    node.answer = node._answer
    verify.track(node, ordered, ACTIVE)
    assert latest(here).result == "same"


def test_a_verify_begun_after_the_poll_has_not_ended(here: Path, fake_node: FakeNode) -> None:
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, ACTIVE)
    going = ACTIVE._replace(peers=(PEER._replace(replication="VerifyS"),))
    fake_node.states["vm1"] = going
    assert verify.track(node, ordered, ACTIVE)
    assert latest(here).result == "running"


def test_replicas_that_are_the_same(here: Path) -> None:
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, ACTIVE)
    verify.track(node, ordered, ACTIVE)
    assert (latest(here).result, latest(here).ranges) == ("same", ())


@pytest.mark.parametrize(
    "state", [standby(), ACTIVE._replace(peers=()), ACTIVE._replace(disk="Inconsistent")]
)
def test_only_a_primary_with_a_good_peer_begins_a_verify(here: Path, state: ResourceState) -> None:
    node = Node()
    assert not verify.begin(node, device(str(NOW)), state)
    assert not verify.begin(node, device(), ACTIVE)
    assert node.calls == []


def test_a_verify_begins_by_schedule(fake_node: FakeNode, here: Path) -> None:
    """By the second monitor that finds it due: whose turn it is is in test_verify_turn.py."""
    hour = time.localtime().tm_hour
    node = Node()
    assert not verify.begin(node, device("", f"verify=daily@{hour:02}"), ACTIVE)
    fake_node.clock.now_s += 60
    assert verify.begin(node, device("", f"verify=daily@{hour:02}"), ACTIVE)
    assert not verify.begin(node, device("", f"verify=daily@{hour:02}"), ACTIVE)
    assert not verify.begin(node, device("", f"verify=daily@{(hour + 2) % 24:02}"), ACTIVE)


def test_the_standby_repairs_the_differences_of_this_order(here: Path) -> None:
    number = NOW - 60
    ordered = device(f"{number}:repair")
    node = Node(VerifyResult(number, "differs", 1, 2, 8).published)
    assert verify.track(node, ordered, standby())
    assert node.acts == ["drbdadm disconnect vm1", "drbdadm adjust vm1"]
    assert latest(here).result == "repairing"
    # Not again while it lasts, and not again when it is over.
    assert verify.track(node, ordered, standby(replication="SyncTarget"))
    assert not verify.track(node, ordered, standby(kib=0))
    assert latest(here).result == "repaired"
    assert not verify.track(node, ordered, standby())
    assert len(node.acts) == 2


@pytest.mark.parametrize(
    ("order", "state"),
    [
        pytest.param("", standby(replication="SyncTarget"), id="no order"),
        pytest.param(f"{NOW - 50}", standby(replication="SyncTarget"), id="another order"),
        pytest.param(f"{NOW - 60}:repair", ACTIVE._replace(peers=()), id="Primary"),
    ],
)
def test_a_repair_that_is_cancelled_is_interrupted(
    here: Path, order: str, state: ResourceState
) -> None:
    node = Node(VerifyResult(NOW - 60, "differs", 1, 2, 8).published)
    verify.track(node, device(f"{NOW - 60}:repair"), standby())
    acts = len(node.acts)
    assert not verify.track(node, device(order), state)
    assert latest(here).result == "interrupted" and len(node.acts) == acts


@pytest.mark.parametrize(
    ("order", "peer_result", "state"),
    [
        pytest.param(f"{NOW - 60}", "differs", standby(), id="no repair was ordered"),
        pytest.param(f"{NOW - 60}:repair", "same", standby(), id="nothing was found"),
        pytest.param(f"{NOW - 60}:repair", "running", standby(), id="not yet found"),
        pytest.param(f"{NOW - 90000}:repair", "differs", standby(), id="too late"),
        pytest.param(f"{NOW - 60}:repair", "differs", standby(kib=0), id="nothing is marked"),
        pytest.param(f"{NOW - 60}:repair", "differs", ACTIVE, id="Primary"),
    ],
)
def test_nothing_else_is_repaired(order: str, peer_result: str, state: ResourceState) -> None:
    number = int(order.partition(":")[0])
    node = Node(VerifyResult(number, peer_result, 1, 2, 8).published)
    verify.track(node, device(order), state)
    assert node.acts == []


def test_the_result_of_another_order_does_not_count() -> None:
    node = Node(VerifyResult(NOW - 500, "differs", 1, 2, 8).published)
    verify.track(node, device(f"{NOW - 60}:repair"), standby())
    assert node.acts == []


def test_the_replica_is_connected_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(drbdadm, "disconnect", fails)
    node = Node(VerifyResult(NOW - 60, "differs", 1, 2, 8).published)
    with pytest.raises(OSError, match="no more"):
        verify.track(node, device(f"{NOW - 60}:repair"), standby())
    assert node.acts == ["drbdadm adjust vm1"]


# DRBD 9: one peer after the other.


#: DRBD 9 says of which peer a line is.
NINE_LOG = [
    (6, "drbd vm1/0 drbd3 n2: Starting Online Verify from sector 0"),
    *(
        (number, text.replace("block drbd3", f"drbd vm1/0 drbd3 {'n3' if number == 9 else 'n2'}"))
        for number, text in ((number, text.replace("size=16", "size=8")) for number, text in LOG)
        if number > 6
    ),
]


@pytest.fixture
def nine(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_node.generation = 9
    monkeypatch.setattr(kernel_log, "records", lambda: iter(NINE_LOG))


def several(**changed: PeerState) -> ResourceState:
    """The Primary and two peers."""
    peers = {
        name: PEER._replace(name=name, node_id=number) for name, number in (("n3", 2), ("n2", 1))
    } | changed
    return ACTIVE._replace(peers=tuple(peers.values()))


def peer(number: int, **more: Any) -> PeerState:
    return PEER._replace(name=f"n{number + 1}", node_id=number, **more)


COMPARE = ["drbdsetup verify vm1 1 0 --start=0", "drbdsetup verify vm1 2 0 --start=0"]


def drbdsetup_calls(node: Node) -> list[str]:
    return [" ".join(argv) for argv, _ in node.calls if argv[0] == "drbdsetup"]


@pytest.mark.usefixtures("nine")
def test_drbd_9_compares_with_each_peer(here: Path) -> None:
    node, ordered = Node(), device(str(NOW))
    assert verify.begin(node, ordered, several())
    assert verify.track(node, ordered, several(n2=peer(1, replication="VerifyS")))
    assert verify.track(node, ordered, several(n2=peer(1, out_of_sync_kib=4)))
    assert latest(here).result == "running"
    # What the first comparison found may be forgotten by the second: it was written down.
    assert not verify.track(node, ordered, several(n3=peer(2, out_of_sync_kib=8)))
    assert drbdsetup_calls(node) == COMPARE
    result = latest(here)
    assert (result.result, result.found_kib) == ("differs", 12)
    assert result.ranges == ("8192+4096", "524288+4096")
    assert not verify.track(node, ordered, several())


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    ("left_out", "result", "kib"),
    [
        # n3's blocks were marked before: DRBD logs none of them, and has compared them as equal.
        ({9}, "differs", 4),
        ({7, 9}, "same", 0),
        # The log has lost lines since the verify began: what is marked may be what was found.
        ({6, 7, 9}, "differs", 12),
    ],
)
def test_drbd_9_what_is_marked_and_compared_as_equal_does_not_differ(
    here: Path, monkeypatch: pytest.MonkeyPatch, left_out: set[int], result: str, kib: int
) -> None:
    # Without the first line the log is not whole; a line of another kind stands for the others.
    log = [
        (number, "usb: a line of another" if number in left_out else text)
        for number, text in NINE_LOG
        if number != 6 or number not in left_out
    ]
    monkeypatch.setattr(kernel_log, "records", lambda: iter(log))
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, several())
    verify.track(node, ordered, several(n2=peer(1, out_of_sync_kib=4)))
    verify.track(node, ordered, several(n3=peer(2, out_of_sync_kib=8)))
    assert (latest(here).result, latest(here).found_kib) == (result, kib)


@pytest.mark.usefixtures("nine")
def test_drbd_9_repairs_each_peer_before_it_compares_with_the_next(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_n2 = [record for record in NINE_LOG if record[0] != 9]
    monkeypatch.setattr(kernel_log, "records", lambda: iter(of_n2))
    number = NOW - 60
    node, ordered = Node(), device(f"{number}:repair")
    verify.begin(node, ordered, several())
    found = several(n2=peer(1, out_of_sync_kib=4))
    assert verify.track(node, ordered, found)
    assert latest(here).result == "repairing"
    # Not asked twice, and the next peer waits.
    assert verify.track(node, ordered, found)
    assert verify.track(node, ordered, several(n2=peer(1, replication="SyncSource")))
    assert drbdsetup_calls(node)[1:] == ["drbdsetup invalidate-remote vm1 1 0 --reset-bitmap=no"]
    assert verify.track(node, ordered, several())
    assert drbdsetup_calls(node)[2:] == COMPARE[1:]
    assert not verify.track(node, ordered, several())
    assert (latest(here).result, latest(here).found_kib) == ("repaired", 4)


@pytest.mark.usefixtures("nine")
def test_drbd_9_what_was_found_and_is_not_marked_any_more_is_not_the_same(here: Path) -> None:
    """The peer has reconnected since: DRBD forgets what it has found."""
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, several())
    assert not verify.track(node, ordered, several())
    assert latest(here).result == "interrupted"


@pytest.mark.usefixtures("nine")
def test_drbd_9_a_flush_that_takes_longer_puts_the_repair_off(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noted as begun, it would be waited for and never come."""

    def takes_longer(*_: object) -> None:
        raise page_cache.unfinished("vm1 was not flushed within 25 s")

    node, ordered = Node(), device(f"{NOW - 60}:repair")
    verify.begin(node, ordered, several())
    found = several(n2=peer(1, out_of_sync_kib=4))
    with monkeypatch.context() as at_first:
        at_first.setattr(write_cache, "leave_write_back", takes_longer)
        with pytest.raises(page_cache.FlushUnfinished):
            verify.track(node, ordered, found)
    assert latest(here).result == "running" and drbdsetup_calls(node)[1:] == []
    assert verify.track(node, ordered, found)
    assert drbdsetup_calls(node)[1:] == ["drbdsetup invalidate-remote vm1 1 0 --reset-bitmap=no"]
    assert (latest(here).result, latest(here).found_kib) == ("repairing", 4)


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("is_marked", [True, False])
def test_drbd_9_a_peer_that_is_gone_interrupts_the_verify(here: Path, is_marked: bool) -> None:
    node, ordered = Node(), device(str(NOW))
    verify.begin(node, ordered, several())
    state = several(n2=peer(1, connection="Connecting", replication="Off"))
    if not is_marked:  # the node was restarted
        (here / "devices/vm1/verify-position").unlink()
        state = several()
    assert not verify.track(node, ordered, state)
    assert latest(here).result == "interrupted"


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("how", ["none", "another peer's", "an earlier one's"])
def test_drbd_9_replicas_in_sync_are_no_proof_before_drbd_logs_the_end(
    here: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    node, ordered = Node(), device(f"{NOW}:repair")
    verify.begin(node, ordered, several())
    without_end_in_log(monkeypatch, here, how)
    assert not verify.track(node, ordered, several())
    assert latest(here).result == "interrupted"


@pytest.mark.usefixtures("nine")
def test_drbd_9_a_former_primary_repairs_nothing(here: Path) -> None:
    """It would make the new Primary's replica the target of a resync."""
    node, ordered = Node(), device(f"{NOW}:repair")
    verify.begin(node, ordered, several())
    moved = several(n2=peer(1, role="Primary", out_of_sync_kib=4))._replace(role="Secondary")
    assert not verify.track(node, ordered, moved)
    assert latest(here).result == "interrupted"
    assert drbdsetup_calls(node) == COMPARE[:1]


@pytest.mark.usefixtures("nine")
def test_drbd_9_a_standby_begins_and_repairs_nothing(here: Path) -> None:
    node, ordered = Node(), device(f"{NOW}:repair")
    assert not verify.begin(node, ordered, standby())
    assert not verify.track(node, ordered, standby())
    assert drbdsetup_calls(node) == []


def published(node: Node) -> dict[str, str]:
    """What the node has published last of each attribute."""
    updates = [argv for argv, _ in node.calls if argv[-1].startswith("--update=")]
    return {argv[2]: argv[-1].removeprefix("--update=") for argv in updates}


def test_what_was_found_is_published_beside_a_verify_that_has_not_ended(here: Path) -> None:
    differs = VerifyResult(NOW - 99, "differs", NOW - 98, NOW - 97, 8, ("0+8192",))
    (here / "vm1.verify").write_text(f"{differs}\n")
    node, ordered = Node(), device(str(NOW))
    verify_history.publish(node, ordered)
    ended = f"0@{differs._replace(ranges=())}"
    assert published(node) == {
        "sanctl.verify.vm1": differs.published,
        "sanctl.verified.vm1": ended,
    }
    assert verify.begin(node, ordered, ACTIVE)
    assert published(node)["sanctl.verified.vm1"] == f"0@{differs._replace(ranges=())}"
    assert ",running," in published(node)["sanctl.verify.vm1"]
    for _ in range(120):
        number = NOW + len(node.calls)
        verify_history.record(node, ordered, VerifyResult(number, "interrupted", NOW, NOW))
    assert differs in verify_history.results(ordered), "many interrupted ones do not push it out"
    assert published(node)["sanctl.verified.vm1"] == f"0@{differs._replace(ranges=())}"
    node.calls.clear()
    verify_history.withdraw(node, ordered)
    assert [argv[2] for argv, _ in node.calls] == ["sanctl.verify.vm1", "sanctl.verified.vm1"]


def test_a_schedule_is_noted_once_and_is_no_verify(here: Path) -> None:
    """The node that serves says since when it has it, also where no verify ever begins."""
    node, away = Node(), ACTIVE._replace(peers=(PEER._replace(disk="Inconsistent"),))
    scheduled = device(policy="verify=sun@03")
    verify.begin(node, scheduled, standby())
    assert published(node) == {}
    verify.begin(node, scheduled, away)
    noted = published(node)
    assert list(noted) == ["sanctl.verified.vm1"]
    assert noted["sanctl.verified.vm1"].partition("@")[2] == ""
    assert NOW <= int(noted["sanctl.verified.vm1"].partition("@")[0]) <= time.time()
    node.calls.clear()
    verify.begin(node, scheduled, away)
    assert published(node) == {}, "once"
    assert verify_history.latest(scheduled) is None
    ordered = device(str(NOW), "verify=sun@03")
    assert verify.begin(node, ordered, ACTIVE)
    assert not verify.begin(node, ordered, ACTIVE), "the note is not taken for the latest verify"
    assert latest(here).result == "running"
    verify.begin(node, device(policy="verify=daily@03"), away)
    assert latest(here).result == "running", "an older release takes the last line for the latest"
    assert len(verify_history.results(ordered)) == 1


def test_a_schedule_that_was_taken_away_counts_anew_when_it_is_set_again(here: Path) -> None:
    """What was found at once: no verify for weeks, of a device that had had no schedule since."""
    node, plain, scheduled = Node(), device(), device(policy="verify=sun@03")
    away = ACTIVE._replace(peers=(PEER._replace(disk="Inconsistent"),))
    verify_history.note_schedule(node, scheduled, "sun@03", NOW - 99)
    verify_history.record(node, scheduled, VerifyResult(1, "interrupted", NOW - 98, NOW - 97))
    assert published(node)["sanctl.verified.vm1"] == f"{NOW - 99}@"
    node.calls.clear()
    verify.begin(node, plain, standby())
    assert ["--delete" in argv for argv, _ in node.calls] == [True]
    assert node.calls[0][0][2] == "sanctl.verified.vm1"
    assert [each.order for each in verify_history.results(plain)] == [1], "the results stay"
    node.calls.clear()
    verify.begin(node, plain, ACTIVE)
    verify_history.publish(node, plain)
    assert list(published(node)) == ["sanctl.verify.vm1"]
    verify.begin(node, scheduled, away)
    assert int(published(node)["sanctl.verified.vm1"].partition("@")[0]) >= NOW


def test_what_was_found_stays_published_where_the_schedule_goes(here: Path) -> None:
    node, plain = Node(), device()
    verify_history.note_schedule(node, device(policy="verify=sun@03"), "sun@03", NOW - 99)
    differs = VerifyResult(1, "differs", NOW - 98, NOW - 97, 8)
    verify_history.record(node, plain, differs)
    assert published(node)["sanctl.verified.vm1"] == f"{NOW - 99}@{differs}"
    verify.begin(node, plain, ACTIVE)
    assert published(node)["sanctl.verified.vm1"] == f"0@{differs}"


def test_without_a_file_of_verifies_nothing_is_written(here: Path) -> None:
    node = Node()
    assert not verify.begin(node, device(), ACTIVE)
    assert node.calls == [] and list(here.glob("vm1.verify")) == []
