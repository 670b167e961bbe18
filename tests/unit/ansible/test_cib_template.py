# SPDX-License-Identifier: GPL-2.0-or-later
"""What the role writes into the CIB: which resources Pacemaker tries again by itself."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from typing import Any

import jinja2
import pytest

from sanctl.agents.reach import METADATA
from sanctl.drivers import outdated_marks
from sanctl.model.cib_names import POOL_RESOURCE, POOLS_CLONE, REACH_CLONE, REACH_RESOURCE
from tests.unit.ansible.test_modules import ANSIBLE, cib

_TEMPLATE = (ANSIBLE / "roles/sanctl_pacemaker/templates/cib.xml.j2").read_text()
_VARIABLES = (ANSIBLE / "roles/sanctl_pacemaker/vars/main.yml").read_text()
_DEFAULTS = (ANSIBLE / "roles/sanctl_pacemaker/defaults/main.yml").read_text()
SECONDS = {
    found[1]: int(found[2])
    for found in re.finditer(r"^sanctl_pacemaker_(\w+_s): (\d+)$", _DEFAULTS, re.MULTILINE)
}
_AGENTS = {POOLS_CLONE: POOL_RESOURCE, REACH_CLONE: REACH_RESOURCE}


def rendered(**variables: Any) -> ET.Element:
    """Return the configuration of two storage nodes that are fenced by BMCs and by a disk."""
    # As Ansible does it, with those of its filters that the template has.
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    environment.filters["combine"] = lambda first, *others: {
        key: value for each in (first, *others) for key, value in each.items()
    }
    environment.filters["difference"] = lambda those, others: [
        one for one in those if one not in others
    ]
    environment.filters["bool"] = bool
    fences = [
        {"id": f"fence-{node}", "node": node, "agent": "fence_ipmilan", "is_first": True}
        | {"options": {"ip": "192.0.2.1"}}
        for node in ("n1", "n2")
    ]
    values: dict[str, Any] = {
        "sanctl_pacemaker_has_release": True,
        "sanctl_pacemaker_fences": fences,
        "sanctl_pacemaker_fence_retry_s": 120,
        "sanctl_pacemaker_fence_ask_s": SECONDS["fence_ask_s"],
        "sanctl_pacemaker_agent_retry_s": 120,
        "sanctl_pacemaker_fence_timeout_s": 30,
        "sanctl_pacemaker_fence_times": {"message_s": 53, "whole_s": 54},
        "sanctl_pacemaker_levels": [],
        "sanctl_pacemaker_members": ["n1", "n2"],
        "sanctl_pacemaker_reach_agent": ["sanctl", "reach"],
        "sanctl_pacemaker_reach_options": {"name": "iscsi-reach"},
        "sanctl_pacemaker_sbd_mode": "disk",
        "sanctl_pacemaker_sbd_devices": ["/dev/disk/by-id/a"],
        "sanctl_preflight_survey": {
            "has_fencing": True,
            "nodes": [{"name": node} for node in ("n1", "n2")],
        },
    }
    return ET.fromstring(environment.from_string(_TEMPLATE).render(values | variables))


def retry_times(configuration: ET.Element) -> dict[str, list[str]]:
    """Return what each primitive has of failure-timeout, in the order in which Pacemaker reads."""
    return {
        primitive.get("id", ""): [
            pair.get("value", "")
            for pair in primitive.iterfind("meta_attributes/nvpair[@name='failure-timeout']")
        ]
        for primitive in configuration.iter("primitive")
    }


@pytest.mark.parametrize("reach", [["sanctl", "reach"], ["heartbeat", "ethmonitor"]])
def test_each_resource_of_the_role_is_tried_again_after_a_failure(reach: list[str]) -> None:
    """A failed start counts as INFINITY: without the time it stays so until a cleanup."""
    assert retry_times(rendered(sanctl_pacemaker_reach_agent=reach)) == {
        "fence-n1": ["120s"],
        "fence-n2": ["120s"],
        "fence-sbd": ["120s"],
        REACH_RESOURCE: ["120s"],
        POOL_RESOURCE: ["120s"],
    }


def test_a_dead_bmc_is_asked_once_and_briefly() -> None:
    """Pacemaker orders no promotion while the start of a fencing device asks it."""
    fence = {"id": "fence-n2", "node": "n2", "agent": "fence_redfish", "is_first": True}

    def options(own: dict[str, str]) -> dict[str, str]:
        found = rendered(sanctl_pacemaker_fences=[fence | {"options": own}])
        (group,) = found.iterfind(".//primitive[@id='fence-n2']/instance_attributes")
        return {pair.get("name", ""): pair.get("value", "") for pair in group}

    asked = {"pcmk_monitor_retries": "1", "pcmk_monitor_timeout": "20s"}
    assert asked.items() <= options({}).items()
    slow = {"pcmk_monitor_timeout": "50s"}
    assert (asked | slow).items() <= options(slow).items()


def test_an_order_to_fence_that_waits_for_a_monitor_is_not_given_up_before() -> None:
    """A BMC takes some ten seconds; who has asked waits for 1.2 times the time of the fencing."""
    assert SECONDS["fence_ask_s"] + 10 <= (1.2 * SECONDS["fence_timeout_s"])
    # Two that are alike and run at once end pacemaker-fenced.
    assert not rendered().findall(".//nvpair[@name='pcmk_action_limit']")


def as_earlier(configuration: ET.Element) -> ET.Element:
    """Return the configuration as it was before these agents had the time."""
    earlier = copy.deepcopy(configuration)
    for name in _AGENTS.values():
        (primitive,) = earlier.iterfind(f".//primitive[@id='{name}']")
        for meta in primitive.findall("meta_attributes"):
            primitive.remove(meta)
    return earlier


def test_a_running_cluster_gets_the_times_with_its_next_rollout() -> None:
    wanted = rendered()
    present = as_earlier(wanted)
    assert retry_times(present)[POOL_RESOURCE] == retry_times(present)[REACH_RESOURCE] == []
    assert cib.foreign_elements(wanted, present, {}) == []
    changed = [name for name, _, _ in cib.apply(wanted, present, [])]
    assert changed == [REACH_CLONE, POOLS_CLONE]
    assert retry_times(present) == retry_times(wanted)
    assert cib.apply(wanted, present, []) == []


@pytest.mark.parametrize(("clone", "resource"), _AGENTS.items())
def test_a_time_that_an_operator_has_set_goes_first(clone: str, resource: str) -> None:
    wanted = rendered()
    present = as_earlier(wanted)
    (primitive,) = present.iterfind(f".//primitive[@id='{resource}']")
    own = f"{resource}-meta_attributes"
    meta = ET.SubElement(primitive, "meta_attributes", {"id": own})
    ET.SubElement(
        meta, "nvpair", {"id": f"{own}-time", "name": "failure-timeout", "value": "10min"}
    )
    assert clone in [name for name, _, _ in cib.apply(wanted, present, [])]
    assert retry_times(present)[resource] == ["10min", "120s"]
    assert cib.apply(wanted, present, []) == []


def test_the_stock_agent_of_an_earlier_release_is_replaced_in_place() -> None:
    """The stop of the stock one deletes the attribute, and the start of the new one sets it."""
    wanted, present = (
        rendered(),
        rendered(
            sanctl_pacemaker_reach_agent=["pacemaker", "ping"],
            sanctl_pacemaker_reach_options={"name": "iscsi-reach", "multiplier": "1"},
        ),
    )
    agents = {
        REACH_RESOURCE: ["ocf:sanctl:reach", "ocf:heartbeat:ethmonitor", "ocf:pacemaker:ping"]
    }
    for kind in agents[REACH_RESOURCE]:
        assert f"'{kind}'" in _VARIABLES
    assert cib.foreign_elements(wanted, present, agents) == []
    assert [name for name, _, _ in cib.apply(wanted, present, [])] == [REACH_CLONE]
    (primitive,) = present.iterfind(f".//primitive[@id='{REACH_RESOURCE}']")
    assert (primitive.get("provider"), primitive.get("type")) == ("sanctl", "reach")
    assert [pair.get("name") for pair in primitive.iterfind("instance_attributes/nvpair")] == [
        "name"
    ]


def test_an_agent_that_a_node_may_lack_waits_for_a_run_with_all_nodes() -> None:
    """Pacemaker takes an agent that is not installed on a node for final there."""
    earlier = {"sanctl_pacemaker_reach_agent": ["pacemaker", "ping"]}
    present = rendered(**earlier)
    before = ET.tostring(present)
    wanted = rendered(sanctl_pacemaker_agent_retry_s=60)
    assert cib.keep_agents(wanted, present, [REACH_RESOURCE]) == [
        f"{REACH_RESOURCE} stays ocf:pacemaker:ping"
    ]
    assert [name for name, _, _ in cib.apply(wanted, present, [])] == [POOLS_CLONE]
    kept = ET.fromstring(before).find(f".//clone[@id='{REACH_CLONE}']")
    now = present.find(f".//clone[@id='{REACH_CLONE}']")
    assert kept is not None
    assert now is not None
    assert cib.canonical(kept) == cib.canonical(now)
    # Without nodes that took no part, of another agent's, of the same, and of a new one.
    for names, found in (
        ([], rendered(**earlier)),
        ([POOL_RESOURCE], rendered(**earlier)),
        ([REACH_RESOURCE], rendered()),
        ([REACH_RESOURCE], ET.fromstring("<configuration/>")),
    ):
        wanted = rendered()
        assert cib.keep_agents(wanted, found, names) == []
        assert cib.canonical(wanted) == cib.canonical(rendered())


def test_the_agent_asks_for_what_the_playbook_passes() -> None:
    metadata = ET.fromstring(METADATA)
    (passed,) = re.findall(
        r"^sanctl_pacemaker_reach_ping:\n((?:  .*\n)+)", _VARIABLES, re.MULTILINE
    )
    assert {each.get("name") for each in metadata.iter("parameter")} == {
        *re.findall(r"^  (\w+):", passed, re.MULTILINE)
    }
    assert [each.get("name") for each in metadata.iter("action")] == [
        *("start", "stop", "monitor", "validate-all", "meta-data")
    ]


def test_a_fencing_by_message_has_the_time_that_it_takes() -> None:
    configuration = rendered()
    (fence,) = configuration.iterfind(".//primitive[@id='fence-sbd']/instance_attributes")
    times = {pair.get("name"): pair.get("value") for pair in fence}
    assert times["power_timeout"] == "53"
    assert times["pcmk_reboot_timeout"] == times["pcmk_off_timeout"] == "53s"
    whole = {pair.get("name"): pair.get("value") for pair in configuration.iterfind("crm_config/*")}
    assert whole["stonith-timeout"] == "54s"
    assert "| sanctl.san.fence_times(sanctl_pacemaker_sbd_mode" in _VARIABLES


@pytest.mark.parametrize("all_have_it", [True, False])
def test_cibs_are_numbered_by_memberships_once_each_storage_node_has_this_release(
    all_have_it: bool,
) -> None:
    found = rendered(sanctl_pacemaker_has_release=all_have_it)
    names = {pair.get("name") for pair in found.iterfind("crm_config/nvpair")}
    assert (outdated_marks.NUMBER in names) is all_have_it
    # What marks have made of it stays.
    assert f"'{outdated_marks.NUMBER}': 'if-unset'" in _VARIABLES
