# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies at a site are listed and used: a device made from one, put back to one, copied on from it.

The real receiver, on this machine. What the agents do is done by the cluster in memory.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sanctl.agents.sites import look
from sanctl.drivers import reflink
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import RemoveCopy, RemoveTakeover, SetParameter
from sanctl.model.device_restore import DONE, RestoreOrder
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.model.names import DeviceName
from sanctl.model.site_copy import SiteCopy
from sanctl.model.site_takeover import Ending
from sanctl.ops import site_takeover
from sanctl.plan.site import takeover_age
from sanctl.system import journal, state_files
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites, extents_by_content, printed
from tests.unit.ops.test_snapshot import bed_with_device


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    """A site with two copies of device web."""
    monkeypatch.setattr(reflink, "extents_of", extents_by_content)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    made = Sites(bed_with_device(monkeypatch), tmp_path)
    for pair in made.bed.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} clones=1")
    made.bed.env.site_link = made.connect  # type: ignore[attr-defined]
    made.bed.env.host = SimpleNamespace(node_name=lambda: "n1")  # type: ignore[attr-defined]
    made.add()
    made.change(0, 1 << 20)
    made.run()
    made.change(0)
    made.run()
    for node in ("n1", "n2"):
        made.bed.cluster.private_attributes[node, SESSIONS_ATTRIBUTE] = ""
    return made


def device_uuid(sites: Sites, name: str) -> str:
    """Return the UUID of a device."""
    device = sites.bed.seen().cib.device(name)
    assert device is not None
    return device.uuid


def run(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    status: int = 0,
) -> str:
    """Run a command for people; return what it prints."""
    capsys.readouterr()
    assert printed(line, monkeypatch) == status
    output = capsys.readouterr()
    return output.out if not status else output.err


def copy_of_back(sites: Sites, uuid: str) -> SiteCopy:
    """Have the site keep a copy of device back: the newest one of web, once more."""
    (note,) = sites.folder.glob("web.*/to-far-2.*.json")
    folder = sites.folder / f"back.{uuid}"
    folder.mkdir()
    for path in (note, note.with_suffix("")):
        (folder / path.name).write_bytes(path.read_bytes())
    digest = json.loads(note.read_text())["digest"]
    return SiteCopy("far", "back", uuid, "to-far-2", f"{2:016x}", digest)


def test_the_copies_are_listed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run("site copies far", monkeypatch, capsys)
    assert text.index("@to-far-2") < text.index("@to-far-1") and "a device here" in text
    assert "no copies" in run("site copies far db", monkeypatch, capsys)
    out = run("site copies far web --output json", monkeypatch, capsys)
    assert breaches("site copies", out) == []
    (newest, _) = json.loads(out)["data"]
    assert newest["is_of_this_cluster"] and Path(newest["file"]).read_bytes() == sites.content
    assert "SAN-SITE-002" in run("site copies near", monkeypatch, capsys, status=4)
    assert "SAN-SITE-001" in run("site copies Far", monkeypatch, capsys, status=2)


def test_a_device_is_made_from_the_newest_copy(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sites.copies()
    out = run("replicate restore web --from far --to back --output json", monkeypatch, capsys)
    assert breaches("replicate restore", out) == []
    made = sites.bed.seen().cib.device("back")
    assert made is not None and made.restore is not None and made.restore.state == DONE
    copy = made.restore.copy
    assert copy is not None and copy.point == "to-far-2" and made.size.bytes == len(sites.content)
    assert json.loads(out)["data"]["copy"] == str(copy)
    text = run("replicate restore web@to-far-1 --from far --to old", monkeypatch, capsys)
    assert "device old holds copy web." in text and "@to-far-1 at site far" in text
    assert sites.copies() == before


def test_no_older_copy_is_taken_unasked_where_the_proven_one_is_gone(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sites.folder.glob("*/to-far-2.*"):
        path.unlink()
    for line in ("restore web --from far --to back", "failback web --from far --copy web --yes"):
        text = run(f"replicate {line}", monkeypatch, capsys, status=4)
        assert "SAN-SITE-037" in text and "web@POINT" in text
    assert sites.bed.seen().cib.device("back") is None
    run("replicate restore web@to-far-1 --from far --to back", monkeypatch, capsys)
    # To another cluster, and once the cluster has forgotten the site, it is any copy.
    sites.bed.session.change(lambda seen: (RemoveCopy(record=seen.cib.copies[0]),))
    run("replicate restore web --from far --to other", monkeypatch, capsys)


def test_what_is_refused_makes_nothing(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, status, code in (
        ("replicate restore web --from far --to web", 4, "SAN-DEV-001"),
        ("replicate restore db --from far --to back", 4, "SAN-SITE-018"),
        ("replicate restore web --from near --to back", 4, "SAN-SITE-002"),
        ("replicate restore Web --from far --to back", 2, "SAN-SITE-001"),
        ("replicate failback db --from far --copy web --yes", 4, "SAN-DEV-002"),
        ("replicate failback web --from far --copy db --yes", 4, "SAN-SITE-018"),
        ("replicate failback web --from far --copy web", 2, "SAN-CLI-002"),
    ):
        said = run(line, monkeypatch, capsys, status=status)
        assert code in said, line
    assert "also those without a session now, will write over it" in said
    assert [each.name.value for each in sites.bed.seen().cib.devices] == ["web"]
    assert sites.bed.seen().cib.devices[0].restore is None


def test_no_host_is_let_in_before_the_end(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sites.bed.cluster.ignores_restores = True
    line = "replicate restore web --from far --to back --timeout 5"
    said = run(line, monkeypatch, capsys, status=7)
    assert "goes on by itself" in said
    made = sites.bed.seen().cib.device("back")
    assert made is not None and made.is_restoring and made.restore is not None
    # Copies that are used are not removed by a run.
    copy = made.restore.copy
    assert copy is not None and copy.point == "to-far-2"
    sites.change(0)
    assert sites.run(keep=1).removed == ("to-far-1",)
    shown = run("device show back", monkeypatch, capsys)
    assert "from copy web." in shown and "no host is let in" in shown


def test_a_device_is_put_back_to_a_copy(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The device has 64 MiB: what is behind the copy's end becomes zeros.
    text = run("replicate failback web --from far --copy web@to-far-1 --yes", monkeypatch, capsys)
    assert "holds copy web." in text and "what it held before is kept" in text
    assert "also those without a session now, will write over it" in text
    (device,) = sites.bed.seen().cib.devices
    assert device.restore is not None and device.restore.state == DONE
    assert device.restore.copy is not None and device.restore.copy.point == "to-far-1"
    line = "replicate failback web --from far --copy web --no-keep --yes --output json"
    out = run(line, monkeypatch, capsys)
    assert breaches("replicate failback", out) == []
    assert json.loads(out)["data"]["kept"] is None


def test_the_first_copy_of_such_a_device_begins_as_its_own_origin(sites: Sites) -> None:
    """As another cluster's device would, that was made from the copy and goes on there."""
    (device,) = sites.bed.seen().cib.devices
    folder = next(iter(sites.folder.glob("web.*")))
    other = folder.rename(sites.folder / f"web.{'e' * 32}")
    with sites.connect(sites.bed.seen().cib.sites[0]) as link:
        site = sites.bed.seen().cib.sites[0]
        newest = link.folders(site.path, site.mark)[other.name][-1]
    text = f"far:/{other.name}/{newest.name}.{newest.token}/{newest.digest}"
    order = RestoreOrder("7" * 16, text, "7" * 16, "", 1, DONE)
    change = SetParameter(name=device.name, parameter="restore", value=str(order))
    sites.bed.session.change(lambda _seen: (change,))
    sites.change(2 << 20)
    made = sites.run()
    assert made.base == newest and not made.is_by_extents
    assert made.copy.changed_bytes == 1 << 20, "a chunk"
    own = sites.folder / f"web.{device.uuid}"
    assert (own / f"to-far-3.{3:016x}").read_bytes() == sites.content
    # If the site has it no more, all of it is sent.
    for each in own.iterdir():
        each.unlink()
    for each in other.iterdir():
        each.unlink()
    made = sites.run()
    assert made.base is None and made.is_by_extents


def test_a_device_goes_on_instead_of_the_one_that_was_copied_and_back(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both devices are of this cluster: to the site each has a folder of its own."""
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    assert "SAN-SITE-022" in run("replicate takeover web", monkeypatch, capsys, status=4)
    whole, points = sites.copies(), sites.points()
    out = run("replicate takeover back --output json", monkeypatch, capsys)
    assert breaches("replicate takeover", out) == [] and json.loads(out)["data"]["changed"]
    assert "it did before" in run("replicate takeover back", monkeypatch, capsys)
    sites.change(0)
    with pytest.raises(Refused, match=r"SAN-SITE-021.*back"):
        sites.run(keep=1)
    # Nothing was begun, made or removed.
    assert sites.copies() == whole and sites.points() == points
    assert "taken over by back" in run("replicate status", monkeypatch, capsys)
    out = run("replicate status web --output json", monkeypatch, capsys)
    assert breaches("replicate status", out) == []
    assert json.loads(out)["data"][0]["takeover"]["device"] == "back"
    assert "SAN-HLT-116" in run_any("status", monkeypatch, capsys)
    # Put back to the other one's copy, web takes over, and the takeover of web ends.
    (device,) = (each for each in sites.bed.seen().cib.devices if each.name.value == "back")
    copy = copy_of_back(sites, device.uuid)
    order = RestoreOrder.from_copy("2" * 16, copy, 1)._replace(state=DONE)
    sites.bed.session.change(
        lambda _: (SetParameter(name=device_name("web"), parameter="restore", value=str(order)),)
    )
    text = run("replicate takeover web", monkeypatch, capsys)
    assert "does not go on instead of web any more" in text
    assert [each.device for each in sites.bed.seen().cib.takeovers] == ["back"]
    sites.run()
    assert len(sites.copies()) == len(whole) + 1


def test_no_takeover_is_noted_where_nobody_copies_to(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("site remove far --yes", monkeypatch, capsys)
    sites.folder = tmp_path / "another"
    sites.folder.mkdir()
    sites.add()
    for line in ("replicate takeover back", "replicate takeover back --allow-mix"):
        assert "SAN-SITE-038" in run(line, monkeypatch, capsys, status=4)
    assert [each.name for each in sites.folder.iterdir()] == ["sanctl-site.json"]
    run("replicate takeover back --allow-older", monkeypatch, capsys)
    assert list(sites.folder.glob("web.*/takeover.json"))


def test_a_takeover_is_undone(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    line = "replicate giveback web --at far"
    assert "not taken over" in run(line, monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    assert "SAN-CLI-002" in run(line, monkeypatch, capsys, status=2)
    with pytest.raises(Refused, match="SAN-SITE-021"):
        sites.run()
    out = run(f"{line} --yes --output json", monkeypatch, capsys)
    assert breaches("replicate giveback", out) == []
    data = json.loads(out)["data"]
    assert data["changed"] and data["successor"]["device"] == "back"
    assert sites.bed.seen().cib.takeovers == ()
    assert "not taken over" in run(line, monkeypatch, capsys)
    sites.run()
    run("replicate takeover back", monkeypatch, capsys)
    assert "has ended" in run(f"{line} --yes", monkeypatch, capsys)
    assert "SAN-SITE-002" in run("replicate giveback web --at near", monkeypatch, capsys, status=4)


def test_a_third_device_does_not_take_over(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("back", "third"):
        run(f"replicate restore web --from far --to {name}", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    text = run("replicate takeover third", monkeypatch, capsys, status=5)
    uuid = device_uuid(sites, "back")
    assert "SAN-SITE-021" in text and f"third --instead-of {uuid[:8]}'" in text


def test_the_deletion_of_a_device_that_may_go_on_says_so(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    text = run("device delete back", monkeypatch, capsys, status=2)
    assert "was made from web." in text and "has taken web over" in text and "Delete" in text
    # Neither one that was made anew, nor one that was put back to a copy of itself.
    assert "taken" not in run("device delete web --with-points", monkeypatch, capsys, status=2)
    run("replicate failback web --from far --copy web --yes", monkeypatch, capsys)
    assert "taken" not in run("device delete web --with-points", monkeypatch, capsys, status=2)


def test_a_takeover_is_handed_on(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy was bad: another device goes on, and at no moment nobody has taken over."""
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    uuid = device_uuid(sites, "back")
    run("device delete back --yes", monkeypatch, capsys)
    run("replicate restore web@to-far-1 --from far --to back", monkeypatch, capsys)
    line = "replicate takeover back --allow-older"
    assert uuid[:8] in run(line, monkeypatch, capsys, status=5)
    text = run(f"{line} --instead-of {'9' * 8}", monkeypatch, capsys, status=5)
    assert "SAN-SITE-021" in text, "another one than was named stays"
    for wrong in ("back", uuid[:7], uuid.upper() + "x"):
        assert "SAN-SITE-001" in run(f"{line} --instead-of {wrong}", monkeypatch, capsys, status=2)
    assert "goes on" in run(f"{line} --instead-of {uuid[:8]}", monkeypatch, capsys)
    (file,) = sites.folder.glob("web.*/takeover.json")
    assert json.loads(file.read_text())["uuid"] == device_uuid(sites, "back") != uuid
    (known,) = sites.bed.seen().cib.takeovers
    assert known.successor.uuid == device_uuid(sites, "back") and not known.is_lost
    # Typed again it is what it was; and the first one is not lost, but has ended.
    assert "it did before" in run(f"{line} --instead-of {uuid}", monkeypatch, capsys)
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    (ended,) = sites.folder.glob("web.*/given-back.json")
    assert [each["uuid"] for each in json.loads(ended.read_text())] == [
        uuid,
        known.successor.uuid,
    ]
    assert sites.bed.seen().cib.takeovers == () and sites.run()


def test_of_two_devices_of_one_copy_one_alone_takes_over(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("back", "third"):
        run(f"replicate restore web --from far --to {name}", monkeypatch, capsys)
    for more in ("", " --allow-mix", " --allow-mix --allow-older"):
        line = f"replicate takeover back third{more}"
        assert "SAN-SITE-0" in run(line, monkeypatch, capsys, status=4)
        assert not list(sites.folder.glob("web.*/takeover.json"))
    run("replicate takeover third", monkeypatch, capsys)
    (file,) = sites.folder.glob("web.*/takeover.json")
    assert json.loads(file.read_text())["device"] == "third"


def test_a_copy_that_comes_while_a_takeover_is_decided_is_not_given_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first site is back, or never was away: its schedule's run ends in these seconds."""
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    decide = takeover_age.older_problem

    def decide_slowly(*words: Any, **more: Any) -> Problem | None:
        found = decide(*words, **more)
        sites.change(0)
        sites.run()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(site_takeover, "older_problem", decide_slowly)
        text = run("replicate takeover back", monkeypatch, capsys, status=5)
    assert "SAN-SITE-036" in text and "to-far-3" in text
    assert not list(sites.folder.glob("web.*/takeover.json"))
    assert sites.bed.seen().cib.takeovers == ()
    assert "SAN-SITE-036" in run("replicate takeover back", monkeypatch, capsys, status=4)
    run("replicate takeover back --allow-older", monkeypatch, capsys)
    with pytest.raises(Refused, match="SAN-SITE-021"):
        sites.run()


def test_a_takeover_that_the_site_has_lost_is_in_force_until_it_is_given_back(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The site's storage went back to an older state: no copy is made there, and none removed."""
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    whole, points = sites.copies(), sites.points()
    (file,) = sites.folder.glob("web.*/takeover.json")
    file.unlink()
    sites.change(0)
    for _ in range(2):
        with pytest.raises(Refused, match=r"SAN-SITE-021.*back.*says so no more"):
            sites.run(keep=1)
    assert sites.copies() == whole and sites.points() == points
    assert "which the site has lost" in run("replicate status", monkeypatch, capsys)
    assert json.loads(run("replicate status --output json", monkeypatch, capsys))["data"][0][
        "takeover_lost"
    ]
    out = run_any("status", monkeypatch, capsys)
    assert "SAN-HLT-116" in out and "replicate giveback web --at far" in out
    # Noted again by the device that goes on, it is known again.
    run("replicate takeover back", monkeypatch, capsys)
    assert not sites.bed.seen().cib.takeovers[0].is_lost
    file.unlink()
    assert "has ended" in run("replicate giveback web --at far --yes", monkeypatch, capsys)
    assert sites.bed.seen().cib.takeovers == ()
    sites.run()


def test_a_takeover_that_the_site_has_lost_ends_by_the_turn_of_roles(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    (file,) = sites.folder.glob("web.*/takeover.json")
    file.unlink()
    (device,) = (each for each in sites.bed.seen().cib.devices if each.name.value == "back")
    copy = copy_of_back(sites, device.uuid)
    order = RestoreOrder.from_copy("2" * 16, copy, 1)._replace(state=DONE)
    sites.bed.session.change(
        lambda _: (SetParameter(name=device_name("web"), parameter="restore", value=str(order)),)
    )
    text = run("replicate takeover web", monkeypatch, capsys)
    assert "does not go on instead of web any more" in text
    assert [each.device for each in sites.bed.seen().cib.takeovers] == ["back"]
    sites.run()


@pytest.mark.parametrize("step", ["take_over", "give_back"])
def test_a_turn_of_roles_that_dies_leaves_both_stopped_or_what_was(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    (device,) = (each for each in sites.bed.seen().cib.devices if each.name.value == "back")
    copy = copy_of_back(sites, device.uuid)
    order = RestoreOrder.from_copy("2" * 16, copy, 1)._replace(state=DONE)
    sites.bed.session.change(
        lambda _: (SetParameter(name=device_name("web"), parameter="restore", value=str(order)),)
    )
    real = getattr(SiteLink, step)

    def dies(link: SiteLink, *words: object) -> object:
        link._ask("hello")
        raise CommandError(Problem("SAN-SITE-005", "gone"))

    monkeypatch.setattr(SiteLink, step, dies)
    run("replicate takeover web", monkeypatch, capsys, status=5)
    monkeypatch.setattr(SiteLink, step, real)
    with pytest.raises(Refused, match="SAN-SITE-021"):
        sites.run()
    text = run("replicate takeover web", monkeypatch, capsys)
    assert "does not go on instead of web any more" in text
    sites.run()


def test_the_nodes_ask_the_sites(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """As after a boot: also of a device that no schedule copies."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(look, "Pacemaker", lambda _: sites.bed.cluster)
    monkeypatch.setattr(look, "SystemClock", lambda: sites.bed.env.clock)
    monkeypatch.setattr(SiteLink, "by_ssh", sites.connect)
    said: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: said.append(text))
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    (known,) = sites.bed.seen().cib.takeovers
    sites.bed.session.change(lambda _: (RemoveTakeover(takeover=known),))
    with state_files.locked(state_files.node_lock("sites"), wait_s=0.0):
        assert look.main() == 0, "another one asks"
    assert sites.bed.seen().cib.takeovers == () == tuple(said)
    assert look.main() == 0
    assert sites.bed.seen().cib.takeovers == (known,)
    # One that is gone there is lost, and one that was given back elsewhere has ended.
    (file,) = sites.folder.glob("web.*/takeover.json")
    text = file.read_text()
    file.unlink()
    assert look.main() == 0
    assert sites.bed.seen().cib.takeovers == (known._replace(is_lost=True),)
    file.write_text(text)
    site = sites.bed.seen().cib.sites[0]
    with sites.connect(site) as link:
        ending = Ending(known.successor, 5, "n7")
        link.give_back(site.path, site.mark, known.folder, ending)
    assert said == []
    assert look.main() == 0
    assert sites.bed.seen().cib.takeovers == () and "given back on n7" in said.pop()
    file.write_text(text)
    assert look.main() == 0
    # No answer leaves what is known.
    (sites.folder / "sanctl-site.json").rename(sites.folder / "gone")
    assert look.main() == 0
    assert sites.bed.seen().cib.takeovers == (known,) and "SAN-SITE-006" in said[0]
    (sites.folder / "gone").rename(sites.folder / "sanctl-site.json")
    connected = sites.connected
    sites.bed.session.change(
        lambda seen: tuple(RemoveCopy(record=each) for each in seen.cib.copies)
    )
    assert look.main() == 0
    assert sites.connected == connected, "nothing of this cluster is there"


def device_name(name: str) -> DeviceName:
    return DeviceName.parse(name)


def run_any(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    printed(line, monkeypatch)
    return capsys.readouterr().out


def test_an_older_copy_takes_over_only_if_that_is_asked_for(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    sites.change(0)
    newest = sites.run().copy.name
    out = run("replicate takeover back", monkeypatch, capsys, status=4)
    assert "SAN-SITE-036" in out and newest in out and not sites.bed.seen().cib.takeovers
    assert not list(sites.folder.glob("*/takeover.json"))
    run("replicate takeover back --allow-older", monkeypatch, capsys)
    assert [each.device for each in sites.bed.seen().cib.takeovers] == ["web"]


def test_a_copy_that_cannot_be_read_is_not_passed_over(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    sites.change(0)
    newest = sites.run().copy
    (note,) = sites.folder.glob(f"*/{newest.name}.{newest.token}.json")
    text = note.read_text()
    note.write_text("{")
    for line in (
        "replicate restore web --from far --to third",
        "replicate failback web --from far --copy web --yes",
        "replicate takeover back",
    ):
        out = run(line, monkeypatch, capsys, status=4)
        assert "SAN-SITE-035" in out and newest.name in out, line
    capsys.readouterr()
    assert printed("site copies far --output json", monkeypatch) == 1
    out = capsys.readouterr().out
    assert breaches("site copies", out) == []
    found = json.loads(out)
    assert [each["code"] for each in found["problems"]] == ["SAN-SITE-035"] and found["data"]
    assert "SAN-SITE-035" in run("site copies far web", monkeypatch, capsys, status=1)
    # What is named is known; and none goes, as it is not known which are the newest.
    known = found["data"][-1]["copy"]
    run(f"replicate restore {known} --from far --to third", monkeypatch, capsys)
    before = sites.copies()
    sites.change(1 << 20)
    made = sites.run(keep=1)
    assert made.unread == (newest.name,) and made.removed == ()
    assert before.items() <= sites.copies().items()
    note.write_text(text)
    assert sites.run(keep=1).removed
    run("site copies far", monkeypatch, capsys)


def test_of_a_device_of_which_no_copy_can_be_read_that_is_said(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for note in sites.folder.glob("web.*/to-far-*.json"):
        note.write_text("")
    out = run("replicate restore web --from far --to back", monkeypatch, capsys, status=4)
    assert "SAN-SITE-035" in out


def test_a_folder_that_cannot_be_read_keeps_no_other_device_from_its_copies(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = sites.folder / f"db.{'d' * 32}"
    bad.write_text("no folder, as of a damaged filesystem")
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    run("replicate failback web --from far --copy web --yes", monkeypatch, capsys)
    # It is neither empty nor absent.
    for line in ("restore db --from far --to db", "failback back --from far --copy db --yes"):
        text = run(f"replicate {line}", monkeypatch, capsys, status=4)
        assert "SAN-SITE-035" in text and bad.name in text, line
    capsys.readouterr()
    assert printed("site copies far --output json", monkeypatch) == 1
    out = capsys.readouterr().out
    assert breaches("site copies", out) == []
    found = json.loads(out)
    assert [each["code"] for each in found["problems"]] == ["SAN-SITE-035"]
    assert len(found["data"]) == 2
    sites.change(0)
    assert sites.run(keep=1).removed


def test_of_a_device_whose_own_folder_cannot_be_read_nothing_is_said_to_be_gone(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    (folder,) = sites.folder.glob("web.*")
    folder.rename(sites.folder / "lost")
    folder.write_text("no folder")
    assert "SAN-SITE-035" in run("replicate takeover back", monkeypatch, capsys, status=4)
    capsys.readouterr()
    printed("report rpo", monkeypatch)
    output = capsys.readouterr()
    assert "SAN-SITE-035" in output.err and "SAN-SITE-037" not in output.err
    assert "to-far-2" in output.out
