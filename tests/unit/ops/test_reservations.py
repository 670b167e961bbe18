# SPDX-License-Identifier: GPL-2.0-or-later
"""`device set --reservations` and `target reservations`, from the words to the end."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.model.published_reservations import RESERVATIONS_PREFIX
from tests.unit.cli.test_commands import I1, FakeEnvironment, data_of

I2 = "iqn.2026-11.net.example:i2"
KEYS = {I1: 0xABC1, I2: 0xABC2}


class Bed:
    """A device with reservations, in a cluster whose nodes keep them."""

    def __init__(self, run: Callable[..., tuple[int, str, str]], env: FakeEnvironment) -> None:
        self.env, self.run, self.cluster = env, run, env.pacemaker
        self.cluster.keep_reservations()
        words = ("device", "create", "web", "--size", "64M", "--reservations", "on")
        assert run(*words)[0] == 0
        assert run("host", "create", "db1", "--iqn", I1)[0] == 0

    def parameters(self) -> dict[str, str]:
        return self.cluster.devices()["web"]

    def shown(self) -> Any:
        status, out, _ = self.run("target", "reservations", "web", "--output", "json")
        assert status == 0
        return data_of(out)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bed:
    env = FakeEnvironment()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: env)

    def run(*words: str, answer: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanctl", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return Bed(run, env)


def test_a_device_is_made_with_them_or_without(bed: Bed) -> None:
    assert bed.parameters()["reservations"] == "on"
    assert bed.parameters()["needs"] == "reservations"
    assert bed.run("device", "create", "vm1", "--size", "64M")[0] == 0
    assert "reservations" not in bed.cluster.devices()["vm1"]
    for name, word in (("web", "on"), ("vm1", "off")):
        _, out, _ = bed.run("device", "show", name)
        assert f"reservations: {word}" in " ".join(out.split())
        _, out, _ = bed.run("device", "show", name, "--output", "json")
        assert data_of(out)["reservations"] is (word == "on")
    _, out, _ = bed.run("target", "reservations", "vm1")
    assert out == "device vm1: persistent reservations are off, and hosts' are refused\n"


def test_a_clone_has_what_is_asked_for_and_nobody_is_registered(bed: Bed) -> None:
    for node in ("n1", "n2"):
        state = bed.cluster.root.find(f"status/node_state[@uname='{node}']")
        assert state is not None
        usage = next(p for p in state.iter("nvpair") if p.get("name") == "sanctl-pool-main")
        usage.set("value", f"{usage.get('value')} clones=1")
    bed.cluster.register("web", KEYS)
    assert bed.run("snapshot", "create", "web", "--name", "one")[0] == 0
    for name, words in (("bare", ()), ("copy", ("--reservations", "on"))):
        assert bed.run("device", "create", name, "--from", "web@one", *words)[0] == 0
    assert "reservations" not in bed.cluster.devices()["bare"]
    _, out, _ = bed.run("target", "reservations", "copy")
    assert out == "device copy: no host is registered, nothing is reserved\n"
    assert len(bed.shown()["registrations"]) == 2


def test_a_node_of_an_older_release_gets_no_such_device(bed: Bed) -> None:
    usage = bed.cluster.transient_attributes("sanctl-pool-main")["n2"]
    bed.cluster.attribute("n2", "sanctl-pool-main", usage.removesuffix(" reservations=1"))
    status, _, err = bed.run("device", "create", "vm1", "--size", "64M", "--reservations", "on")
    assert (status, err.split(":")[0]) == (4, "SAN-RES-014")
    assert bed.run("device", "create", "vm1", "--size", "64M")[0] == 0
    assert bed.run("device", "set", "vm1", "--reservations", "on")[0] == 4


def test_switched_off_and_on(bed: Bed) -> None:
    status, out, _ = bed.run("device", "set", "web", "--reservations", "off")
    assert (status, out.split(",")[0]) == (0, "device web: persistent reservations are off")
    assert "reservations" not in bed.parameters()
    _, out, _ = bed.run("device", "set", "web", "--reservations", "off")
    assert out == "device web: persistent reservations are off: nothing to do\n"
    _, out, _ = bed.run("device", "set", "web", "--reservations", "on", "--output", "json")
    assert data_of(out)["changed"] and data_of(out)["reservations"]
    assert bed.run("device", "set", "web")[0] == 2
    assert bed.run("device", "set", "web", "--reservations", "yes")[0] == 2


@pytest.mark.parametrize("text", [f"{I1}=web", "?", None])
def test_not_while_a_host_is_logged_in_or_that_is_not_known(bed: Bed, text: str | None) -> None:
    if text is None:
        del bed.cluster.private_attributes["n2", SESSIONS_ATTRIBUTE]
    else:
        bed.cluster.private_attributes["n2", SESSIONS_ATTRIBUTE] = text
    status, _, err = bed.run("device", "set", "web", "--reservations", "off")
    assert (status, err.split(":")[0]) == (4, "SAN-RES-011")
    assert bed.parameters()["reservations"] == "on"


def test_a_switch_that_no_agent_follows_is_said_and_stays(bed: Bed) -> None:
    bed.cluster.is_frozen = True
    words = ("device", "set", "web", "--reservations", "off", "--timeout", "2")
    status, _, err = bed.run(*words)
    assert (status, "n1 still has reservations" in err) == (7, True)
    assert "reservations" not in bed.parameters()


def test_who_holds_what(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    _, out, _ = bed.run("target", "reservations", "web")
    assert out.splitlines()[0] == "device web: Write Exclusive, Registrants Only"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["INITIATOR", "HOST", "KEY", "HOLDER"],
        [I1, "db1", "0xabc1", "yes"],
        [I2, "-", "0xabc2", "-"],
    ]
    found = bed.shown()
    assert (found["on"], found["type"], found["active_node"]) == (True, 5, "n1")
    assert found["registrations"][0] == {
        "initiator": I1,
        "host": "db1",
        "key": "0xabc1",
        "holder": True,
    }


def test_all_that_are_registered_may_hold_it(bed: Bed) -> None:
    bed.cluster.register("web", KEYS, kind=7)
    assert [each["holder"] for each in bed.shown()["registrations"]] == [True, True]


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_what_is_not_known_is_not_nothing(bed: Bed, text: str | None) -> None:
    key = ("n1", f"{RESERVATIONS_PREFIX}web")
    if text is None:
        del bed.cluster.private_attributes[key]
    else:
        bed.cluster.private_attributes[key] = text
    assert bed.shown()["registrations"] is None
    _, out, _ = bed.run("target", "reservations", "web")
    assert out == "device web: ? (who is registered is not known: n1 does not say)\n"


def test_a_device_that_no_node_serves(bed: Bed) -> None:
    bed.cluster.crash("n1")
    bed.cluster.crash("n2")
    bed.cluster.is_frozen = True
    _, out, _ = bed.run("target", "reservations", "web")
    assert out == "device web: ? (who is registered is not known: no node serves the device)\n"


def test_a_move_keeps_them(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    assert bed.run("device", "move", "web", "--to", "n2")[0] == 0
    bed.cluster.tick()
    found = bed.shown()
    assert (found["active_node"], len(found["registrations"])) == ("n2", 2)


def test_cleared_after_a_question(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    status, _, err = bed.run("target", "reservations", "web", "clear", answer="n\n")
    assert status != 0 and len(bed.shown()["registrations"]) == 2
    assert f"{I1} (db1, holds the reservation), {I2} will lose their registrations" in err
    status, out, _ = bed.run("target", "reservations", "web", "clear", answer="y\n")
    assert (status, out.split(",")[0]) == (0, "device web: reservations cleared")
    assert bed.shown()["registrations"] == []
    assert bed.env.records[-1] == "target reservations web clear"
    # Nothing is asked where nothing is to do.
    _, out, err = bed.run("target", "reservations", "web", "clear")
    assert (out, err) == ("device web: no host is registered: nothing to do\n", "")


def test_cleared_without_a_question(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    words = ("target", "reservations", "web", "clear", "--yes", "--output", "json")
    _, out, err = bed.run(*words)
    found = data_of(out)
    assert (found["changed"], found["registrations"]) == (True, [])
    assert "Break" not in err
    # A second time it is another order.
    bed.cluster.register("web", KEYS)
    _, out, _ = bed.run(*words)
    assert data_of(out)["registrations"] == []


def test_a_host_that_registers_again_at_once_is_shown(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    tick = bed.cluster.tick

    def again() -> None:
        tick()
        if not bed.cluster.reservations["web"].reservations.registrations:
            bed.cluster.tick = tick  # type: ignore[method-assign]
            bed.cluster.register("web", {I2: 9})

    bed.env.clock.on_sleep = again
    status, out, _ = bed.run("target", "reservations", "web", "clear", "--yes")
    assert status == 0
    assert out.splitlines()[1:3] == [
        "since then:",
        "device web: Write Exclusive, Registrants Only",
    ]


def test_what_is_lost_is_cleared_too_and_the_question_says_so(bed: Bed) -> None:
    bed.cluster.private_attributes["n1", f"{RESERVATIONS_PREFIX}web"] = "torn"
    status, _, err = bed.run("target", "reservations", "web", "clear", answer="y\n")
    assert status == 0
    assert "which hosts are registered is not known" in err
    assert bed.parameters()["clear-reservations"]


def test_an_order_that_no_node_carries_out_stands(bed: Bed) -> None:
    bed.cluster.register("web", KEYS)
    bed.cluster.ignores_clearing = True
    words = ("target", "reservations", "web", "clear", "--yes", "--timeout", "2")
    status, _, err = bed.run(*words)
    assert (status, "n1 says that 2 hosts are registered" in err) == (7, True)
    assert bed.parameters()["clear-reservations"]


def test_what_cannot_be_cleared(bed: Bed) -> None:
    assert bed.run("device", "set", "web", "--reservations", "off")[0] == 0
    status, _, err = bed.run("target", "reservations", "web", "clear", "--yes")
    assert (status, err.split(":")[0]) == (4, "SAN-RES-013")
    assert bed.run("target", "reservations", "nope")[0] == 4
    assert bed.run("target", "reservations", "web", "break")[0] == 2


def test_registrations_outlive_a_restore(bed: Bed) -> None:
    """As on an array: what is on the disk goes back, who may write to it does not."""
    bed.cluster.register("web", KEYS)
    assert bed.run("snapshot", "create", "web", "--name", "one")[0] == 0
    assert bed.run("device", "restore", "web", "--to", "one", "--yes")[0] == 0
    assert bed.parameters()["reservations"] == "on"
    assert len(bed.shown()["registrations"]) == 2
