# SPDX-License-Identifier: GPL-2.0-or-later
"""Several sites are asked in turn: one that is silent or slow keeps out no others' hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.agents.sites import look
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import SetParameter, SetSite
from sanctl.model.names import DeviceName
from sanctl.model.site import Site
from sanctl.system import state_files
from tests.unit.ops.test_replicate import Sites
from tests.unit.ops.test_site_hold import said
from tests.unit.ops.test_site_restore import run, sites

__all__ = ["said", "sites"]  # the fixtures

WEB, BACK = "web", "back"


def reason(device: str) -> str:
    return state_files.of_node(f"held-why.{device}").read()


@pytest.fixture
def asked(sites: Sites, said: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Add sites near and zzz, which are in the same place; return which are asked."""
    asked: list[str] = []

    def connect(site: Site) -> SiteLink:
        asked.append(site.name)
        return sites.connect(site)

    (far,) = sites.bed.seen().cib.sites
    sites.bed.session.change(
        lambda _: tuple(SetSite(site=far._replace(name=name)) for name in ("near", "zzz"))
    )
    monkeypatch.setattr(SiteLink, "by_ssh", connect)
    del said
    return asked


def set_awaits(sites: Sites, device: str, names: str) -> None:
    change = SetParameter(name=DeviceName.parse(device), parameter="awaits", value=names)
    sites.bed.session.change(lambda _: (change,))


def have(patched: pytest.MonkeyPatch, sites: Sites, name: str, act: Callable[[], None]) -> None:
    """Have something happen when a site is asked."""
    connect = SiteLink.by_ssh

    def act_and_connect(site: Site) -> SiteLink:
        if site.name == name:
            act()
        return connect(site)

    patched.setattr(SiteLink, "by_ssh", act_and_connect)


@pytest.mark.parametrize("silent", ["near", "zzz"])
def test_a_silent_site_keeps_out_only_hosts_of_devices_that_await_it(
    sites: Sites,
    asked: list[str],
    silent: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("replicate restore web --from far --to back", monkeypatch, capsys)
    set_awaits(sites, WEB, "far")
    set_awaits(sites, BACK, silent)
    cluster = sites.bed.cluster
    cluster.start_anew()
    del asked[:]

    def stay_silent() -> None:
        sites.bed.env.clock.sleep(90)
        raise CommandError(Problem("SAN-SITE-005", "said nothing for 90 s"))

    have(monkeypatch, sites, silent, stay_silent)
    assert look.main() == 0
    cluster.tick()
    assert list(cluster.held) == [BACK] and reason(BACK) == "SAN-SITE-005" and reason(WEB) == ""


def test_a_site_that_no_device_waits_for_is_asked_last(sites: Sites, asked: list[str]) -> None:
    set_awaits(sites, WEB, "zzz")
    sites.bed.cluster.start_anew()
    let_in: list[bool] = []

    def note() -> None:
        sites.bed.cluster.tick()
        let_in.append(not sites.bed.cluster.held)

    with pytest.MonkeyPatch.context() as patched:
        have(patched, sites, "far", note)
        assert look.main() == 0
    assert asked == ["zzz", "far"] and let_in == [True], "near has no copies"


def test_an_answer_that_has_become_too_old_meanwhile_is_asked_for_again(
    sites: Sites, asked: list[str]
) -> None:
    set_awaits(sites, WEB, "far near")
    cluster = sites.bed.cluster
    cluster.start_anew()
    with pytest.MonkeyPatch.context() as patched:
        have(patched, sites, "near", lambda: sites.bed.env.clock.sleep(61))
        assert look.main() == 0
    cluster.tick()
    assert not cluster.held and asked == ["far", "near", "far"]
