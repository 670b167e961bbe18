# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices of a group are made from one moment at a site, take over together, and are given back so.

The real receiver, on this machine. What the agents do is done by the cluster in memory.
"""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sanctl.cli.commands import replicate_takeover as commands
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.ops import noted_state
from sanctl.ops.session import Session
from sanctl.ops.site_takeover import give_back
from tests.fakes.local_site import local_link
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import printed
from tests.unit.ops.test_replicate_group import Group, group
from tests.unit.ops.test_site_restore import run

__all__ = ["group"]


@pytest.fixture
def there(group: Group, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Two complete moments of web and db, and a third one of which web alone is there."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for pair in group.bed.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} clones=1")
    group.bed.env.site_link = group.connect  # type: ignore[attr-defined]
    group.bed.env.host = SimpleNamespace(node_name=lambda: "n1")  # type: ignore[attr-defined]
    group.run_both()
    group.run_both()
    group.dies_at = 3
    with pytest.raises(CommandError):
        group.run_both()
    group.dies_at = 0
    for node in ("n1", "n2"):
        group.bed.cluster.private_attributes[node, SESSIONS_ATTRIBUTE] = ""
    return group


def point_of(group: Group, name: str) -> str:
    device = group.bed.seen().cib.device(name)
    assert device is not None and device.restore is not None and device.restore.copy is not None
    return device.restore.copy.point


def damage(group: Group, name: str) -> None:
    """Have the site's filesystem give a device's folder no more."""
    (found,) = group.folder.glob(f"{name}.*")
    found.rename(group.folder / f"lost-{name}")
    found.write_text("no folder")


def test_both_are_made_from_the_newest_complete_moment(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run("replicate restore web --from far --to web-dr --output json", monkeypatch, capsys)
    assert breaches("replicate restore", out) == []
    run("replicate restore db --from far --to db-dr", monkeypatch, capsys)
    assert point_of(there, "web-dr") == point_of(there, "db-dr") == "to-far-2"
    whole = there.copies()
    out = run("replicate takeover web-dr --output json", monkeypatch, capsys)
    assert breaches("replicate takeover", out) == []
    assert {each["device"] for each in json.loads(out)["data"]} == {"web-dr", "db-dr"}
    text = run("replicate takeover db-dr", monkeypatch, capsys)
    assert text.count("it did before") == 2
    with pytest.raises(Refused, match="SAN-SITE-021"):
        there.run_both()
    assert there.copies() == whole
    # One is given back with the others.
    out = run("replicate giveback web --at far --yes --output json", monkeypatch, capsys)
    assert breaches("replicate giveback", out) == []
    assert len(json.loads(out)["data"]) == 2 and there.bed.seen().cib.takeovers == ()
    there.run_both()
    # Unless that was asked for.
    assert "SAN-SITE-036" in run("replicate takeover web-dr", monkeypatch, capsys, status=4)
    run("replicate takeover web-dr --allow-older", monkeypatch, capsys)
    text = run("replicate giveback db --at far --yes --allow-mix", monkeypatch, capsys)
    assert text.count("has ended") == 1 and "takeover of db." in text
    assert [each.device for each in there.bed.seen().cib.takeovers] == ["web"]


def test_a_node_that_stays_silent_is_waited_for_once_for_all_of_the_group(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("web", "db"):
        run(f"replicate restore {each} --from far --to {each}-dr", monkeypatch, capsys)
    with monkeypatch.context() as patched:
        patched.setattr(noted_state, "silent_nodes", lambda _seen, _device: ("n2",))
        began_s = there.bed.env.clock.monotonic_s()
        run("replicate takeover web-dr", monkeypatch, capsys)
    assert 30.0 <= there.bed.env.clock.monotonic_s() - began_s < 45.0
    assert len(there.bed.seen().cib.takeovers) == 2


def test_a_folder_that_cannot_be_listed_keeps_nobody_from_a_takeover_with_a_mix(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to web-dr", monkeypatch, capsys)
    damage(there, "db")
    # Whether the devices belong together is not known, whatever else is accepted.
    for more in ("", " --allow-older"):
        text = run(f"replicate takeover web-dr{more}", monkeypatch, capsys, status=4)
        assert "SAN-SITE-035" in text and "--allow-mix" in text and "the folder db." in text
    line = "replicate takeover web-dr --allow-mix"
    assert "SAN-SITE-036" in run(line, monkeypatch, capsys, status=4), "a later one of web alone"
    run(f"{line} --allow-older", monkeypatch, capsys)
    line = "replicate giveback web --at far --yes"
    assert "SAN-SITE-035" in run(line, monkeypatch, capsys, status=4)
    text = run(f"{line} --allow-mix", monkeypatch, capsys)
    assert text.count("has ended") == 1


def test_of_a_group_with_a_folder_that_cannot_be_read_no_moment_is_the_newest(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(there, "db")
    line = "replicate restore web --from far --to web-dr"
    text = run(line, monkeypatch, capsys, status=4)
    assert "SAN-SITE-035" in text and "--allow-mix" in text
    # What it cannot read is not gone (SAN-SITE-037).
    run(f"{line} --allow-mix", monkeypatch, capsys)
    assert point_of(there, "web-dr") == "to-far-3"
    printed("report rpo", monkeypatch)
    text = capsys.readouterr().err
    assert "SAN-SITE-035" in text and "SAN-SITE-037" not in text
    assert "what the cluster has noted counts" in text


def test_a_folder_of_no_device_of_the_group_keeps_nobody_from_a_takeover(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (there.folder / f"other.{'f' * 32}").write_text("no folder, as of a damaged filesystem")
    for name in ("web", "db"):
        run(f"replicate restore {name} --from far --to {name}-dr", monkeypatch, capsys)
    run("replicate takeover web-dr", monkeypatch, capsys)
    text = run("replicate giveback web --at far --yes", monkeypatch, capsys)
    assert text.count("has ended") == 2


def test_a_giveback_that_ends_half_way_goes_on(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to web-dr", monkeypatch, capsys)
    run("replicate restore db --from far --to db-dr", monkeypatch, capsys)
    run("replicate takeover web-dr", monkeypatch, capsys)
    given: list[str] = []

    def ends_after_one(session: Session, at: str, taken: Any, *words: Any) -> None:
        if given:
            raise CommandError(Problem("SAN-SITE-005", "the line is cut"))
        given.append(taken[0])
        give_back(session, at, taken, *words)

    monkeypatch.setattr(commands, "give_back", ends_after_one)
    run("replicate giveback web --at far --yes", monkeypatch, capsys, status=5)
    assert [each.device for each in there.bed.seen().cib.takeovers] == ["web"]
    monkeypatch.setattr(commands, "give_back", give_back)
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    assert there.bed.seen().cib.takeovers == ()


def test_a_mix_is_made_only_if_that_is_asked_for(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "replicate restore web@to-far-3 --from far --to web-dr"
    assert "SAN-SITE-028" in run(line, monkeypatch, capsys, status=4)
    assert there.bed.seen().cib.device("web-dr") is None
    run(f"{line} --allow-mix", monkeypatch, capsys)
    line = "replicate restore db --from far --to db-dr"
    assert "SAN-SITE-029" in run(line, monkeypatch, capsys, status=4)
    assert there.bed.seen().cib.device("db-dr") is None
    run(f"{line} --allow-mix", monkeypatch, capsys)
    assert (point_of(there, "web-dr"), point_of(there, "db-dr")) == ("to-far-3", "to-far-2")
    assert "SAN-SITE-029" in run("replicate takeover web-dr", monkeypatch, capsys, status=4)
    assert not list(there.folder.glob("*/takeover.json"))
    text = run("replicate takeover web-dr --allow-mix", monkeypatch, capsys)
    assert text.count("goes on instead") == 1
    assert len(list(there.folder.glob("*/takeover.json"))) == 1


def test_what_is_later_is_said_before_anything_is_done(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "replicate failback web --from far --copy web"
    said = run(line, monkeypatch, capsys, status=2)
    assert "moment to-far-2 of" in said and "not used: the copy to-far-3 of web alone" in said
    assert "SAN-CLI-002" in said, "nobody answers the question"
    (device,) = (each for each in there.bed.seen().cib.devices if each.name.value == "web")
    assert device.restore is None
    out = run(f"{line} --yes --output json", monkeypatch, capsys)
    assert breaches("replicate failback", out) == []
    assert point_of(there, "web") == "to-far-2"
    # The other one is still as it was: it was made from no copy.
    run("replicate failback db --from far --copy db@to-far-1 --yes", monkeypatch, capsys)
    assert point_of(there, "db") == "to-far-1"


def test_the_command_ends_in_between_and_is_typed_again(
    there: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("web", "db"):
        run(f"replicate restore {name} --from far --to {name}-dr", monkeypatch, capsys)
    # The site notes all at once, and its program, or its server, may end in between.
    dies = b"""
_note = note_takeover
def note_takeover(folder, *words):
    if "/web." in folder:
        os._exit(1)
    return _note(folder, *words)
"""
    there.bed.env.site_link = lambda _: local_link(more=dies)  # type: ignore[attr-defined]
    run("replicate takeover web-dr", monkeypatch, capsys, status=5)
    assert [each.parent.name[:3] for each in there.folder.glob("*/takeover.json")] == ["db."]
    with pytest.raises(Refused, match="SAN-SITE-021"):
        there.run_both()
    there.bed.env.site_link = there.connect  # type: ignore[attr-defined]
    assert run("replicate takeover web-dr", monkeypatch, capsys).count("it did before") == 1
    assert len(list(there.folder.glob("*/takeover.json"))) == 2
