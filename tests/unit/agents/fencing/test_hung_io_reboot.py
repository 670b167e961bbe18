# SPDX-License-Identifier: GPL-2.0-or-later
"""The look at requests that wait: twice before the node ends, and never for want of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.fencing import hung_io_reboot
from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.model.hung_io import NOTE_KIND, HungCause, HungIo, parse_hung
from sanctl.parse.drbd import PendingRequests
from sanctl.plan.failover.hung_io_reboot import (
    EXPLAINED_FOR_S,
    FORGOTTEN_AFTER_S,
    HANGING_AFTER_S,
    SILENT_AFTER_S,
)
from sanctl.system import journal, state_files
from sanctl.system.files import replace_on_tmpfs
from sanctl.system.runner import Runner
from tests.fakes.node import FakeNode, Rebooted

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol", "Primary", "no", "UpToDate", 1024, (GOOD,))
LOST = OldRequest(FORGOTTEN_AFTER_S, True, frozenset({"ok"}), frozenset({"ok"}))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)


#: Served here, too; its peer is gone.
ALONE = PRIMARY._replace(name="vol2", minor=8, peers=())


class Killed(BaseException):
    """The agent's process is killed."""


class Kernel(FakeNode):
    """What the agent reads of the kernel, and whether it ended it.

    Attributes:
        others: the other devices, as `drbdsetup events2` has them; an error: it has no answer.
        waiting: requests that wait, by minor; of the device itself `outstanding`.
        dies_after: after so many effects the agent's process is killed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.states["vol"] = PRIMARY
        self.requests: list[tuple[OldRequest, ...]] = []
        self.outstanding: PendingRequests | None = None
        self.answered = 7
        self.others: dict[str, ResourceState] | CommandError = {}
        self.waiting: dict[int, PendingRequests] = {}
        self.other_requests: tuple[OldRequest, ...] = ()
        self.looks_at_others = 0
        self.dies_after: int | None = None
        self.ends = 0
        self.clock.on_sleep = self.effect

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (drbd_kernel, "completed_requests", lambda _minor: self.answered),
            (drbd_kernel, "pending_requests", self._pending),
            (drbd_kernel, "oldest_requests", self._oldest),
            (drbdsetup, "observe_all", self._observe_all),
            (journal, "write", self._log),
            (state_files, "replace_on_tmpfs", self._replace),
        ]

    def effect(self) -> None:
        """Count an effect; who is killed is killed before it, and later calls are another's."""
        if self.dies_after is None:
            return
        if not self.dies_after:
            self.dies_after = None
            raise Killed
        self.dies_after -= 1

    def _pending(self, minor: int) -> PendingRequests | None:
        return self.outstanding if minor == DEVICE.minor else self.waiting.get(minor)

    def _oldest(self, name: str) -> tuple[OldRequest, ...]:
        return self.requests.pop(0) if name == DEVICE.name else self.other_requests

    def _observe_all(self, _runner: object) -> dict[str, ResourceState]:
        self.looks_at_others += 1
        self.effect()
        if isinstance(self.others, CommandError):
            raise self.others
        return {"vol": PRIMARY._replace(minor=DEVICE.minor), **self.others}

    def _log(self, text: str, **_: object) -> None:
        self.effect()
        self.journal.append(text)

    def _replace(self, path: str, text: str) -> None:
        self.effect()
        replace_on_tmpfs(path, text)

    def _reboot(self, runner: Runner, reason: str, *, device: str) -> None:
        self.effect()
        super()._reboot(runner, reason, device=device)

    def look(self, *requests: tuple[OldRequest, ...], state: ResourceState = PRIMARY) -> int:
        self.clock.now_s += 10.0
        self.requests = [*requests, (), ()]
        try:
            hung_io_reboot.check(self, DEVICE, state)
        except Rebooted:
            self.ends += 1
        return self.ends

    def note_progress(self, name: str, *, age_s: float, answered: int | None = None) -> None:
        """Have the monitor of another device have seen so many answers then."""
        text = f"{self.answered if answered is None else answered} {self.clock.now_s - age_s}"
        state_files.of_device(name, "io-progress").write(text)

    def hung(self) -> HungIo | None:
        """Return what is noted for the operator."""
        return parse_hung(state_files.of_device("vol", NOTE_KIND).read())


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path).install(monkeypatch)


def test_without_hung_requests_there_is_no_reboot(kernel: Kernel) -> None:
    assert kernel.look(()) == 0
    assert kernel.look(state=PRIMARY._replace(role="Secondary")) == 0
    assert not kernel.journal


def test_a_hung_request_that_is_seen_twice_reboots_the_node(kernel: Kernel) -> None:
    assert kernel.look((LOST,), ()) == 0
    assert kernel.look((LOST,), (LOST,)) == 1


def test_no_reboot_if_drbd_does_not_answer_the_second_time(kernel: Kernel) -> None:
    kernel.states["vol"] = None
    assert kernel.look((LOST,)) == 0
    del kernel.states["vol"]
    kernel.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    assert kernel.look((LOST,)) == 0
    assert kernel.commands("drbdsetup")


def test_without_a_peer_the_node_reboots_only_once_no_request_is_answered(kernel: Kernel) -> None:
    alone = kernel.states["vol"] = PRIMARY._replace(peers=())
    assert kernel.look((LOST,), state=alone) == 0
    assert "no other node can serve" in kernel.journal[-1]
    kernel.answered += 1
    assert kernel.look((LOST,), state=alone) == 0
    assert kernel.look((LOST,), (LOST,), state=alone) == 1
    state_files.remove_device(DEVICE.name)
    state_files.remove_device(DEVICE.name)
    assert kernel.look((LOST,), state=alone) == 1


LOOKS_S = 10.0


@pytest.mark.parametrize(
    ("outstanding", "after_s"),
    [
        (PendingRequests(1, 0, 0), FORGOTTEN_AFTER_S),
        (PendingRequests(2, 1, 0), HANGING_AFTER_S),
        (PendingRequests(2, 0, 1), None),
        (PendingRequests(0, 0, 0), None),
    ],
)
def test_without_debugfs_the_request_counters_decide(
    kernel: Kernel, outstanding: PendingRequests, after_s: float | None
) -> None:
    kernel.outstanding = outstanding
    kernel.look()
    for number in range(1, 12):
        ends = after_s is not None and number * LOOKS_S >= after_s
        assert bool(kernel.look()) is ends
        if ends:
            return


def test_an_answered_request_or_a_freeze_restarts_the_wait(kernel: Kernel) -> None:
    kernel.outstanding = PendingRequests(1, 0, 0)
    frozen = PRIMARY._replace(suspended="fencing")
    for number in range(40):
        kernel.answered += number % 3 == 0
        assert kernel.look() == 0
    for _ in range(20):
        assert kernel.look(state=frozen) == 0
    assert kernel.look() == 0


def test_a_note_of_another_release_is_counted_anew(kernel: Kernel) -> None:
    """It failed with each monitor: a device whose requests hung was never noticed again."""
    kernel.outstanding = PendingRequests(2, 1, 0)
    state_files.of_device("vol", "io-progress").write(f"{kernel.answered} since=12.5 x")
    looks = [kernel.look() for _ in range(12)]
    assert not looks[0] and looks[-1]


def test_others_are_looked_at_only_where_the_device_itself_would_end_the_node(
    kernel: Kernel,
) -> None:
    kernel.look(())
    kernel.answered += 1
    kernel.look((LOST,), state=PRIMARY._replace(peers=()))
    assert kernel.looks_at_others == 0
    kernel.look((LOST,), ())
    assert kernel.looks_at_others == 1


def test_one_device_waits_while_the_node_alone_serves_others(kernel: Kernel) -> None:
    kernel.others = {"vol2": ALONE, "vol3": PRIMARY._replace(name="vol3", minor=9)}
    older = LOST._replace(age_s=FORGOTTEN_AFTER_S + 10.0)
    assert kernel.look((older,), (older,)) == 0
    assert "alone serves vol2" in kernel.journal[-1]
    hung = kernel.hung()
    assert hung is not None
    assert (hung.cause, hung.needed_by) == (HungCause.FORGOTTEN, ("vol2",))
    # The time is that at which it began, whatever is seen later.
    assert kernel.look((LOST,), (LOST,)) == 0
    assert kernel.hung() == hung
    kernel.others["vol2"] = ALONE._replace(peers=(GOOD,))
    assert kernel.look((LOST,), (LOST,)) == 1


def test_the_node_goes_on_where_drbd_does_not_say_all_of_its_devices(kernel: Kernel) -> None:
    answers: list[dict[str, ResourceState] | CommandError] = [
        CommandError(Problem("SAN-CMD-002", "no answer")),
        {"vol2": ALONE._replace(minor=None, disk="Diskless")},
    ]
    for answer in answers:
        kernel.others = answer
        assert kernel.look((LOST,), (LOST,)) == 0
        assert "could not be seen" in kernel.journal[-1]
        assert (hung := kernel.hung()) is not None
        assert hung.needed_by is None
    kernel.others = {}
    assert kernel.look((LOST,), (LOST,)) == 1


class KernelFiles:
    """What /sys/block, /proc/drbd and the resource files have, where drbdsetup has no answer."""

    def __init__(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel.others = CommandError(Problem("SAN-CMD-002", "no answer"))
        self._patch = monkeypatch
        self._folder = Path(resource_file.path_of("vol")).parent
        self._folder.mkdir(parents=True, exist_ok=True)
        self.minors = {DEVICE.minor}
        self.lines: dict[int, str] = {}
        monkeypatch.setattr(drbd_kernel, "minors", lambda: frozenset(self.minors))
        self.resource("vol", DEVICE.minor)

    def resource(self, name: str, minor: int) -> None:
        (self._folder / f"{name}.res").write_text(
            f"  on n1 {{\n    device minor {minor};\n  on n2 {{\n    device minor {minor};\n"
        )

    def has(self, minor: int, line: str) -> None:
        """Have /proc/drbd say this of a minor: `cs:… ro:… ds:…`, and the flag of its I/O."""
        self.minors.add(minor)
        self.lines[minor] = line
        text = "".join(
            f"{each}: {said}\n    ns:0 nr:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:d oos:0\n"
            for each, said in self.lines.items()
        )
        self._patch.setattr(drbd_kernel, "read_text_or", lambda *_: text)


@pytest.fixture
def files(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> KernelFiles:
    return KernelFiles(kernel, monkeypatch)


@pytest.mark.parametrize("generation", [8, 9])
def test_a_node_without_another_device_ends_though_drbdsetup_has_no_answer_about_all(
    kernel: Kernel, files: KernelFiles, generation: int
) -> None:
    """What broke: the one device waited for ever."""
    kernel.generation = generation
    assert files.minors == {DEVICE.minor}
    assert kernel.look((LOST,), (LOST,)) == 1


def test_half_an_answer_is_made_up_for_as_well(kernel: Kernel, files: KernelFiles) -> None:
    kernel.others = {"vol2": ALONE._replace(minor=None, disk="Diskless")}
    assert kernel.look((LOST,), (LOST,)) == 1
    files.resource("vol2", 8)
    files.has(8, "cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----")
    assert kernel.look((LOST,), (LOST,)) == 1


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----", True),
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/Outdated C s-----", True),
        ("cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----", True),
        ("cs:VerifyS ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", True),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/Diskless C r-----", True),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", False),
        ("cs:Connected ro:Primary/Secondary ds:Diskless/UpToDate C r-----", False),
        ("cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----", False),
        ("cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown C r-----", False),
        ("cs:Unconfigured", False),
    ],
)
def test_what_the_kernel_says_of_another_device_spares_the_node(
    kernel: Kernel, files: KernelFiles, line: str, needs: bool
) -> None:
    files.resource("vol2", 8)
    files.has(8, line)
    assert kernel.look((LOST,), (LOST,)) == (not needs)
    hung = kernel.hung()
    assert (hung.needed_by if hung is not None else ()) == (("vol2",) if needs else ())


@pytest.mark.parametrize("what", ["name", "names", "line", "own", "error"])
def test_the_node_goes_on_where_the_kernel_does_not_say_all_either(
    kernel: Kernel, files: KernelFiles, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A device of which nothing is known may be served here alone."""
    files.resource("vol2", 8)
    files.has(8, "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----")
    if what == "name":
        files.resource("vol2", 18)
    elif what == "names":
        files.resource("vol3", 8)
    elif what == "line":
        # Of another form than is known.
        files.has(8, "cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown")
    elif what == "own":
        files.minors.remove(DEVICE.minor)
    else:

        def fail() -> frozenset[int]:
            raise OSError(5, "I/O error")

        monkeypatch.setattr(drbd_kernel, "minors", fail)
    assert kernel.look((LOST,), (LOST,)) == 0
    assert "could not be seen" in kernel.journal[-1]


def test_with_drbd_9_another_device_is_not_known_without_drbdsetup(
    kernel: Kernel, files: KernelFiles
) -> None:
    kernel.generation = 9
    files.resource("vol2", 8)
    files.minors.add(8)
    assert kernel.look((LOST,), (LOST,)) == 0
    assert (hung := kernel.hung()) is not None
    assert hung.needed_by is None


def test_a_device_that_is_silent_by_its_own_monitor_is_so_by_the_kernels_files_too(
    kernel: Kernel, files: KernelFiles
) -> None:
    files.resource("vol2", 8)
    files.has(8, "cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----")
    kernel.waiting[8] = PendingRequests(1, 0, 0)
    kernel.note_progress("vol2", age_s=SILENT_AFTER_S)
    assert kernel.look((LOST,), (LOST,)) == 1


def test_an_answer_without_the_device_itself_is_none(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbdsetup, "observe_all", lambda _runner: {})
    assert kernel.look((LOST,), (LOST,)) == 0


@pytest.mark.parametrize(
    ("waiting", "age_s", "answered", "ends"),
    [
        (PendingRequests(1, 0, 0), SILENT_AFTER_S, None, True),
        (PendingRequests(1, 0, 0), SILENT_AFTER_S - 1.0, None, False),
        (PendingRequests(1, 0, 0), SILENT_AFTER_S, 6, False),
        # Nobody waits there, and who comes would be answered.
        (PendingRequests(0, 0, 0), SILENT_AFTER_S, None, False),
    ],
)
def test_a_device_of_which_no_request_is_answered_either_keeps_no_node(
    kernel: Kernel, waiting: PendingRequests, age_s: float, answered: int | None, ends: bool
) -> None:
    kernel.others = {"vol2": ALONE}
    kernel.waiting[8] = waiting
    # A look comes 10 s later.
    kernel.note_progress("vol2", age_s=age_s - 10.0, answered=answered)
    assert kernel.look((LOST,), ()) == 0
    assert bool(kernel.hung()) is not ends
    kernel.note_progress("vol2", age_s=age_s - 10.0, answered=answered)
    assert bool(kernel.look((LOST,), (LOST,))) is ends


@pytest.mark.parametrize("note", ["", "7", "7 soon"])
def test_of_a_device_whose_monitor_has_not_looked_nothing_is_known(
    kernel: Kernel, note: str
) -> None:
    kernel.others = {"vol2": ALONE}
    kernel.waiting[8] = PendingRequests(1, 0, 0)
    if note:
        state_files.of_device("vol2", "io-progress").write(note)
    assert kernel.look((LOST,), (LOST,)) == 0


def test_with_drbd_9_debugfs_says_whether_requests_of_another_device_wait(kernel: Kernel) -> None:
    kernel.others = {"vol2": ALONE}
    kernel.note_progress("vol2", age_s=SILENT_AFTER_S)
    assert kernel.look((LOST,), (LOST,)) == 0
    kernel.other_requests = (LOST,)
    assert kernel.look((LOST,), (LOST,)) == 1


def test_the_resource_file_says_which_device_has_one_replica(kernel: Kernel) -> None:
    kernel.others = {"vol2": ALONE}
    file = Path(resource_file.path_of("vol2"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("  on n1 {\n  on n2 {\n")
    assert kernel.look((LOST,), (LOST,)) == 0
    file.write_text("  on n1 {\n")
    assert kernel.look((LOST,), (LOST,)) == 1


IN_SYNC = "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----"
STANDBY = "cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----"


def hangs(age_s: float) -> OldRequest:
    return OldRequest(age_s, False, frozenset({"pending"}), frozenset({"ok"}))


def look_unasked(kernel: Kernel, *requests: tuple[OldRequest, ...]) -> bool | None:
    """Look where drbdsetup gave no answer; None: the node was ended."""
    kernel.requests = [*requests, (), ()]
    try:
        return hung_io_reboot.check_unasked(kernel, DEVICE)
    except Rebooted:
        return None


def test_where_drbd_gives_no_answer_the_kernels_files_end_the_node(
    kernel: Kernel, files: KernelFiles
) -> None:
    """What broke: the monitor failed, and the node was fenced by its failed stop after minutes."""
    kernel.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    files.has(0, IN_SYNC)
    young, old = (hangs(20.0),), (hangs(HANGING_AFTER_S),)
    assert look_unasked(kernel, young, young) is True
    assert look_unasked(kernel, old, old) is None
    # Answered between its two looks.
    assert look_unasked(kernel, old, ()) is False
    assert look_unasked(kernel, ()) is False
    # Nor is it asked about the others.
    assert not kernel.looks_at_others
    assert not kernel.commands("drbdsetup")
    assert not kernel.commands("sync")


@pytest.mark.parametrize("own", [IN_SYNC, STANDBY])
def test_the_disk_below_another_device_explains_silence_too(
    kernel: Kernel, files: KernelFiles, own: str
) -> None:
    """DRBD 8.4 answers about no device then: none of them fails while the node is about to end."""
    files.has(0, own)
    files.resource("vol2", 8)
    files.has(8, IN_SYNC)
    assert look_unasked(kernel, (), ()) is False
    kernel.other_requests = (hangs(20.0),)
    assert look_unasked(kernel, (), ()) is True


@pytest.mark.parametrize("counted", [PendingRequests(2, 1, 0), PendingRequests(1, 0, 0)])
def test_without_debugfs_the_counters_explain_silence(
    kernel: Kernel, files: KernelFiles, counted: PendingRequests
) -> None:
    """At the first look the age is not known: requests had been answered since the last monitor."""
    files.has(0, IN_SYNC)
    files.resource("vol2", 8)
    files.has(8, IN_SYNC)
    kernel.outstanding = PendingRequests(0, 0, 0)
    kernel.waiting[8] = counted
    assert look_unasked(kernel) is True
    kernel.waiting[8] = PendingRequests(1, 0, 1)
    assert look_unasked(kernel) is False
    kernel.waiting[8] = counted
    kernel.note_progress("vol2", age_s=30.0)
    assert look_unasked(kernel) is True
    kernel.note_progress("vol2", age_s=30.0, answered=kernel.answered - 1)
    assert look_unasked(kernel) is True
    state_files.of_device("vol2", "io-progress").write("of another release")
    assert look_unasked(kernel) is True


def test_requests_that_are_answered_explain_no_silence(kernel: Kernel, files: KernelFiles) -> None:
    files.has(0, IN_SYNC)
    kernel.outstanding = PendingRequests(2, 1, 0)

    def answer() -> None:
        kernel.answered += 1

    assert look_unasked(kernel) is True
    kernel.clock.on_sleep = answer
    assert look_unasked(kernel) is False


def test_a_device_that_this_node_alone_serves_keeps_it_without_drbds_answer_too(
    kernel: Kernel, files: KernelFiles
) -> None:
    files.has(0, IN_SYNC)
    files.resource("vol2", 8)
    files.has(8, "cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----")
    old = (hangs(HANGING_AFTER_S),)
    assert look_unasked(kernel, old, old, old) is True
    assert (hung := kernel.hung()) is not None
    assert hung.needed_by == ("vol2",)


def test_the_only_good_replica_is_flushed_before_the_node_ends_without_drbds_answer(
    kernel: Kernel, files: KernelFiles
) -> None:
    """What hosts wrote may be in the page cache of this replica's file alone."""
    files.has(0, "cs:WFReportParams ro:Primary/Unknown ds:UpToDate/DUnknown C r-----")
    kernel.loops = {f"/pools/a/devices/vol.{'0' * 32}.data": "/dev/loop0"}
    assert look_unasked(kernel, (LOST,)) is False
    kernel.clock.now_s += 10.0
    assert look_unasked(kernel, (LOST,), (LOST,)) is None
    assert kernel.commands("sync")


@pytest.mark.parametrize("note", ["-5.0", "soon"])
def test_silence_is_explained_for_a_while_only(
    kernel: Kernel, files: KernelFiles, note: str
) -> None:
    """Requests that are answered now and then explain no command that never ends."""
    files.has(0, STANDBY)
    files.resource("vol2", 8)
    files.has(8, IN_SYNC)
    kernel.other_requests = (hangs(20.0),)
    assert look_unasked(kernel, ()) is True
    kernel.clock.now_s += EXPLAINED_FOR_S - 10.0
    assert look_unasked(kernel, ()) is True
    kernel.clock.now_s += 10.0
    assert look_unasked(kernel, ()) is False
    hung_io_reboot.forget_silence(DEVICE)
    assert look_unasked(kernel, ()) is True
    # A note of another release.
    state_files.of_node("drbd-silent.vol").write(note if note != "-5.0" else "1e9")
    assert look_unasked(kernel, ()) is False


def test_silence_that_cannot_be_noted_is_not_explained(
    kernel: Kernel, files: KernelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full /run nothing would bound it."""
    files.has(0, STANDBY)
    files.resource("vol2", 8)
    files.has(8, IN_SYNC)
    kernel.other_requests = (hangs(20.0),)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files, "replace_on_tmpfs", refuse)
    assert look_unasked(kernel, ()) is False


def test_a_device_without_a_connection_keeps_no_other_from_being_seen(
    kernel: Kernel, files: KernelFiles
) -> None:
    """Without a connection /proc/drbd has no protocol: nothing was known of any device then."""
    files.has(0, IN_SYNC)
    files.resource("vol2", 8)
    files.has(8, "cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----")
    Path(resource_file.path_of("vol2")).write_text("  on n1 {\n    device minor 8;\n")
    young, old = (hangs(20.0),), (hangs(HANGING_AFTER_S),)
    assert look_unasked(kernel, young, young) is True
    # It has one replica, so it keeps no node that another one can do without.
    assert look_unasked(kernel, old, old) is None


def test_since_when_nothing_is_answered_ends_with_the_role(kernel: Kernel) -> None:
    kernel.outstanding = PendingRequests(2, 1, 0)
    kernel.look()
    kernel.look(state=PRIMARY._replace(role="Secondary"))
    kernel.clock.now_s += HANGING_AFTER_S
    assert kernel.look() == 0


def test_with_drbd_9_silence_is_not_explained(kernel: Kernel, files: KernelFiles) -> None:
    kernel.generation = 9
    assert files.minors
    assert look_unasked(kernel, (hangs(HANGING_AFTER_S),)) is False


def test_a_device_in_the_pool_whose_disk_hangs_keeps_no_node(kernel: Kernel) -> None:
    hangs = OldRequest(HANGING_AFTER_S, False, frozenset({"pending"}), frozenset({"ok"}))
    kernel.others = {"vol2": ALONE}
    kernel.loops = {f"/pools/a/devices/vol.{'0' * 32}.data": "/dev/loop0"}
    kernel.loops[f"/pools/b/devices/vol2.{'1' * 32}.data"] = "/dev/loop1"
    assert kernel.look((hangs,), (hangs,)) == 0
    assert (hung := kernel.hung()) is not None
    assert hung.cause is HungCause.DISK
    kernel.loops[f"/pools/a/devices/vol2.{'1' * 32}.data"] = "/dev/loop2"
    assert kernel.look((hangs,), (hangs,)) == 1


def test_what_is_over_is_not_told_any_more(kernel: Kernel) -> None:
    kernel.others = {"vol2": ALONE}
    for state in (PRIMARY, PRIMARY._replace(role="Secondary")):
        kernel.look((LOST,), (LOST,))
        assert kernel.hung()
        kernel.look((), state=state)
        assert kernel.hung() is None
    # Nor where it has ended between the two looks.
    kernel.look((LOST,), (LOST,))
    kernel.others = {}
    assert kernel.look((LOST,), ()) == 0
    assert kernel.hung() is None


@pytest.mark.parametrize("has_peer", [True, False])
@pytest.mark.parametrize("effects", range(8))
def test_whatever_is_killed_the_next_monitors_decide_the_same(
    kernel: Kernel, effects: int, has_peer: bool
) -> None:
    """The node lives as long as it alone serves the other device, and no longer."""
    state = kernel.states["vol"] = PRIMARY if has_peer else PRIMARY._replace(peers=())
    kernel.others = {"vol2": ALONE}
    kernel.look((LOST,), (LOST,), state=state)

    def is_killed() -> bool:
        kernel.dies_after = effects
        try:
            kernel.look((LOST,), (LOST,), state=state)
        except Killed:
            return True
        finally:
            kernel.dies_after = None
        return False

    was_killed = is_killed()
    assert kernel.look((LOST,), (LOST,), state=state) == 0
    assert (hung := kernel.hung()) is not None
    assert hung.needed_by == ("vol2",)
    kernel.others["vol2"] = ALONE._replace(peers=(GOOD,))
    was_killed = is_killed() or was_killed
    assert kernel.look((LOST,), (LOST,), state=state) >= 1
    assert was_killed or effects > 3
