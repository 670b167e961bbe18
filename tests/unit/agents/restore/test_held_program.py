# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that brings a later copy to a device that is held, and what each death leaves.

The device is a file, the site is a receiver on this machine, the cluster is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sanctl.agents import ocf
from sanctl.agents.replica import lost_writes
from sanctl.agents.restore import (
    closure,
    filling,
    noted_hold,
    order_begin,
    order_report,
    program,
    unit,
)
from sanctl.drivers import own_disk
from sanctl.drivers.site_chunks import SUFFIX
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import SetSite
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
from sanctl.model.site_copy import SiteCopy
from tests.fakes.local_site import local_link
from tests.unit.agents.restore.test_program import PRESENT, Node, bed, node
from tests.unit.drivers.test_site_receiver import DEVICE, MARK, ONE, TWO, digest, make
from tests.unit.model.test_site import SITE

__all__ = ["bed", "node"]

MIB = 1 << 20
FIRST = b"good" * (len(PRESENT) // 4)
LATER = FIRST[:4096] + b"best" * 1024 + FIRST[8192 : 3 * MIB] + b"news" * 2048 + FIRST[3 * MIB :]
LATER = LATER[: len(FIRST)]


def copy_of(content: bytes, token: str) -> SiteCopy:
    device, _, uuid = DEVICE.partition(".")
    return SiteCopy(SITE.name, device, uuid, "to-far", token, digest(content))


@pytest.fixture
def held(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The device is held as the first of two copies, and is to be the second one, and held."""
    folder = tmp_path / "site"
    folder.mkdir()
    with local_link() as link:
        link.survey(str(folder), MARK)
    make(folder, ONE, FIRST)
    make(folder, TWO, LATER, base=ONE)
    monkeypatch.setattr(SiteLink, "by_ssh", lambda _site: local_link())
    for each in (order_begin, program):
        monkeypatch.setattr(each, "AGAIN_S", 0.0)
    site = SITE._replace(path=str(folder), mark=MARK)
    node.bed.session.change(lambda _seen: (SetSite(site=site),))
    node.device.write_bytes(FIRST)
    order = RestoreOrder(
        "7" * 16, str(copy_of(LATER, TWO)), "7" * 16, "", 1000, holds=True, base=copy_of(FIRST, ONE)
    )
    node.bed.set_restore(str(order))
    return node


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the process writes to the journal."""
    found: list[str] = []
    monkeypatch.setattr(order_report, "log", lambda _name, text: found.append(text))
    return found


def dies_at(monkeypatch: pytest.MonkeyPatch, wanted: str) -> Callable[[], None]:
    """Have the process end at a step, once it is there; return what lets it go on."""

    def die(step: str) -> None:
        if step == wanted:
            raise KeyboardInterrupt

    monkeypatch.setattr(ocf, "crash_point", die)
    return lambda: monkeypatch.setattr(ocf, "crash_point", lambda _step: None)


def lists(tmp_path: Path, token: str) -> Path:
    return tmp_path / "site" / DEVICE / f"to-far.{token}{SUFFIX}"


def reads_nothing_whole(*_: object) -> NoReturn:
    raise AssertionError("all of the copy was read")


def test_what_has_changed_alone_is_read(
    held: Node, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SiteLink, "read", reads_nothing_whole)
    held.run()
    order = held.bed.order()
    assert held.device.read_bytes() == LATER
    assert order.state == HELD and order.copy == copy_of(LATER, TWO) and order.base is None
    assert f"; {2 * MIB} bytes were read" in " ".join(said) and "bytes came" in " ".join(said)
    (noted,) = held.bed.seen().cib.restored
    assert noted.folder == DEVICE
    held.run()
    assert held.state == HELD, "a command goes on"


def test_the_last_one_lets_hosts_in(held: Node) -> None:
    held.bed.set_restore(str(held.bed.order()._replace(holds=False)))
    held.run()
    assert held.device.read_bytes() == LATER and held.state == DONE


def test_nothing_is_written_before_the_cib_says_so(
    held: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before this node's disk has that: a loss of all power is not to bring the claim back."""
    written = iter([(0, 6), (0, 6), (0, 7)])

    def look() -> tuple[int, int]:
        assert held.state == COPYING and held.bed.order().base is None
        assert held.device.read_bytes() == FIRST
        return next(written)

    monkeypatch.setattr(own_disk, "written_cib_version", look)
    monkeypatch.setattr(SiteLink, "read", reads_nothing_whole)
    held.run()
    assert held.device.read_bytes() == LATER and next(written, None) is None


@pytest.mark.parametrize("case", ["late", "no file", "no answer", "no version"])
@pytest.mark.parametrize("goal", ["changes", "whole", "point"])
def test_nothing_is_written_where_the_cib_does_not_come_to_the_disk(
    held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goal: str, case: str
) -> None:
    """Not by any process: the order does not say any more that the device was held."""

    def silent(*_: object) -> None:
        raise CommandError(Problem("SAN-CLU-002", "no answer"))

    wanted = LATER
    if goal == "whole":
        lists(tmp_path, ONE).unlink()
    elif goal == "point":
        good, wanted = held.bed.good, held.file.read_bytes()
        back = held.bed.order()._replace(point=good.name, point_token=good.token, holds=False)
        held.bed.set_restore(str(back))
    monkeypatch.setattr(order_begin, "_ON_DISK_S", 0.0)
    with monkeypatch.context() as patched:
        if case in {"late", "no file"}:
            version = (0, 6) if case == "late" else None
            patched.setattr(own_disk, "written_cib_version", lambda: version)
        else:
            live = silent if case == "no answer" else lambda _runner: None
            patched.setattr(own_disk, "live_cib_version", live)
        for _ in range(2):
            held.run()
            assert held.device.read_bytes() == FIRST and held.state == COPYING
            assert "SAN-REST-008" in held.report() and "not on the disk of n1" in held.report()
    held.run()
    assert held.device.read_bytes() == wanted
    assert held.state == (DONE if goal == "point" else HELD)


@pytest.mark.parametrize("step", ["restore-ready", "restore-begun", "restore-chunk",
                                  "restore-copied"])  # fmt: skip
def test_the_process_dies(held: Node, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    go_on = dies_at(monkeypatch, step)
    with pytest.raises(KeyboardInterrupt):
        held.run()
    order = held.bed.order()
    assert order.is_open and order.state == (ORDERED if step == "restore-ready" else COPYING)
    is_as_before = step in {"restore-ready", "restore-begun"}
    assert (held.device.read_bytes() == FIRST) is is_as_before
    # Nothing says that the device is a copy that it may not be any more.
    assert (order.base is not None) is (step == "restore-ready")
    go_on()
    if step != "restore-ready":
        monkeypatch.setattr("sanctl.agents.restore.from_site.SiteDelta", reads_nothing_whole)
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD


def test_after_a_death_in_the_middle_any_other_copy_is_read_as_a_whole(
    held: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = dies_at(monkeypatch, "restore-chunk")
    with pytest.raises(KeyboardInterrupt):
        held.run()
    go_on()
    assert held.device.read_bytes() not in {FIRST, LATER}
    first = copy_of(FIRST, ONE)
    held.bed.set_restore(str(held.bed.order()._replace(token="8" * 16, point=str(first))))
    held.run()
    assert held.device.read_bytes() == FIRST and held.state == HELD


@pytest.mark.parametrize("case", ["no list", "another list", "another folder"])
def test_all_is_read_where_the_site_does_not_say_what_has_changed(
    held: Node, tmp_path: Path, said: list[str], case: str
) -> None:
    if case == "no list":
        lists(tmp_path, ONE).unlink()
    elif case == "another list":
        lists(tmp_path, TWO).write_bytes(lists(tmp_path, ONE).read_bytes())
    else:
        other = copy_of(FIRST, ONE)._replace(uuid="f" * 32)
        held.bed.set_restore(str(held.bed.order()._replace(base=other)))
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD
    assert "does not say what has changed" in " ".join(said)


def test_all_is_read_where_the_list_is_not_that_of_the_copy_that_was_noted(
    held: Node, said: list[str]
) -> None:
    """The site says another digest of the earlier copy than the order has."""
    other = copy_of(FIRST, ONE)._replace(digest="0" * 64)
    held.bed.set_restore(str(held.bed.order()._replace(base=other)))
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD
    assert "does not say what has changed" in " ".join(said)


def test_all_is_read_where_the_device_is_something_else(held: Node, said: list[str]) -> None:
    held.device.write_bytes(FIRST[: 3 * MIB] + b"x" + FIRST[3 * MIB + 1 :])
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD
    assert "the device was not copy" in " ".join(said)


def test_a_copy_that_is_damaged_or_gone_leaves_it_held_as_before(
    held: Node, tmp_path: Path
) -> None:
    file = tmp_path / "site" / DEVICE / f"to-far.{TWO}"
    aside = file.rename(tmp_path / "aside")
    order = held.bed.order()
    for content in (b"x" + LATER[1:], None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        held.bed.set_restore(str(order))
        held.run()
        found = held.bed.order()
        assert found.state == HELD and found.copy == copy_of(FIRST, ONE)
        assert held.device.read_bytes() == FIRST and "SAN-SITE-01" in held.report()
    aside.rename(file)
    held.bed.set_restore(str(order))
    held.run()
    assert held.device.read_bytes() == LATER


def test_what_is_read_back_otherwise_is_not_held(
    held: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_delta: object) -> None:
        held.device.write_bytes(FIRST)

    with monkeypatch.context() as patched:
        patched.setattr("sanctl.drivers.site_delta.SiteDelta.flush", lost)
        held.run()
    assert held.state == COPYING and "SAN-SITE-017" in held.report()
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD


def test_hosts_that_are_let_in_end_it(held: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])
    monkeypatch.setattr(closure, "is_closed", lambda _name: next(answers, False))
    held.run()
    assert held.state == COPYING and "the access list is not empty" in held.report()
    assert held.device.read_bytes() == FIRST


def test_no_process_is_started_for_a_device_that_is_held() -> None:
    started: list[Any] = []

    class Runner:
        def run(self, argv: list[str], **_: object) -> None:
            started.append(argv)

    order = RestoreOrder("7" * 16, str(copy_of(LATER, TWO)), "7" * 16, "", 1000, holds=True)
    held = str(order.in_state(HELD))
    for text, count in ((held, 0), (str(order), 1), ("of a later release", 2), ("", 2)):
        runner, device, state = (
            Runner(),
            SimpleNamespace(name="web", restore=text),
            SimpleNamespace(is_primary=True),
        )
        unit.start_if_ordered(runner, device, state)  # type: ignore[arg-type]
        assert len(started) == count


@pytest.mark.parametrize("has_ended", [True, False])
def test_all_is_read_where_the_node_has_noted_that_it_was_held_no_more(
    held: Node,
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_ended: bool,
) -> None:
    """The CIB is of before that: what hosts wrote meanwhile is not in the copy that it names."""
    data = tmp_path / "web.data"
    data.touch()
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: str(data))
    order = held.bed.order()
    earlier = order._replace(
        token="6" * 16, point=str(order.base), given_s=order.given_s - 1, state=HELD, base=None
    )
    last = earlier.in_state(DONE) if has_ended else earlier
    Path(noted_hold.path_of(str(data))).write_text(f"{last}\n")
    if has_ended:
        held.device.write_bytes(b"host" + FIRST[4:])
    else:
        monkeypatch.setattr(SiteLink, "read", reads_nothing_whole)
    noted: list[str] = []
    write = filling._write

    def watched(*words: Any) -> None:
        noted.append(noted_hold.read("web"))
        write(*words)

    monkeypatch.setattr(filling, "_write", watched)
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD
    assert ("the CIB was older; all is read" in " ".join(said)) is has_ended
    assert noted == [str(order.in_state(COPYING))], "before the first write"


@pytest.fixture
def full_pool(held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing can be noted beside the data on this node any more."""
    data = tmp_path / "web.data"
    data.touch()
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: str(data))

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(noted_hold, "write_atomically", full)
    return monkeypatch


@pytest.mark.usefixtures("full_pool")
@pytest.mark.parametrize("goal", ["changes", "whole", "point"])
def test_an_order_that_cannot_be_noted_is_given_up(held: Node, goal: str) -> None:
    """Each monitor began it again, and hosts stayed out for good."""
    order = held.bed.order()
    if goal == "whole":
        held.bed.set_restore(str(order._replace(base=None)))
    elif goal == "point":
        good = held.bed.good
        back = order._replace(point=good.name, point_token=good.token, holds=False)
        held.bed.set_restore(str(back))
    held.run()
    assert held.device.read_bytes() == FIRST and "no space left" in held.report()
    found = held.bed.order()
    if goal == "whole":
        assert found.state == GIVEN_UP
    else:
        assert found.state == HELD and found.copy == order.base


@pytest.mark.usefixtures("full_pool")
@pytest.mark.parametrize("goal", ["site", "point"])
def test_what_has_begun_and_cannot_be_noted_says_so(held: Node, goal: str) -> None:
    order = held.bed.order().in_state(COPYING)
    if goal == "point":
        good = held.bed.good
        order = order._replace(point=good.name, point_token=good.token)
    held.bed.set_restore(str(order))
    held.run()
    assert held.state == COPYING and "no space left" in held.report()
    assert held.device.read_bytes() == FIRST


@pytest.mark.parametrize("error", [OSError(5, "input/output error"), None])
def test_a_note_that_cannot_be_read_gives_the_order_up(
    held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """One that is damaged says nothing of what the device is: all is read."""
    data = tmp_path / "web.data"
    data.touch()
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: str(data))
    Path(noted_hold.path_of(str(data))).write_text("damaged\n")

    def broken(*_: object) -> str:
        assert error is not None
        raise error

    with monkeypatch.context() as patched:
        if error is not None:
            patched.setattr(noted_hold, "read_text_or", broken)
        held.run()
    if error is not None:
        assert held.state == HELD and held.bed.order().copy == copy_of(FIRST, ONE)
        assert "input/output" in held.report() and held.device.read_bytes() == FIRST
    else:
        assert held.state == HELD and held.device.read_bytes() == LATER


def test_a_first_copy_is_noted_and_on_the_disk_before_it_is_written(
    held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node without power comes back with an order that may still be given up."""
    data = tmp_path / "web.data"
    data.touch()
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: str(data))
    held.bed.set_restore(str(held.bed.order()._replace(base=None)))
    monkeypatch.setattr(order_begin, "_ON_DISK_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(own_disk, "written_cib_version", lambda: (0, 6))
        held.run()
        assert held.device.read_bytes() == FIRST and held.state == COPYING
    noted: list[str] = []
    write = filling._write

    def watched(*words: Any) -> None:
        noted.append(noted_hold.read("web"))
        write(*words)

    monkeypatch.setattr(filling, "_write", watched)
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD
    (text,) = noted
    assert " copying " in text


def test_an_order_that_is_given_up_beside_a_newer_note_lets_no_host_in(
    held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what any node has noted the device may be half of another copy."""
    slept: list[float] = []
    monkeypatch.setattr("sanctl.agents.restore.program.time.sleep", slept.append)
    (tmp_path / "site" / DEVICE / f"to-far.{TWO}").unlink()
    order = held.bed.order()._replace(base=None)
    half = order.in_state(COPYING)._replace(token="8" * 16, given_s=order.given_s + 1)
    held.bed.cluster.in_contact["n2"] = f" {OLDER_KEY}={packed(str(half))}"
    held.bed.set_restore(str(order))
    held.run()
    assert held.state == ORDERED and "SAN-REST-015" in held.report()
    assert held.device.read_bytes() == FIRST
    # One that was ordered since tries again, with hosts out.
    held.bed.cluster.in_contact.clear()
    held.bed.set_restore(str(order._replace(is_unsure=True, kept_token="")))
    held.run()
    assert held.state == ORDERED and "SAN-SITE-01" in held.report() and slept[-1:] == [0.0]
    assert held.device.read_bytes() == FIRST


def test_what_the_site_has_read_for_hours_is_not_read_again_for_a_silent_node(
    held: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attrd was restarted as the copy was about to begin."""

    def goes_silent(step: str) -> None:
        if step == "restore-ready":
            held.bed.cluster.attribute("n2", "sanctl-web", None)

    monkeypatch.setattr(ocf, "crash_point", goes_silent)
    held.run()
    assert held.device.read_bytes() == LATER and held.state == HELD


@pytest.mark.parametrize("state", [ORDERED, COPYING])
def test_what_has_ended_here_is_not_written_again_where_that_is_not_published(
    held: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """As after a restart of attrd. What hosts wrote since would be gone."""
    data = tmp_path / "web.data"
    data.touch()
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: str(data))
    order = held.bed.order()._replace(base=None)
    Path(noted_hold.path_of(str(data))).write_text(f"{order.in_state(DONE)}\n")
    held.device.write_bytes(PRESENT)
    held.bed.set_restore(str(order if state == ORDERED else order.in_state(COPYING)))
    held.run()
    assert held.device.read_bytes() == PRESENT and held.state == state
    assert "SAN-REST-015" in held.report()


def test_what_another_node_has_noted_is_kept_beside_the_data_here(
    held: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older order would go on where that node leaves again."""
    noted: list[str] = []
    monkeypatch.setattr(closure, "note_of_others", lambda _name, text: noted.append(text))
    ended = held.bed.order()._replace(given_s=9000).in_state(DONE)
    held.bed.cluster.in_contact["n2"] = f" {OLDER_KEY}={packed(str(ended))}"
    held.bed.cluster.tick()
    held.run()
    assert noted == [str(ended)] and held.device.read_bytes() == FIRST
