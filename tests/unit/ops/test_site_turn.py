# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that is held as a copy, and the turn of the roles: by commands, at a site on this host.

What the agents do is done by the cluster in memory.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import RemoveTakeover, SetParameter, SetTakeover
from sanctl.model.device_restore import (
    ASKED,
    COPYING,
    DONE,
    HELD,
    OLDER_KEY,
    ORDERED,
    TURNED,
    RestoreOrder,
    packed,
)
from sanctl.model.names import DeviceName
from sanctl.model.release_needs import HELD_COPIES
from sanctl.model.site_takeover import Successor, Takeover
from sanctl.ops import site_takeover
from sanctl.plan.device.restore_changes import plan_cancelled
from sanctl.plan.site.takeover import plan_turn
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites
from tests.unit.ops.test_site_restore import copy_of_back, device_uuid, run, run_any, sites

__all__ = ["sites"]

_FIRST = "replicate failback web --from far --copy web@to-far-1 --hold --yes"
_LATER = "replicate failback web --from far --copy web@to-far-2 --yes"


#: The same, where it is known that it ends a hold.
_ENDS = f"{_LATER} --accept SAN-REST-016"


def order_of(sites: Sites, name: str = "web") -> RestoreOrder:
    device = sites.bed.seen().cib.device(name)
    assert device is not None and device.restore is not None
    is_open = device.restore.is_open
    assert device.is_restoring is is_open and bool(device.access) is not is_open
    assert (HELD_COPIES in device.needs) is device.restore.is_of_holds
    return device.restore


def data(line: str, monkeypatch: Any, capsys: Any) -> Any:
    """Run a command for programs; return its data, as the reference describes them."""
    out = run(f"{line} --output json", monkeypatch, capsys)
    assert breaches(" ".join(line.split(" ")[:2]), out) == []
    return json.loads(out)["data"]


def test_held_and_then_a_later_copy(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = data(_FIRST, monkeypatch, capsys)
    assert made["held"] and made["changed"] and not made["took_over"]
    assert made["kept"].startswith("before-restore-") and made["restore"]["held"]
    first = order_of(sites)
    assert first.state == HELD and first.copy is not None and first.copy.point == "to-far-1"
    # The same again has nothing to do.
    assert not data(_FIRST, monkeypatch, capsys)["changed"] and order_of(sites) == first
    assert "held: it is that copy; no host is let in" in run("device show web", monkeypatch, capsys)
    run("status", monkeypatch, capsys, status=1)
    later = data(f"{_LATER} --hold", monkeypatch, capsys)
    # What was kept is kept still, and nothing else.
    assert later["kept"] == made["kept"] and later["held"]
    found = order_of(sites)
    assert found.copy is not None and found.copy.point == "to-far-2"
    assert found.kept_token == first.kept_token
    text = run("replicate failback web --release", monkeypatch, capsys)
    assert "hosts are let in to device web: it is copy web." in text and "@to-far-2" in text
    assert order_of(sites).state == DONE
    assert "is not held" in run("replicate failback web --release", monkeypatch, capsys)


def test_the_last_copy_lets_hosts_in(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(_FIRST, monkeypatch, capsys)
    assert "no host is let in" in text and "unless another device goes on instead of it" in text
    assert "replicate failback web --release" in text
    text = run(_ENDS, monkeypatch, capsys)
    assert "device web holds copy web." in text and "no host is let in" not in text
    assert order_of(sites).state == DONE
    # Also of the copy that it is held as, of which nothing is left to be done but that.
    run(f"{_LATER} --hold", monkeypatch, capsys)
    let_in = data(_ENDS, monkeypatch, capsys)
    assert let_in["changed"] and not let_in["held"] and order_of(sites).state == DONE


@pytest.mark.parametrize("copy", ["web@to-far-1", "web@to-far-2"])
def test_a_hold_is_not_ended_unasked(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], copy: str
) -> None:
    """It is another administrator's, who waits for the other device's hosts to stop."""
    run(_FIRST, monkeypatch, capsys)
    before = order_of(sites)
    text = run(
        f"replicate failback web --from far --copy {copy} --yes", monkeypatch, capsys, status=4
    )
    assert "SAN-REST-016" in text and "@to-far-1 at site far, by an order of " in text
    assert "failback web --release" in text and order_of(sites) == before
    # Nor while it is being filled.
    sites.bed.cluster.ignores_restores = True
    run(f"{_LATER} --hold --timeout 1", monkeypatch, capsys, status=7)
    text = run(_LATER, monkeypatch, capsys, status=4)
    assert "SAN-REST-016" in text and "to be held as copy" in text


def test_the_question_says_what_is_on_it(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(_FIRST, monkeypatch, capsys)
    text = run(f"{_LATER} --hold".replace(" --yes", ""), monkeypatch, capsys, status=2)
    assert "what is on it now is copy web." in text and "@to-far-1" in text
    assert order_of(sites).state == HELD


def test_what_is_not_known_is_kept_where_nothing_of_before_is(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be half of a copy, and the CIB is older than the hold that a node has noted."""
    fake = sites.bed.cluster
    fake.in_contact["n1"] = f" {OLDER_KEY}=unreadable"
    fake.tick()
    own = fake._restore

    def notes(name: str, order: RestoreOrder | None) -> None:
        # In the place of what it had: a monitor has seen the order.
        if order is not None and order.is_of_holds:
            fake.in_contact.clear()
        own(name, order)

    monkeypatch.setattr(fake, "_restore", notes)
    asks = _FIRST.replace(" --yes", "")
    assert "what is on it now is kept as web@before" in run(asks, monkeypatch, capsys, status=2)
    made = data(_FIRST, monkeypatch, capsys)
    assert made["held"] and made["kept"].startswith("before-restore-")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--from far",
        "--from far --copy web --hold --takeover",
        "--release --hold",
        "--release --takeover",
        "--release --from far",
        "--release --copy web",
        "--release --no-keep",
        "--release --allow-mix",
    ],
)
def test_what_does_not_go_together(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    run(f"replicate failback web {options}".strip(), monkeypatch, capsys, status=2)


def test_what_is_refused_of_a_device_that_is_held(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = data(_FIRST, monkeypatch, capsys)["kept"]
    for line in (
        "device resize web 1G",
        "device replicas web 1 --yes",
        "snapshot create web --name x",
        f"snapshot delete web@{kept} --yes",
        "device restore web --cancel",
        "site remove far --yes",
    ):
        assert "SAN-REST-014" in run(line, monkeypatch, capsys, status=4), line
    before = order_of(sites)
    assert before.state == HELD
    # The way back to what was there before it was held.
    run(f"device restore web --to {kept} --yes", monkeypatch, capsys)
    found = order_of(sites)
    assert found.state == DONE and found.point == kept


def test_a_later_copy_is_withdrawn(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(_FIRST, monkeypatch, capsys)
    sites.bed.cluster.ignores_restores = True
    run(f"{_ENDS} --timeout 1", monkeypatch, capsys, status=7)
    assert order_of(sites).state == ORDERED and order_of(sites).base is not None
    assert "SAN-REST-005" in run("replicate failback web --release", monkeypatch, capsys, status=4)
    text = run("device restore web --cancel", monkeypatch, capsys)
    assert "it is held as before" in text and "hosts are let in" not in text
    found = order_of(sites)
    assert found.state == HELD and found.copy is not None and found.copy.point == "to-far-1"


def test_a_node_that_gives_the_later_copy_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(_FIRST, monkeypatch, capsys)
    fake = sites.bed.cluster
    own = fake._restore

    def gives_up(name: str, order: RestoreOrder | None) -> None:
        if order is None or order.state != ORDERED:
            own(name, order)
            return
        sites.bed.session.change(
            lambda seen: plan_cancelled(seen, DeviceName.parse(name)),
            reads_replicas=False,
        )

    monkeypatch.setattr(fake, "_restore", gives_up)
    text = run(_ENDS, monkeypatch, capsys, status=5)
    assert "nothing was written" in text and "held as copy web." in text
    assert order_of(sites).state == HELD


@pytest.fixture
def away(sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Another device goes on instead of web, and the site has a copy of it; return its UUID."""
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    uuid = device_uuid(sites, "back")
    copy_of_back(sites, uuid)
    return uuid


_TURN = "replicate failback web --from far --copy back --takeover --yes"


def test_the_roles_turn_before_hosts_are_let_in(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    take_over, states = site_takeover.take_over, []

    def watched(*words: Any, **options: Any) -> Any:
        states.append(order_of(sites).state)
        return take_over(*words, **options)

    monkeypatch.setattr("sanctl.cli.commands.replicate_failback.take_over", watched)
    made = data(_TURN, monkeypatch, capsys)
    assert made["took_over"] and not made["held"] and states == [HELD]
    assert order_of(sites).state == DONE and sites.bed.seen().cib.takeover("web", "far") is None
    (folder,) = sites.folder.glob("back.*")
    assert json.loads((folder / "takeover.json").read_text())["device"] == "web"
    assert not list(sites.folder.glob("web.*/takeover.json"))


def test_a_copy_of_itself_takes_nothing_over(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was filled and held, and then refused each time."""
    text = run(f"{_LATER} --takeover", monkeypatch, capsys, status=4)
    assert "SAN-SITE-022" in text and "nothing was ordered" in text
    device = sites.bed.seen().cib.device("web")
    assert device is not None and device.restore is None
    # What the refusal advises is not refused for that it ends a hold.
    run(_FIRST, monkeypatch, capsys)
    text = run(f"{_LATER} --takeover", monkeypatch, capsys, status=4)
    assert "without --takeover and with --accept SAN-REST-016" in text
    run(_ENDS, monkeypatch, capsys)
    assert order_of(sites).state == DONE


def test_a_turn_that_the_site_would_refuse_fills_nothing(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was refused after the copy, which takes hours, and hosts stayed out."""
    (note,) = sites.folder.glob(f"back.{away}/*.json")
    newer = json.loads(note.read_text())
    newer |= {"name": "to-far-3", "token": "9" * 16, "made_s": newer["made_s"] + 60}
    newer |= {"digest": "e" * 64}
    (note.parent / f"to-far-3.{'9' * 16}.json").write_text(json.dumps(newer))
    note.with_suffix("").with_name(f"to-far-3.{'9' * 16}").write_bytes(sites.content)
    line = _TURN.replace("--copy back ", "--copy back@to-far-2 ")
    text = run(line, monkeypatch, capsys, status=4)
    assert "SAN-SITE-036" in text and "back@to-far-3" in text and "nothing was ordered" in text
    device = sites.bed.seen().cib.device("web")
    assert device is not None and device.restore is None


def test_a_turn_while_a_third_device_goes_on_fills_nothing(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = sites.folder.glob("back.*")
    third = {"device": "other", "uuid": "b" * 32, "point": "to-far-2", "at_s": 7}
    (folder / "takeover.json").write_text(json.dumps(third))
    text = run(_TURN, monkeypatch, capsys, status=4)
    assert "SAN-SITE-021" in text and "device other." in text and "nothing was ordered" in text
    assert "replicate takeover web --instead-of" in text and "three steps" in text
    device = sites.bed.seen().cib.device("web")
    assert device is not None and device.restore is None
    # The device's own takeover, of a turn that broke off, is no third one's.
    third |= {"device": "web", "uuid": device.uuid}
    (folder / "takeover.json").write_text(json.dumps(third))
    assert "it goes on instead of back." in run(_TURN, monkeypatch, capsys)


def test_roles_that_do_not_turn_let_no_host_in(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the site has a newer copy of the other device by then: hosts there wrote on.

    It says so, and has noted nothing: that is no turn of which nothing is known.
    """

    def older(*_words: Any, **_options: Any) -> Any:
        assert order_of(sites).turn == ASKED
        raise CommandError(Problem("SAN-SITE-036", "a newer one"))

    with monkeypatch.context() as patched:
        patched.setattr(SiteLink, "take_over", older)
        text = run(_TURN, monkeypatch, capsys, status=5)
    assert "SAN-SITE-036" in text and "no host is let in before the roles have turned" in text
    assert order_of(sites).state == HELD and not order_of(sites).turn
    # The same command goes on.
    assert "it goes on instead of back." in run(_TURN, monkeypatch, capsys)
    assert order_of(sites).state == DONE


#: The connection to the site ends at each of these, before it, or before its answer.
_ORDERS = ("take_over", "give_back", "takeovers")


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("order", _ORDERS)
def test_a_turn_that_breaks_off_at_the_site_is_named(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    order: str,
    is_done: bool,
) -> None:
    """Whether the site has it is not known; what asks it again is said, and does no harm."""
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    own, has_asked = getattr(SiteLink, order), []

    def ends(link: SiteLink, *words: Any, **options: Any) -> Any:
        # The takeovers are read before, too.
        if order == "takeovers" and not order_of(sites).turn:
            return own(link, *words, **options)
        has_asked.append(True)
        if is_done:
            own(link, *words, **options)
        raise CommandError(Problem("SAN-SITE-008", "the connection ended"))

    with monkeypatch.context() as patched:
        patched.setattr(SiteLink, order, ends)
        text = run(_TURN, monkeypatch, capsys, status=5)
    assert has_asked and "no host is let in before the roles have turned" in text
    assert order_of(sites).turn == ASKED
    text = run_any("status", monkeypatch, capsys)
    assert "SAN-HLT-167" in text and "whether site far has noted" in text
    assert "sanctl replicate takeover web" in text
    # By the command that the finding names, and by the one that broke off.
    run("replicate takeover web", monkeypatch, capsys)
    assert order_of(sites).turn == TURNED and sites.bed.seen().cib.takeover("web", "far") is None
    assert not list(sites.folder.glob("web.*/takeover.json"))
    assert "it goes on instead of back." in run(_TURN, monkeypatch, capsys)
    assert order_of(sites).state == DONE and not order_of(sites).turn


def test_a_turn_that_breaks_off_before_hosts_are_let_in_is_named(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hosts of neither device have it then."""

    def dies(*_words: Any, **_options: Any) -> Any:
        raise CommandError(Problem("SAN-CLU-002", "the session ended"))

    with monkeypatch.context() as patched:
        patched.setattr("sanctl.cli.commands.replicate_failback.release_device", dies)
        run(_TURN, monkeypatch, capsys, status=5)
    assert order_of(sites).state == HELD and order_of(sites).turn == TURNED
    text = run_any("status", monkeypatch, capsys)
    assert "the roles have turned: it goes on instead of back." in text
    assert "failback web --release" in text
    assert "the roles have turned" in run("device show web", monkeypatch, capsys)
    run("replicate failback web --release", monkeypatch, capsys)
    assert order_of(sites).state == DONE


def test_a_turn_that_the_cib_does_not_take_asks_no_site(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)

    def full(*_words: Any) -> Any:
        raise CommandError(Problem("SAN-CLU-004", "no quorum"))

    with monkeypatch.context() as patched:
        patched.setattr(site_takeover, "plan_turn", full)
        run(_TURN, monkeypatch, capsys, status=5)
    assert not order_of(sites).turn and list(sites.folder.glob("web.*/takeover.json"))
    assert not list(sites.folder.glob("back.*/takeover.json"))


def test_one_that_is_being_filled_is_not_released(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(_FIRST, monkeypatch, capsys)
    sites.bed.cluster.ignores_restores = True
    copying = SetParameter(
        name=DeviceName.parse("web"),
        parameter="restore",
        value=str(order_of(sites).in_state(COPYING)),
    )
    sites.bed.session.change(lambda _seen: (copying,))
    assert "SAN-REST-005" in run("replicate failback web --release", monkeypatch, capsys, status=4)


def noted_at_home(sites: Sites) -> bool:
    return sites.bed.seen().cib.takeover("web", "far") is not None


@pytest.mark.usefixtures("away")
def test_hosts_are_not_let_in_while_another_device_goes_on(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of both would write, and one of two versions be given up."""
    text = run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    release = "replicate failback web --release"
    assert "giveback web --at far' and then 'sanctl replicate failback web --release" in text
    # Also where it was noted at the site alone so far.
    forget = [RemoveTakeover(takeover=each) for each in sites.bed.seen().cib.takeovers]
    sites.bed.session.change(lambda _seen: tuple(forget))
    assert not noted_at_home(sites)
    text = run(release, monkeypatch, capsys, status=4)
    assert "SAN-REST-017" in text and "device web was taken over: device back." in text
    assert "replicate giveback web --at far" in text and noted_at_home(sites)
    assert order_of(sites).state == HELD
    text = run_any("status", monkeypatch, capsys)
    assert "replicate giveback web --at far' and then 'sanctl replicate failback web" in text

    # What this cluster has seen of it counts where the site is not reached.
    def silent(*_words: Any) -> Any:
        raise CommandError(Problem("SAN-SITE-008", "no route to host"))

    with monkeypatch.context() as patched:
        patched.setattr(SiteLink, "takeovers", silent)
        text = run(release, monkeypatch, capsys, status=4)
        assert "SAN-REST-017" in text and "no route to host" in text
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    run(release, monkeypatch, capsys)
    assert order_of(sites).state == DONE


@pytest.mark.usefixtures("away")
def test_hosts_are_let_in_beside_another_device_where_that_is_accepted(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = "replicate failback web --from far --copy back --yes"
    release = "replicate failback web --release"
    run(f"{hold} --hold", monkeypatch, capsys)
    run(f"{release} --accept SAN-REST-017", monkeypatch, capsys)
    assert order_of(sites).state == DONE
    # A failback that ends the hold says so by itself.
    run(f"{hold} --hold", monkeypatch, capsys)
    run(f"{hold} --accept SAN-REST-016", monkeypatch, capsys)
    assert order_of(sites).state == DONE


@pytest.mark.usefixtures("away")
def test_a_turn_that_would_leave_a_third_device_fills_nothing(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hosts would not be let in afterwards, and those of the other device be out."""
    device = sites.bed.seen().cib.device("web")
    assert device is not None
    third = Successor("third", "9" * 32, "to-far-1", 7)
    noted = SetTakeover(takeover=Takeover("web", "other", device.uuid, third))
    sites.bed.session.change(lambda _seen: (noted,))
    text = run(_TURN, monkeypatch, capsys, status=4)
    assert "SAN-REST-017" in text and "device third." in text and "nothing was ordered" in text
    assert "three steps" not in text, "they end with the same refusal"
    device = sites.bed.seen().cib.device("web")
    assert device is not None and device.restore is None
    run(f"{_TURN} --accept SAN-REST-017", monkeypatch, capsys)
    assert order_of(sites).state == DONE


@pytest.mark.usefixtures("away")
def test_a_turn_asks_the_site_who_goes_on_instead_of_the_device(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This cluster has seen another one last, and would learn of it after the copy."""
    (note,) = sites.folder.glob("web.*/takeover.json")
    third = {"device": "third", "uuid": "9" * 32, "point": "to-far-1", "at_s": 9}
    note.write_text(json.dumps(third))
    text = run(_TURN, monkeypatch, capsys, status=4)
    assert "SAN-REST-017" in text and "device third." in text and "nothing was ordered" in text
    device = sites.bed.seen().cib.device("web")
    assert device is not None and device.restore is None


@pytest.mark.usefixtures("away")
def test_where_the_cib_is_older_the_site_is_asked_before_hosts_are_let_in(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by what a node has noted alone; the site stays as well."""
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    held = order_of(sites)
    forget = [RemoveTakeover(takeover=each) for each in sites.bed.seen().cib.takeovers]
    before = held._replace(given_s=held.given_s - 1).in_state(DONE)
    older = SetParameter(name=DeviceName.parse("web"), parameter="restore", value=str(before))
    sites.bed.session.change(lambda _seen: (*forget, older))
    sites.bed.cluster.in_contact["n1"] = f" {OLDER_KEY}={packed(str(held))}"
    sites.bed.cluster.tick()
    assert not noted_at_home(sites)
    release = "replicate failback web --release --accept SAN-REST-015"
    text = run(release, monkeypatch, capsys, status=4)
    assert "SAN-REST-017" in text and noted_at_home(sites)
    assert "SAN-REST-018" in run("site remove far --yes", monkeypatch, capsys, status=4)
    text = run(f"{release} --accept SAN-REST-017", monkeypatch, capsys)
    assert "hosts are let in to device web\n" in text, "nothing is said of what it is"


@pytest.mark.usefixtures("away")
def test_a_turn_that_is_not_known_lets_no_host_in(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    asked = order_of(sites)._replace(turn=ASKED)
    change = SetParameter(name=DeviceName.parse("web"), parameter="restore", value=str(asked))
    sites.bed.session.change(lambda _seen: (change,))
    text = run("replicate failback web --release", monkeypatch, capsys, status=4)
    assert "SAN-REST-017" in text and "whether site far has noted" in text
    run("replicate takeover web", monkeypatch, capsys)
    run("replicate failback web --release", monkeypatch, capsys)
    assert order_of(sites).state == DONE


@pytest.mark.usefixtures("away")
def test_what_the_cib_said_is_no_copy_that_hosts_are_let_in_to(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was older than what a node has noted, so nothing is said of what the device is."""
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    held = order_of(sites)
    ended = held._replace(given_s=held.given_s + 1).in_state(DONE)
    sites.bed.cluster.in_contact["n2"] = f" {OLDER_KEY}={packed(str(ended))}"
    sites.bed.cluster.tick()
    release = "replicate failback web --release --accept SAN-REST-015 --accept SAN-REST-017"
    assert data(release, monkeypatch, capsys)["copy"] is None


def test_a_refusal_of_the_site_is_said_also_where_the_turn_cannot_be_noted_as_before(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def older(*_words: Any, **_options: Any) -> Any:
        raise CommandError(Problem("SAN-SITE-036", "a newer one"))

    def full(cluster: Any, names: Any, turn: str) -> Any:
        if turn != ASKED:
            raise CommandError(Problem("SAN-CLU-004", "no quorum"))
        return plan_turn(cluster, names, turn)

    with monkeypatch.context() as patched:
        patched.setattr(SiteLink, "take_over", older)
        patched.setattr(site_takeover, "plan_turn", full)
        text = run(_TURN, monkeypatch, capsys, status=5)
    assert "SAN-SITE-036" in text and order_of(sites).turn == ASKED


def test_the_roles_do_not_turn_while_the_cib_is_older(
    sites: Sites, away: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hosts of the other device would be out, and none could be let in to this one."""
    run("replicate failback web --from far --copy back --hold --yes", monkeypatch, capsys)
    held = order_of(sites)
    ended = held._replace(given_s=held.given_s + 1).in_state(DONE)
    sites.bed.cluster.in_contact["n2"] = f" {OLDER_KEY}={packed(str(ended))}"
    sites.bed.cluster.tick()
    text = run("replicate takeover web", monkeypatch, capsys, status=4)
    assert "SAN-REST-018" in text and order_of(sites) == held, "not even asked"
    sites.bed.cluster.in_contact.clear()
    sites.bed.cluster.tick()
    # As for a moment after a restart of its attrd.
    sites.bed.cluster.attribute("n2", "sanctl-web", None)
    run("replicate takeover web", monkeypatch, capsys)
    assert order_of(sites).turn == TURNED
