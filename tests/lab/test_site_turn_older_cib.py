# SPDX-License-Identifier: GPL-2.0-or-later
"""All power is lost, and the CIB that comes back does not know that a device is held as a copy."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.lab.test_site_restore import await_sessions, digests, finding_codes, newest
from tests.lab.test_site_turn import (
    HOME,
    THERE,
    await_both,
    await_held,
    bed,
    changed_there,
    fail_back,
    given_nothing,
    is_held_as,
    scenario,
    there,
)
from tests.support.second_site import sanctl

__all__ = ["bed", "scenario", "there"]

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NODES = ("n1", "n2", "n3")
_PARENT = f"//primitive[@id='{HOME}']/instance_attributes"
_RELEASE = f"replicate failback {HOME} --release"


def order_in(cib: str) -> str | None:
    """Return the parameter of a CIB by which the device is held."""
    found = ET.fromstring(cib).find(
        f".//primitive[@id='{HOME}']/instance_attributes/nvpair[@name='restore']"
    )
    return found.get("value", "") if found is not None else None


def on_disk(lab: LabSession, node: str) -> str | None:
    """Return the same, as a node's disk has it."""
    return order_in(lab.sh(node, "cat /var/lib/pacemaker/cib/cib.xml").stdout)


def finding(lab: LabSession) -> bool | None:
    """Whether it is said that the CIB is older than what the nodes have noted; None: not known."""
    codes_or_none = finding_codes(lab)
    return None if codes_or_none is None else "SAN-HLT-170" in codes_or_none


def no_finding(lab: LabSession) -> bool:
    """Whether it is known that nothing of that is said."""
    return finding(lab) is False


def answers(lab: LabSession, node: str) -> bool:
    """Whether a command on a node hears of the cluster."""
    return bool(lab.sh(node, "sanctl status", timeout_s=60, ok=range(256)).stdout)


def codes(problems: Any) -> list[str]:
    """Return the codes by which a command was refused."""
    return [each["code"] for each in problems]


def take_order_away(lab: LabSession) -> str:
    """Have each node's disk the CIB as it was before the device was held; return the order."""
    known = order_in(lab.sh("n3", "cibadmin --query").stdout)
    assert known
    lab.sh("n3", f"cibadmin --delete --xpath \"{_PARENT}/nvpair[@name='restore']\"")
    wait_for(
        "the CIB on each disk",
        lambda: all(on_disk(lab, node) is None for node in NODES),
        within_s=60,
    )
    wait_for("the finding", lambda: finding(lab), within_s=120)
    return known


def test_a_cib_of_before_lets_no_host_in(scenario: Scenario, there: str) -> None:
    lab = scenario.bed
    source, wanted, _ = changed_there(scenario, there)
    await_sessions(lab, HOME)
    fail_back(lab, source)
    assert is_held_as(lab, source)
    with given_nothing(scenario):
        known = take_order_away(lab)
        for node in NODES:
            lab.cut_power(node)
        for node in NODES:
            lab.ensure_power(node)
        wait_for("a node to serve", lambda: collect.active_node(lab, HOME), within_s=400)
        # Another one may serve, and say so, while the first is booting still.
        wait_for("n1 to answer", lambda: answers(lab, "n1"), within_s=240)
        await_both(lab)
        wait_for("the finding again", lambda: finding(lab), within_s=120)
        # Hosts of the other device may write: neither acceptance lets them in here by itself.
        for accepted, code in (("015", "017"), ("017", "015")):
            words = f"{_RELEASE} --accept SAN-REST-{accepted}"
            assert codes(sanctl(lab, "n3", words, status=4)) == [f"SAN-REST-{code}"]
        assert codes(fail_back(lab, source, "", status=4)) == ["SAN-REST-016"]
        # What is on it is not known.
        words = f"snapshot create {HOME} --name no"
        assert sanctl(lab, "n3", words, status=4)[0]["code"] == "SAN-REST-018"
    assert digests(lab, HOME) == {wanted}
    # A node with the newer CIB is back.
    # In the set that was there, of the device and not of its clone, which crm_resource takes where
    # the device has no such parameter.
    words = f"--force --resource {HOME} --set-name {HOME}-params --set-parameter restore"
    lab.sh("n3", f"crm_resource {words} --parameter-value {shlex.quote(known)}")
    assert order_in(lab.sh("n3", "cibadmin --query").stdout) == known
    wait_for("no such finding", lambda: no_finding(lab), within_s=120)
    await_held(lab, source)
    await_both(lab)


def test_it_is_filled_anew_without_the_newer_cib(scenario: Scenario, there: str) -> None:
    """By an order that does not let hosts in to what was there before, whatever comes of it."""
    del there
    lab = scenario.bed
    source, wanted = newest(lab, THERE)
    with given_nothing(scenario):
        take_order_away(lab)
        fail_back(lab, source)
        assert is_held_as(lab, source) and digests(lab, HOME) == {wanted}
        wait_for("no such finding", lambda: no_finding(lab), within_s=120)
    await_both(lab)
