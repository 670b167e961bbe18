# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is let in to a device that awaits its sites, by what nodes, sites and orders say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.admission import ASKING
from sanctl.model.cib_change import Change, ClearParameter, SetParameter, SetSite
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.device import ReplicaState
from sanctl.model.findings import Severity
from sanctl.model.names import DeviceName
from sanctl.model.site_takeover import Takeover
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.health.hold_health import hold_findings
from sanctl.plan.health.hold_node_health import hold_node_findings
from sanctl.plan.site.admission import Evidence, is_let_in
from sanctl.plan.site.definition import plan_site_removal
from sanctl.plan.site.holding import (
    NO_SITE,
    TAKEN_OVER,
    Held,
    held,
    held_text,
    hold_progress,
    plan_admission,
    plan_hold,
    plan_release,
    release_progress,
    verdict,
)
from tests.unit.model.test_site import SITE
from tests.unit.model.test_site_takeover import SUCCESSOR
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NAME = DeviceName.parse("web")
RUN = "0123456789ab-77"
LET_IN = ReplicaState(is_let_in=True)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A cluster whose device web awaits site far."""
    made = bed_with_device(monkeypatch)
    for pair in made.cluster.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} holds=0123456789ab-77")
    made.session.change(lambda _: (SetSite(site=SITE), SetSite(site=SITE._replace(name="near"))))
    made.session.change(lambda seen: plan_hold(seen, NAME, "far", holds=True))
    made.cluster.tick()
    return made


def saying(bed: Bed, **states: ReplicaState) -> Cluster:
    """Return the cluster, whose nodes say this of the device."""
    seen = bed.seen()
    said = {("web", node): state for node, state in states.items()}
    return replace(seen, cib=replace(seen.cib, replicas=said))


def kept_out(run: str, why: str = ASKING) -> ReplicaState:
    return ReplicaState(held_run=run, held_why=why)


def test_held_is_what_nodes_say_and_none_denies(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    unknown = ReplicaState()
    for states, wanted in (
        ({}, None),
        ({"n1": unknown, "n2": unknown}, None),
        ({"n1": LET_IN, "n2": kept_out("b")}, None),
        ({"n1": kept_out("a"), "n2": unknown}, Held(runs=("a",), why=ASKING)),
        ({"n1": kept_out("")}, Held(runs=(), why=ASKING)),
        (
            {"n1": kept_out("b", "SAN-SITE-004"), "n2": kept_out("a")},
            Held(runs=("a", "b"), why="SAN-SITE-004"),
        ),
        (
            {"n1": kept_out("a", "SAN-SITE-004"), "n2": kept_out("b", TAKEN_OVER)},
            Held(runs=("a", "b"), why=TAKEN_OVER),
        ),
    ):
        assert held(saying(bed, **states), device) == wanted, states
    assert held(saying(bed, n1=kept_out("a")), replace(device, awaits=())) is None
    bed.cluster.crash("n1")
    assert held(saying(bed, n1=kept_out("a")), device) is None, "no member: not known"


def test_each_site_has_to_say_that_it_was_not_taken_over(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    device = replace(device, awaits=("far", "near"))
    folder = f"{device.name}.{device.uuid}"
    other = {f"web.{'0' * 32}": SUCCESSOR}
    assert verdict(device, {"far": {}, "near": other}) == ""
    assert verdict(device, {"far": {}}) == ASKING == verdict(device, {})
    assert verdict(device, {"far": {}, "near": "SAN-SITE-005"}) == "SAN-SITE-005"
    assert verdict(device, {"far": "SAN-SITE-005", "near": {folder: SUCCESSOR}}) == TAKEN_OVER
    assert verdict(device, {"far": {}, "near": NO_SITE}) == NO_SITE


def order(*runs: str) -> tuple[Change, ...]:
    return (SetParameter(name=NAME, parameter="released", value=" ".join(runs)),)


def test_hosts_are_let_in_for_the_runs_that_were_asked_for(bed: Bed) -> None:
    seen = bed.seen()
    (device,) = seen.cib.devices
    asked = [(device, Held(runs=("a", "b"), why=ASKING))]
    assert plan_admission(seen, asked) == order("a", "b")
    assert plan_admission(seen, [(device, Held(runs=(), why=ASKING))]) == ()
    assert plan_admission(replace(seen, mon=replace(seen.mon, has_quorum=False)), asked) == ()
    # Meanwhile it is another device of that name, awaits another site, or is gone.
    for other in (replace(device, uuid="0" * 32), replace(device, awaits=("far", "near"))):
        assert plan_admission(seen, [(other, asked[0][1])]) == ()
    gone = replace(seen, cib=replace(seen.cib, devices=()))
    assert plan_admission(gone, asked) == ()
    # Ordered already.
    bed.session.change(lambda _: order("a", "b"))
    assert plan_admission(bed.seen(), asked) == ()


def test_an_administrator_lets_hosts_in(bed: Bed) -> None:
    assert plan_release(saying(bed, n1=LET_IN, n2=kept_out("b")), NAME) == ()
    assert plan_release(saying(bed, n1=kept_out("a"), n2=kept_out("b")), NAME) == order("a", "b")
    with pytest.raises(Refused, match="SAN-SITE-023"):
        plan_release(saying(bed), NAME)
    # No order would be of a run that is not known: the setting ends, so that there is a way out.
    assert plan_release(saying(bed, n1=kept_out("")), NAME) == (
        ClearParameter(name=NAME, parameter="awaits"),
        ClearParameter(name=NAME, parameter="released"),
        ClearParameter(name=NAME, parameter="needs"),
    )
    assert not release_progress(saying(bed, n1=LET_IN, n2=kept_out("b")), NAME).is_done
    assert release_progress(saying(bed, n1=LET_IN), NAME).is_done
    bed.session.change(lambda seen: plan_hold(seen, NAME, "far", holds=False))
    assert plan_release(bed.seen(), NAME) == ()


def test_a_takeover_that_was_heard_of_after_the_question_lets_nobody_in(bed: Bed) -> None:
    asking = saying(bed, n1=kept_out("a"))
    device = asking.cib.device(NAME)
    assert device is not None
    shown = held(asking, device)
    assert shown is not None and plan_release(asking, NAME, shown) == order("a")
    taken = saying(bed, n1=kept_out("a", TAKEN_OVER))
    with pytest.raises(Refused, match="SAN-SITE-033"):
        plan_release(taken, NAME, shown)
    known = held(taken, device)
    assert plan_release(taken, NAME, known) == plan_release(taken, NAME) == order("a")


def test_the_setting(bed: Bed) -> None:
    seen = bed.seen()
    assert plan_hold(seen, NAME, "far", holds=True) == ()
    (change,) = plan_hold(seen, NAME, "near", holds=True)
    assert change == SetParameter(name=NAME, parameter="awaits", value="far near")
    assert plan_hold(seen, NAME, "near", holds=False) == ()
    assert plan_hold(seen, NAME, "far", holds=False) == (
        ClearParameter(name=NAME, parameter="awaits"),
        ClearParameter(name=NAME, parameter="released"),
        ClearParameter(name=NAME, parameter="needs"),
    )
    # A word that does not agree is put right.
    (device,) = seen.cib.devices
    wordless = replace(device, needs=())
    without = replace(seen, cib=replace(seen.cib, devices=(wordless,)))
    assert plan_hold(without, NAME, "far", holds=True) == (
        SetParameter(name=NAME, parameter="needs", value="awaits"),
    )
    left = replace(seen, cib=replace(seen.cib, devices=(replace(device, awaits=()),)))
    assert plan_hold(left, NAME, "far", holds=False) == (
        ClearParameter(name=NAME, parameter="needs"),
    )
    # Kept out, or not known: neither more nor fewer sites, as either may let hosts in.
    for states in ({}, {"n1": kept_out("a")}):
        for site, holds in (("near", True), ("far", False)):
            with pytest.raises(Refused, match="SAN-SITE-023"):
                plan_hold(saying(bed, **states), NAME, site, holds=holds)
    with pytest.raises(Refused, match="SAN-SITE-002"):
        plan_hold(seen, NAME, "nowhere", holds=True)
    with pytest.raises(Refused, match=r"SAN-SITE-024.*web.*far"):
        plan_site_removal(seen, "far")
    assert plan_site_removal(seen, "near")
    for fields, why in (
        ("total=1 free=1 clones=1", "release of sanctl on n2"),
        ("error=SAN-POOL-003", "release of sanctl on n2"),
        ("total=1 free=1 holds=?", "n2 cannot tell"),
    ):
        bed.cluster.attribute("n2", "sanctl-pool-main", fields)
        with pytest.raises(Refused, match=rf"SAN-SITE-025.*{why}"):
            plan_hold(bed.seen(), NAME, "near", holds=True)
    assert plan_hold(bed.seen(), NAME, "far", holds=False), "less needs no release"


def test_the_setting_is_in_force_when_each_node_has_said_so(bed: Bed) -> None:
    assert hold_progress(bed.seen(), NAME).is_done
    assert not hold_progress(saying(bed, n1=LET_IN), NAME).is_done
    assert not hold_progress(saying(bed, n1=LET_IN, n2=kept_out("b")), NAME).is_done
    assert hold_progress(saying(bed, n1=LET_IN, n2=LET_IN), NAME).is_done
    gone = replace(bed.seen(), cib=replace(bed.seen().cib, devices=()))
    assert not hold_progress(gone, NAME).is_done
    bed.session.change(lambda seen: plan_hold(seen, NAME, "far", holds=False))
    assert hold_progress(saying(bed), NAME).is_done


def test_a_takeover_is_given_back_where_it_was_seen(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    awaits_both = replace(device, awaits=("far", "near"))
    seen = saying(bed, n1=kept_out("a", TAKEN_OVER))
    (finding,) = hold_findings(seen, awaits_both)
    assert "--at far' and 'sanctl" in (finding.do or "") and "--at near'" in (finding.do or "")
    takeover = Takeover("web", "near", device.uuid, SUCCESSOR)
    noted = replace(seen, cib=replace(seen.cib, takeovers=(takeover,)))
    (finding,) = hold_findings(noted, awaits_both)
    assert "--at near'" in (finding.do or "") and "--at far" not in (finding.do or "")


def test_what_is_said_of_it(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    assert list(hold_findings(saying(bed, n1=LET_IN), device)) == []
    for why, severity, do in (
        (ASKING, Severity.WARNING, "wait"),
        (ASKING, Severity.WARNING, "replicate release web"),
        (TAKEN_OVER, Severity.CRITICAL, "replicate giveback web --at far'"),
        ("SAN-SITE-005", Severity.CRITICAL, "replicate release web"),
    ):
        (finding,) = hold_findings(saying(bed, n1=kept_out("a", why)), device)
        assert (finding.code, finding.severity) == ("SAN-HLT-120", severity)
        assert do in (finding.do or "") and "far" in finding.what
    assert "SAN-SITE-005" in held_text(Held(runs=(), why="SAN-SITE-005"))


def test_the_setting_itself_holds_nothing(bed: Bed) -> None:
    """Nobody may be in the access list; and a node knows nothing yet when another one dies."""
    for node, run in (("n1", RUN), ("n2", "fedcba987654-1")):
        bed.cluster.attribute(node, "sanctl-pool-main", f"total=1 free=1 holds={run}")
    bed.session.change(lambda seen: plan_hold(seen, NAME, "far", holds=False))
    changes = plan_hold(bed.seen(), NAME, "far", holds=True)
    assert changes == (
        SetParameter(name=NAME, parameter="awaits", value="far"),
        SetParameter(name=NAME, parameter="released", value=f"{RUN} fedcba987654-1"),
        SetParameter(name=NAME, parameter="needs", value="awaits"),
    )
    bed.session.change(lambda _: changes)
    (device,) = bed.seen().cib.devices
    assert RUN in device.released
    nothing = Evidence(RUN, "", " ".join(device.released), serves_hosts=False)
    assert is_let_in(nothing) and not is_let_in(nothing._replace(run="0123456789ab-78"))


def test_a_storage_node_without_a_replica_has_to_know_the_setting(bed: Bed) -> None:
    """With the site's key it would take a takeover that the site has lost for ended."""
    bed.session.change(lambda seen: plan_hold(seen, NAME, "far", holds=False))
    for fields in ("total=1 free=1 clones=1", "error=SAN-POOL-003"):
        bed.cluster.attribute("n3", "sanctl-pool-main", fields)
        with pytest.raises(Refused, match=r"SAN-SITE-025.*release of sanctl on n3"):
            plan_hold(bed.seen(), NAME, "far", holds=True)
    bed.cluster.attribute("n3", "sanctl-pool-other", "total=1 free=1 holds=?")
    assert plan_hold(bed.seen(), NAME, "far", holds=True), "it needs no run"


def test_nodes_that_cannot_do_it_are_found(bed: Bed) -> None:
    def found() -> list[str]:
        seen = bed.seen()
        (device,) = seen.cib.devices
        assert list(hold_node_findings(seen, replace(device, awaits=()))) == []
        findings = list(hold_node_findings(seen, device))
        assert {each.code for each in findings} <= {"SAN-HLT-121"}
        assert {each.severity for each in findings} <= {Severity.CRITICAL}
        return [each.what for each in findings]

    assert found() == []
    bed.cluster.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-003")
    assert found() == [], "not known"
    bed.cluster.attribute("n2", "sanctl-pool-main", "total=1 free=1 clones=1")
    (what,) = found()
    assert "n2 lets hosts in" in what
    bed.cluster.attribute("n3", "sanctl-pool-main", "total=1 free=1 clones=1")
    bed.cluster.roles["sanctl-pool", "n3"] = Role.STARTED
    bed.cluster.attribute("n1", "sanctl-pool-main", "total=1 free=1 holds=?")
    here, elsewhere, nameless = found()
    assert "n2" in here and "n3" in elsewhere and "n1 cannot tell" in nameless
    (device,) = bed.seen().cib.devices
    shown = [each.code for each in device_findings(bed.seen(), device, now_s=0.0)]
    assert shown.count("SAN-HLT-121") == 3
    # As in standby: what they published last is of the release before.
    for node in ("n1", "n2", "n3"):
        del bed.cluster.roles["sanctl-pool", node]
    assert found() == []
