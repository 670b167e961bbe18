# SPDX-License-Identifier: GPL-2.0-or-later
"""The order in which systemd starts and stops what the rollout installs, as its units say it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jinja2
import pytest

from sanctl.agents.handlers import programs

_ANSIBLE = Path(__file__).resolve().parents[3] / "ansible"
_ROLES = _ANSIBLE / "roles"
_UNITS = sorted(
    path
    for path in _ROLES.glob("*/templates/*.j2")
    if "[Unit]" in path.read_text() or "[Service]" in path.read_text()
)


def values(text: str, key: str) -> list[str]:
    """Return the words of all lines of a key; systemd adds them up."""
    lines = (line.partition("=") for line in text.splitlines())
    return [word for name, _, value in lines if name == key for word in value.split()]


def render(template: str, **variables: object) -> str:
    """Render a template with the rollout's filters."""
    spec = importlib.util.spec_from_file_location(
        "inventory_filter", _ANSIBLE / "plugins/filter/inventory.py"
    )
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    for name, function in module.FilterModule().filters().items():
        environment.filters[f"sanctl.san.{name}"] = function
    return environment.from_string((_ROLES / template).read_text()).render(**variables)


@pytest.mark.parametrize("unit", _UNITS, ids=lambda path: path.name)
def test_a_unit_that_starts_early_waits_for_what_it_reads(unit: Path) -> None:
    """Without default dependencies it runs before /var is mounted, if nothing is said.

    The notes on a pool then seem to be missing, and its flash is emptied.
    """
    text = unit.read_text()
    if values(text, "DefaultDependencies") != ["no"]:
        return
    needed = {"/var/lib/sanctl/pools", "/opt/sanctl", "/usr/lib/sanctl", "/etc/sanctl"}
    assert needed <= set(values(text, "RequiresMountsFor"))


def test_the_unit_of_a_pools_flash_is_the_early_one() -> None:
    early = [one.name for one in _UNITS if values(one.read_text(), "DefaultDependencies")]
    assert early == ["service.j2"]


def test_a_pool_behind_flash_is_not_mounted_read_only() -> None:
    text = (_ROLES / "sanctl_pool_caches/templates/mount.j2").read_text()
    assert values(text, "ReadWriteOnly") == ["yes"]


@pytest.mark.parametrize("template", ["pacemaker.conf.j2", "sanctl-replicas.service.j2"])
def test_what_stops_devices_is_ordered_before_what_they_stand_on(template: str) -> None:
    """By itself: resource-agents-deps.target is not active once a pool's mount was stopped."""
    text = render(
        f"sanctl_software/templates/{template}",
        sanctl_software_pools=["/srv/sanctl/main", "/srv/sanctl/ma-in"],
    )
    assert {
        "srv.mount",
        "srv-sanctl.mount",
        "srv-sanctl-main.mount",
        "srv-sanctl-ma\\x2din.mount",
        "blk-availability.service",
        "lvm2-monitor.service",
        "multipathd.service",
    } <= set(values(text.partition("[Service]")[0], "After"))


def test_all_that_the_target_stands_after_they_stand_after() -> None:
    pools: list[str] = []
    target, *others = (
        values(render(f"sanctl_software/templates/{name}", sanctl_software_pools=pools), "After")
        for name in (
            "resource-agents-deps.conf.j2",
            "pacemaker.conf.j2",
            "sanctl-replicas.service.j2",
        )
    )
    assert target and all(set(target) <= set(other) for other in others)


def test_a_node_that_is_its_own_host_ends_in_order() -> None:
    """Systemd stops in the reverse order: logins, drain, Pacemaker, the other paths, replicas."""
    logins = render("sanctl_host/templates/sanctl-logins.service.j2")
    paths = render("sanctl_host/templates/sanctl-paths.service.j2")
    assert {
        "sanctl-drain.service",
        "pacemaker.service",
        "sanctl-paths.service",
        "iscsid.service",
        "multipathd.service",
    } <= set(values(logins, "After"))
    # Not remote-fs-pre.target: libvirtd is after that, and Pacemaker, which is before this unit,
    # has to be after libvirtd.
    assert values(logins, "Before") == ["libvirt-guests.service", "pve-guests.service"]
    pacemaker = render("sanctl_host/templates/own-host-pacemaker.conf.j2")
    assert "libvirtd.service" in values(pacemaker, "After")
    # Pacemaker orders the units of its resources before its own.
    assert values(render("sanctl_host/templates/sanctl-map@.service.j2"), "After") == []
    # sbd's disk may be one of another SAN.
    assert {"pacemaker.service", "corosync.service", "sbd.service"} <= set(values(paths, "Before"))
    assert {
        "sanctl-replicas.service",
        "blk-availability.service",
        "iscsid.service",
        "multipathd.service",
    } <= set(values(paths, "After"))
    # Both end by themselves, whatever hangs.
    for unit in (logins, paths):
        assert values(unit, "TimeoutStopSec") == ["60s"]


def test_the_distributions_unit_logs_out_of_nothing_and_is_not_ordered_anew() -> None:
    """It is before sbd, and so before Pacemaker: an order after Pacemaker would be a cycle."""
    text = render("sanctl_host/templates/login-service.conf.j2")
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "[Service]",
        "ExecStop=",
    ]


@pytest.mark.parametrize("name", ["sanctl-logins", "sanctl-map@"])
def test_what_an_older_release_lacks_is_not_started_with_it(name: str) -> None:
    """Restarted each second for ever otherwise: there is no limit to its starts."""
    unit = render(f"sanctl_host/templates/{name}.service.j2").partition("[Service]")[0]
    (path,) = values(unit, "ConditionPathExists")
    module = programs.MODULES["own-host"].replace(".", "/")
    assert path == f"/opt/sanctl/current/{module}.py"
    assert (_ANSIBLE.parent / f"{module}.py").is_file()
