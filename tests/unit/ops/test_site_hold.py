# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands and the program that let hosts in to a device that awaits its site.

The real receiver, on this machine. What the agents do is done by the cluster in memory.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.agents.sites import look
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import Problem, Unreachable
from sanctl.model.site import Site
from sanctl.model.site_takeover import SiteTakeovers
from sanctl.ops.session import Session
from sanctl.system import journal, state_files
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites
from tests.unit.ops.test_site_restore import run, run_any, sites

__all__ = ["sites"]  # the fixture

SET = "replicate set web --to far"


@pytest.fixture
def said(sites: Sites, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Have the program ask this site; return what it writes to the journal."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(look, "Pacemaker", lambda _: sites.bed.cluster)
    monkeypatch.setattr(look, "SystemClock", lambda: sites.bed.env.clock)
    monkeypatch.setattr(SiteLink, "by_ssh", sites.connect)
    for pair in sites.bed.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} holds=0123456789ab-77")
    written: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: written.append(text))
    return written


@pytest.mark.usefixtures("said")
def test_the_setting_and_an_order_by_command(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "SAN-CLI" in run(SET, monkeypatch, capsys, status=2), "nothing to set"
    out = run(f"{SET} --hold-after-restart --output json", monkeypatch, capsys)
    assert breaches("replicate set", out) == [] and json.loads(out)["data"]["changed"]
    assert "so before" in run(f"{SET} --hold-after-restart", monkeypatch, capsys)
    assert "now: hosts are let in" in run("device show web", monkeypatch, capsys)
    assert "SAN-SITE-024" in run("site remove far", monkeypatch, capsys, status=4)
    assert "were not kept out" in run("replicate release web", monkeypatch, capsys)
    sites.bed.cluster.start_anew("SAN-SITE-005")
    assert "has not answered (SAN-SITE-005)" in run("device show web", monkeypatch, capsys)
    out = run("device show web --output json", monkeypatch, capsys)
    data = json.loads(out)["data"]
    assert breaches("device show", out) == [] and data["state"] == "held"
    assert data["hold"] == {"sites": ["far"], "held": True, "why": "SAN-SITE-005"}
    out = run("replicate status --output json", monkeypatch, capsys)
    assert breaches("replicate status", out) == []
    assert json.loads(out)["data"][0]["held"] == "SAN-SITE-005"
    assert "kept out (SAN-SITE-005)" in run("replicate status", monkeypatch, capsys)
    assert "SAN-HLT-120" in run_any("status", monkeypatch, capsys)
    # An access list that changes meanwhile is stored, and nobody waits for it.
    run("target allow web iqn.2026-11.net.example:host2", monkeypatch, capsys)
    for line in (f"{SET} --no-hold-after-restart",):
        assert "SAN-SITE-023" in run(line, monkeypatch, capsys, status=4)
    assert "SAN-CLI-002" in run("replicate release web", monkeypatch, capsys, status=2)
    out = run("replicate release web --yes --output json", monkeypatch, capsys)
    assert breaches("replicate release", out) == [] and json.loads(out)["data"]["changed"]
    # That holds until the next start.
    sites.bed.cluster.start_anew()
    assert "being asked" in run("device show web", monkeypatch, capsys)
    run("replicate release web --yes", monkeypatch, capsys)
    assert "without asking" in run(f"{SET} --no-hold-after-restart", monkeypatch, capsys)
    (device,) = sites.bed.seen().cib.devices
    assert device.awaits == device.released == ()
    assert "awaits" not in run("device show web", monkeypatch, capsys)


@pytest.mark.usefixtures("said")
def test_there_is_a_way_out_where_no_node_knows_its_run(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(f"{SET} --hold-after-restart", monkeypatch, capsys)
    sites.bed.cluster.knows_runs = False
    sites.bed.cluster.start_anew()
    assert look.main() == 0
    sites.bed.cluster.tick()
    assert sites.bed.cluster.held, "the order would be of no run"
    out = run("replicate release web", monkeypatch, capsys, status=2)
    assert "awaits no site any more" in out
    out = run("replicate release web --yes", monkeypatch, capsys)
    assert "awaits no site now" in out
    (device,) = sites.bed.seen().cib.devices
    assert device.awaits == device.released == ()


def reason() -> str:
    return state_files.of_node("held-why.web").read()


def test_the_sites_answer_lets_hosts_in(
    sites: Sites,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    run(f"{SET} --hold-after-restart", monkeypatch, capsys)
    run("replicate takeover back", monkeypatch, capsys)
    cluster = sites.bed.cluster
    cluster.start_anew()
    assert look.main() == 0 and reason() == "SAN-SITE-021"
    assert cluster.held, "it was taken over"
    # Who is asked whether hosts are to be let in all the same sees who goes on.
    out = run("replicate release web", monkeypatch, capsys, status=2)
    assert "SAN-CLI-002" in out and "device back." in out and "says site far." in out
    assert cluster.held, out
    # No answer lets nobody in.
    (sites.folder / "sanctl-site.json").rename(sites.folder / "gone")
    assert look.main() == 0 and reason() == "SAN-SITE-006" and cluster.held
    (sites.folder / "gone").rename(sites.folder / "sanctl-site.json")
    # Nor does a site that has lost the takeover, as by a snapshot of its storage.
    (noted,) = sites.folder.glob("web.*/takeover.json")
    noted.rename(sites.folder / "lost")
    assert look.main() == 0 and reason() == "SAN-SITE-021" and cluster.held
    cluster.held["web"] = reason()
    cluster.tick()
    assert "says or has said" in run("device show web", monkeypatch, capsys)
    out = run("replicate release web", monkeypatch, capsys, status=2)
    assert "said site far; it says so no more" in out and "says site far." not in out
    (sites.folder / "lost").rename(noted)
    run("replicate giveback web --at far --yes", monkeypatch, capsys)
    assert cluster.held, "the site is asked by the nodes"
    del said[:]
    assert look.main() == 0
    cluster.tick()
    assert not cluster.held and reason() == "" and "let in" in said[0] and "web" in said[0]
    del said[:]
    assert look.main() == 0
    assert said == [], "nothing to do"


def test_an_answer_that_comes_late_lets_nobody_in(
    sites: Sites,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(f"{SET} --hold-after-restart", monkeypatch, capsys)
    cluster = sites.bed.cluster
    cluster.start_anew()

    def started_meanwhile(site: Site) -> SiteLink:
        cluster.start_anew()
        return sites.connect(site)

    monkeypatch.setattr(SiteLink, "by_ssh", started_meanwhile)
    assert look.main() == 0
    cluster.tick()
    assert cluster.held, "the answer was for the start before"

    answer = SiteLink.takeovers

    def slow(link: SiteLink, path: str, mark: str) -> SiteTakeovers:
        sites.bed.env.clock.sleep(61)
        return answer(link, path, mark)

    with monkeypatch.context() as patched:
        patched.setattr(SiteLink, "by_ssh", sites.connect)
        patched.setattr(SiteLink, "takeovers", slow)
        assert look.main() == 0
    cluster.tick()
    assert cluster.held and reason() == "SAN-SITE-026"
    monkeypatch.setattr(SiteLink, "by_ssh", sites.connect)

    def no_answer(*_: object, **__: object) -> None:
        raise Unreachable(Problem("SAN-CMD-002", "no answer"))

    with monkeypatch.context() as patched:
        patched.setattr(Session, "change", no_answer)
        assert look.main() == 0
    assert cluster.held and "site far does not say" in said[-1]
    with monkeypatch.context() as patched:
        patched.setattr(look, "plan_admission", no_answer)
        assert look.main() == 0
    assert cluster.held and "could not be let in" in said[-1]
    assert look.main() == 0
    cluster.tick()
    assert not cluster.held


def test_a_site_that_is_not_known_any_more_lets_nobody_in(
    sites: Sites,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(f"{SET} --hold-after-restart", monkeypatch, capsys)
    root = sites.bed.cluster.root
    (group,) = root.findall(".//cluster_property_set[@id='sanctl.sites']")
    for pair in group.findall("nvpair[@name='sanctl-site.far']"):
        group.remove(pair)
    sites.bed.cluster.start_anew()
    assert look.main() == 0 and reason() == "SAN-SITE-002" and said == []
    assert sites.bed.cluster.held
