# SPDX-License-Identifier: GPL-2.0-or-later
"""Pacemaker's properties that must not change at once, or not while a node was not asked."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from sanctl.rollout.running_cluster import watchdog_rule
from tests.unit.ansible.test_modules import ANSIBLE, cib

WAIT = "stonith-watchdog-timeout"


def configuration(value: str | None, disks: str = "") -> ET.Element:
    pair = f'<nvpair id="x" name="{WAIT}" value="{value}"/>' if value is not None else ""
    fence = (
        '<primitive id="fence-sbd" class="stonith" type="fence_sbd"><instance_attributes'
        f' id="fence-sbd-params"><nvpair id="fence-sbd-params-devices" name="devices"'
        f' value="{disks}"/></instance_attributes></primitive>'
        if disks
        else ""
    )
    return ET.fromstring(
        f'<configuration><crm_config><cluster_property_set id="o">{pair}</cluster_property_set>'
        f"</crm_config><resources>{fence}</resources></configuration>"
    )


def wanted(value: str) -> ET.Element:
    return ET.fromstring(
        f'<configuration><crm_config><nvpair name="{WAIT}" value="{value}"/></crm_config>'
        "</configuration>"
    )


@pytest.mark.parametrize(
    ("rule", "old", "asked", "new"),
    [
        # A lower value ends Pacemaker on each node that runs with a longer one.
        ("raise", "30s", "10s", "30s"),
        ("raise", "10s", "30s", "30s"),
        ("raise", "5000ms", "10s", "10s"),
        ("raise", "1min", "30s", "1min"),
        ("raise", "something", "10s", "something"),
        ("raise", None, "10s", "10s"),
        ("", "30s", "10s", "10s"),
        # Where there is none it is not added; where diskless SBD was, it goes.
        ("if-set", None, "0", None),
        ("if-set", "0s", "0", "0s"),
        ("if-set", "10s", "0", "0"),
        ("if-unset", "64", "16", "64"),
        ("if-unset", None, "16", "16"),
    ],
)
def test_a_property_changes_by_its_rule(
    rule: str, old: str | None, asked: str, new: str | None
) -> None:
    present = configuration(old)
    changes = cib.apply(wanted(asked), present, [], {WAIT: rule})
    assert cib.values(present, [WAIT]) == ({WAIT: new} if new is not None else {})
    assert bool(changes) == (new != old)
    assert cib.apply(wanted(asked), present, [], {WAIT: rule}) == []


def test_a_time_that_stays_longer_is_said() -> None:
    rules = {WAIT: "raise"}
    (said,) = cib.kept_longer(wanted("10s"), configuration("30s"), rules)
    assert said == f"{WAIT} stays 30s; the inventory asks for 10s"
    assert cib.kept_longer(wanted("10s"), configuration("10000ms"), rules) == []
    assert cib.kept_longer(wanted("10s"), configuration("30s"), {WAIT: "if-set"}) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (configuration(None), configuration("10s"), [f"{WAIT}=10s"]),
        (configuration("0"), configuration("10s"), [f"{WAIT}=10s"]),
        (configuration("10s"), configuration("10s"), []),
        (configuration("10s"), configuration("0"), []),
        (configuration(None), configuration(None, "/dev/a"), ["fence-sbd-params-devices=/dev/a"]),
        (
            configuration(None, "/dev/a"),
            configuration(None, "/dev/b"),
            ["fence-sbd-params-devices=/dev/b"],
        ),
        (configuration(None, "/dev/a"), configuration(None, "/dev/a"), []),
        (configuration(None, "/dev/a"), configuration(None), []),
    ],
)
def test_what_the_cluster_would_newly_rely_on(
    old: ET.Element, new: ET.Element, expected: list[str]
) -> None:
    """Nodes that were not asked may have no SBD; what is relied on already may stay so."""
    assert cib.newly_relied_on(old, new, [WAIT, "fence-sbd-params-devices"]) == expected


def fenced(**devices: tuple[str, str]) -> ET.Element:
    """A configuration with fencing devices: the agent of each, and the command for its password."""
    primitives = "".join(
        f'<primitive id="fence-{name}" class="stonith" type="{agent}"><instance_attributes'
        f' id="fence-{name}-params"><nvpair id="fence-{name}-ip" name="ip" value="192.0.2.1"/>'
        + (
            f'<nvpair id="fence-{name}-params-p" name="password_script" value="{command}"/>'
            if command
            else ""
        )
        + "</instance_attributes></primitive>"
        for name, (agent, command) in devices.items()
    )
    return ET.fromstring(f"<configuration><resources>{primitives}</resources></configuration>")


READ = "cat /etc/sanctl/fence/"
IPMI = ("fence_ipmilan", f"{READ}n1")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (fenced(n1=IPMI), fenced(n1=IPMI), []),
        # Its own device does not run on a node, and the others lack the agent: nobody can fence it.
        (
            fenced(n1=IPMI),
            fenced(n1=("fence_redfish", f"{READ}n1")),
            ["fence-n1 with fence_redfish"],
        ),
        (fenced(n1=("fence_ipmilan", "")), fenced(n1=IPMI), ["fence-n1 with fence_ipmilan"]),
        (fenced(n1=IPMI), fenced(n1=("fence_ipmilan", "")), ["fence-n1 with fence_ipmilan"]),
        # A command of the operator's own is there or not, as it is now.
        (fenced(n1=("fence_ipmilan", "/bin/a")), fenced(n1=("fence_ipmilan", "/bin/b")), []),
        (
            fenced(n1=IPMI),
            fenced(n1=IPMI, n1_fallback=("fence_apc_snmp", "")),
            ["fence-n1_fallback with fence_apc_snmp"],
        ),
        (fenced(n1=IPMI, n1_fallback=("fence_apc_snmp", "")), fenced(n1=IPMI), []),
        (ET.fromstring("<configuration/>"), fenced(n1=IPMI), ["fence-n1 with fence_ipmilan"]),
    ],
)
def test_what_fencing_would_newly_need_on_the_other_nodes(
    old: ET.Element, new: ET.Element, expected: list[str]
) -> None:
    assert cib.newly_needed(old, new, READ) == expected


class Stopped(Exception):
    """The module has ended."""


class FakeModule:
    """Stands in for AnsibleModule, with a cluster that answers with one configuration."""

    check_mode = False

    def __init__(self, present: str, **params: Any) -> None:
        defaults = {
            "owned": [], "agents": {"fence-n1": ["stonith"]}, "agents_of_all": [], "rules": {},
            "relied_on": [], "node_files": READ, "unseen": [], "nodes": [], "timeout_s": 0,
        }  # fmt: skip
        self.params = {**defaults, **params}
        self.cib = f'<cib dc-uuid="1" crm_feature_set="3" have-quorum="1">{present}</cib>'
        self.pushed = False
        self.ended: dict[str, Any] = {}

    def get_bin_path(self, _name: str) -> str:
        return "/usr/sbin/cibadmin"

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.pushed |= "--patch" in argv
        return 0, self.cib if "--query" in argv else "<diff/>", ""

    def warn(self, _text: str) -> None: ...

    def exit_json(self, **result: Any) -> None:
        self.ended = result
        raise Stopped

    fail_json = exit_json


@pytest.mark.parametrize("unseen", [[], ["n2", "n3"]])
@pytest.mark.parametrize("agent", ["fence_ipmilan", "fence_redfish"])
def test_another_fence_agent_waits_for_a_run_with_all_nodes(
    monkeypatch: pytest.MonkeyPatch, unseen: list[str], agent: str
) -> None:
    now = ET.tostring(fenced(n1=IPMI), encoding="unicode")
    asked = ET.tostring(fenced(n1=(agent, IPMI[1])), encoding="unicode")
    module = FakeModule(now, configuration=asked, unseen=unseen)
    monkeypatch.setattr(cib, "AnsibleModule", lambda **_options: module)
    with pytest.raises(Stopped):
        cib.main()
    is_refused = bool(unseen) and agent != "fence_ipmilan"
    assert ("n2, n3 took no part" in module.ended.get("msg", "")) is is_refused
    assert module.pushed is (agent != "fence_ipmilan" and not unseen)


def test_the_role_says_which_files_nodes_need() -> None:
    tasks = (ANSIBLE / "roles/sanctl_pacemaker/tasks/main.yml").read_text()
    variables = (ANSIBLE / "roles/sanctl_pacemaker/vars/main.yml").read_text()
    assert f'node_files: "{READ}"' in tasks
    assert f"'{READ}' ~ node.name" in variables


@pytest.mark.parametrize(
    ("timeouts", "rule"),
    [
        (["5", "5\n", "3"], ""),
        (["5", "15", "5"], "raise"),
        # A node that does not take part, or did not answer.
        (["5", "", "5"], "raise"),
        (["5", "x"], "raise"),
    ],
)
def test_the_wait_becomes_shorter_once_every_node_runs_with_it(
    timeouts: list[str], rule: str
) -> None:
    assert watchdog_rule(timeouts, 10) == rule
