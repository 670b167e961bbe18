# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.cib_change import SetParameter
from sanctl.model.device_restore import COPYING, HELD, RestoreOrder
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.site_copy import SiteCopy
from sanctl.ops.device_heal import examine_replicas, heal_device
from sanctl.ops.session import Session
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.replicas.diagnosis import Condition, Diagnosis
from sanctl.plan.replicas.heal import ACCEPT_SERVED, loss_of_keeping
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")
VM1 = DeviceName.parse("vm1")
COMMON, OLDER = "00000000000000C0", "00000000000000D0:00000000000000E0"
ONLY_N1 = f" apart=1800000000 gi=00000000000000A0:{COMMON}:{OLDER}"
ONLY_N2 = f" apart=1800000000 gi=00000000000000B0:{COMMON}:{OLDER}"
STRANGE = " apart=1800000000 gi=00000000000000F0:0000000000000000:0000000000000000:0000000000000000"


@pytest.fixture
def cluster() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


@pytest.fixture
def session(cluster: FakePacemaker) -> Session:
    return Session(cluster, FakeClock(cluster.tick), FakeReporter())


def diverge(cluster: FakePacemaker, on_n2: str = ONLY_N2) -> None:
    cluster.disconnected = {"n1": ONLY_N1, "n2": on_n2}
    cluster.tick()


def remember(cluster: FakePacemaker, node: str, attribute: str, value: str) -> None:
    """Set a permanent attribute, as the fencing handler does."""
    element = cluster.root.find(f"configuration/nodes/node[@uname='{node}']")
    assert element is not None
    group = element.find("instance_attributes")
    if group is None:
        group = element.makeelement("instance_attributes", {"id": f"nodes-{node}"})
        element.append(group)
    pair = group.makeelement("nvpair", {"id": f"x-{node}", "name": attribute, "value": value})
    group.append(pair)


def uuid(cluster: FakePacemaker) -> str:
    return cluster.devices()["vm1"]["uuid"]


def heal(session: Session, keep: NodeName, shown: Diagnosis, *accepted: str) -> None:
    heal_device(session, VM1, keep, shown=shown, accepted=accepted, timeout_s=30)


def test_sound_replicas_are_left_alone(cluster: FakePacemaker, session: Session) -> None:
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.SOUND
    with pytest.raises(Refused) as caught:
        heal(session, N1, shown)
    assert caught.value.problems[0].code == "SAN-HEAL-001"
    # One that is merely away is no reason to decide anything either.
    cluster.crash("n2")
    cluster.tick()
    assert examine_replicas(session, VM1).condition is Condition.SOUND


def test_a_second_decision_withdraws_what_the_first_has_ordered(
    cluster: FakePacemaker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the replica that is kept now would be discarded later: its generation is the same."""
    diverge(cluster)
    remember(cluster, "n1", "sanctl-discard-vm1", f"{uuid(cluster)} 00000000000000A0 bitmap")
    remember(cluster, "n2", "sanctl-revive-vm1", f"{uuid(cluster)} 00000000000000B0")
    shown = examine_replicas(session, VM1)
    seen: list[list[str | None]] = []
    carry_out = cluster.after_patch

    def after_patch() -> None:
        names = (("n1", "discard"), ("n2", "revive"), ("n2", "discard"))
        seen.append([cluster.permanent(node, f"sanctl-{kind}-vm1") for node, kind in names])
        carry_out()

    monkeypatch.setattr(cluster, "after_patch", after_patch)
    heal(session, N1, shown)
    assert seen == [[None, None, f"{uuid(cluster)} 00000000000000B0 bitmap"]]


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_decision_that_somebody_else_has_taken_meanwhile_is_looked_at_first(
    cluster: FakePacemaker, session: Session, node: str
) -> None:
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    remember(cluster, node, "sanctl-discard-vm1", f"{uuid(cluster)} 00000000000000A0 bitmap")
    with pytest.raises(Refused, match="SAN-HEAL-005"):
        heal(session, N1, shown)


def test_the_standby_that_diverged_is_discarded(cluster: FakePacemaker, session: Session) -> None:
    cluster.keeps_marks = True
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.DIVERGED
    assert loss_of_keeping(shown, N1).nodes == (N2,)
    assert "written on n2 alone" in loss_of_keeping(shown, N1).text
    orders: list[str | None] = []
    cluster.on_patch.append(lambda: orders.append(cluster.permanent("n2", "sanctl-discard-vm1")))
    heal(session, N1, shown)
    assert f"{uuid(cluster)} 00000000000000B0 bitmap" in cluster.patches[0]
    assert cluster.is_marked("vm1", "n2")
    assert cluster.permanent("n2", "sanctl-discard-vm1") is None
    assert cluster.active("vm1") == ["n1"]
    assert len(cluster.patches) == 1


def test_a_device_that_is_held_is_not_said_to_be_the_copy_any_more(
    cluster: FakePacemaker, session: Session
) -> None:
    """The replica that is kept may be of before: only what has changed since would be read then."""
    diverge(cluster)
    copy = SiteCopy("far", "vm1", "e" * 32, "to-far", "2" * 16, "c" * 64)
    held = RestoreOrder("1" * 16, str(copy), "1" * 16, "", 1000, HELD, holds=True)
    order = SetParameter(name=VM1, parameter="restore", value=str(held))
    session.change(lambda _seen: (order,))
    cluster.ignores_restores = True
    heal(session, N1, examine_replicas(session, VM1))
    device = session.observe().cib.device("vm1")
    assert device is not None and device.restore is not None
    assert device.restore.state == COPYING and device.restore.copy == copy
    assert device.restore.holds and device.restore.token != held.token


def test_no_upper_bound_is_promised_of_what_a_replica_has_that_serves(
    cluster: FakePacemaker, session: Session
) -> None:
    """Its node publishes the amount once a minute: hosts write more all the time."""
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    assert [facts.serves for facts in shown.replicas] == [True, False]
    assert all(facts.replica.out_of_sync_kib == 0 for facts in shown.replicas)
    assert loss_of_keeping(shown, N1).bytes_at_most == 0
    lost = loss_of_keeping(shown, N2)
    assert lost.bytes_at_most is None
    assert "0 B (0 blocks of 4 KiB) up to a minute ago, and more while it is served" in lost.text


def test_the_replica_that_hosts_use_is_given_up_only_by_its_code(
    cluster: FakePacemaker, session: Session
) -> None:
    cluster.keeps_marks = True
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    with pytest.raises(Refused) as caught:
        heal(session, N2, shown, "SAN-HEAL-005")
    assert caught.value.problems[0].code == ACCEPT_SERVED
    assert cluster.patches == []
    heal(session, N2, shown, ACCEPT_SERVED)
    assert cluster.active("vm1") == ["n2"]
    assert cluster.is_marked("vm1", "n1")


def test_other_data_than_was_shown_is_not_discarded(
    cluster: FakePacemaker, session: Session
) -> None:
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    diverge(cluster, ONLY_N2.replace("B0", "B8"))
    with pytest.raises(Refused) as caught:
        heal(session, N1, shown)
    assert caught.value.problems[0].code == "SAN-HEAL-005"
    assert cluster.patches == []


def test_without_a_common_past_all_of_it_goes(cluster: FakePacemaker, session: Session) -> None:
    diverge(cluster, STRANGE)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.UNRELATED
    lost = loss_of_keeping(shown, N1)
    assert lost.bytes_at_most == shown.device.size.bytes
    heal(session, N1, shown)
    assert f"{uuid(cluster)} 00000000000000F0 full" in cluster.patches[0]


def test_a_replica_that_is_only_behind_has_not_diverged(
    cluster: FakePacemaker, session: Session
) -> None:
    behind = f" apart=1 gi={COMMON}:0000000000000000:{OLDER}"
    diverge(cluster, behind)
    assert examine_replicas(session, VM1).condition is Condition.SOUND


def test_both_marked(cluster: FakePacemaker, session: Session) -> None:
    """Nobody may serve, though both have everything: a mark goes, and nothing is lost."""
    for node in ("n1", "n2"):
        remember(cluster, node, "sanctl-outdated-vm1", uuid(cluster))
    cluster.tick()
    cluster.tick()
    assert cluster.active("vm1") == []
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    codes = {finding.code for finding in all_findings(session.observe(), None, now_s=0.0)}
    assert "SAN-HLT-037" in codes
    assert shown.unmarks_itself
    assert loss_of_keeping(shown, N2).bytes_at_most == 0
    heal(session, N2, shown)
    assert cluster.active("vm1") == ["n2"]
    assert cluster.permanent("n2", "sanctl-outdated-vm1") is None


def test_the_good_replica_is_gone_for_ever(cluster: FakePacemaker, session: Session) -> None:
    cluster.crash("n1")
    remember(cluster, "n2", "sanctl-outdated-vm1", uuid(cluster))
    cluster.disks["n2"] = "Outdated"
    cluster.disconnected = {"n2": ONLY_N2}
    cluster.tick()
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    lost = loss_of_keeping(shown, N2)
    assert lost.bytes_at_most is None
    assert "n1 is offline" in lost.text
    with pytest.raises(Refused) as caught:
        loss_of_keeping(shown, N1)
    assert caught.value.problems[0].code == "SAN-HEAL-002"
    heal(session, N2, shown)
    assert f"{uuid(cluster)} 00000000000000B0" in cluster.patches[0]
    assert cluster.active("vm1") == ["n2"]
    assert cluster.is_marked("vm1", "n1")


def come_back_alone(cluster: FakePacemaker, votes: str) -> None:
    """After a loss of all power: n2 is there again, n1 is not, and is known to be off."""
    cluster.crash("n1")
    cluster.disks["n2"] = "Consistent"
    cluster.disconnected = {"n2": ONLY_N2}
    cluster.attribute("n2", "sanctl-votes", f"file={votes} live={votes} strategy=x device=silent")
    cluster.tick()
    cluster.tick()


@pytest.mark.parametrize("votes", ["two-node", "qdevice@vote1"])
def test_a_replica_that_no_node_can_vouch_for(
    cluster: FakePacemaker, session: Session, votes: str
) -> None:
    """n1 may have served after n2 was gone: it is not there to say so, and no vote has notes."""
    come_back_alone(cluster, votes)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    codes = {finding.code for finding in all_findings(session.observe(), None, now_s=0.0)}
    assert "SAN-HLT-037" in codes
    assert loss_of_keeping(shown, N2).bytes_at_most is None
    heal(session, N2, shown)
    assert f"{uuid(cluster)} 00000000000000B0" in cluster.patches[0]
    assert cluster.is_marked("vm1", "n1")


def test_a_good_replica_that_waits_for_its_peer_to_join(
    cluster: FakePacemaker, session: Session
) -> None:
    """What broke: the dead end. It was no candidate, and `heal` said that Pacemaker may promote."""
    come_back_alone(cluster, "two-node")
    cluster.disconnected = {"n2": f"{ONLY_N2} withheld=1"}
    cluster.disks["n2"] = "UpToDate"
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    codes = {finding.code for finding in all_findings(session.observe(), None, now_s=0.0)}
    assert "SAN-HLT-037" in codes
    heal(session, N2, shown)
    assert f"{uuid(cluster)} 00000000000000B0" in cluster.patches[0]
    assert cluster.active("vm1") == ["n2"]


def connect_unjoined(cluster: FakePacemaker) -> None:
    """DRBD has connected n2 with n1, whose Pacemaker does not run."""
    come_back_alone(cluster, "two-node")
    cluster.attribute(
        "n2",
        "sanctl-vm1",
        "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate"
        " out-of-sync=0 role=Secondary size=1073741824 withheld=1",
    )


def test_a_replica_in_contact_with_one_that_has_not_joined_waits_for_that(
    cluster: FakePacemaker, session: Session
) -> None:
    """What broke: `heal` said that Pacemaker may promote a replica that has no score."""
    connect_unjoined(cluster)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "has not joined Pacemaker" in shown.waits_for


def test_a_survivor_that_drbd_9_calls_consistent_is_a_candidate(
    cluster: FakePacemaker, session: Session
) -> None:
    come_back_alone(cluster, "two-node")
    cluster.disconnected = {"n2": f"{ONLY_N2} withheld=0"}
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "may promote the replica on n2" in shown.waits_for


def test_a_replica_that_has_not_reported_yet_what_it_is_waits(
    cluster: FakePacemaker, session: Session
) -> None:
    come_back_alone(cluster, "two-node")
    cluster.disconnected = {"n2": " apart=1800000000"}
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "n2 has not published yet" in shown.waits_for


def test_a_witness_vouches_for_a_replica(cluster: FakePacemaker, session: Session) -> None:
    come_back_alone(cluster, "nodes")
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "may promote the replica on n2" in shown.waits_for


def test_a_good_replica_whose_node_is_drained_is_not_promoted(
    cluster: FakePacemaker, session: Session
) -> None:
    """n1 marked itself while its disk was away, and is whole again; n2 was drained meanwhile."""
    remember(cluster, "n1", "sanctl-outdated-vm1", uuid(cluster))
    cluster.attribute("n2", "sanctl.drained", "true")
    cluster.tick()
    cluster.tick()
    seen = session.observe()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert shown.waits_for == "n2 is drained, so it serves nothing: 'sanctl node undrain n2'"
    (unserved,) = (f for f in all_findings(seen, None, now_s=0.0) if f.code == "SAN-HLT-032")
    assert unserved.do == shown.waits_for
    cluster.attribute("n2", "sanctl.drained", None)
    assert "may promote the replica on n2" in examine_replicas(session, VM1).waits_for


def test_two_that_have_not_met_yet_may_still(cluster: FakePacemaker, session: Session) -> None:
    come_back_alone(cluster, "two-node")
    cluster.states["n1"] = "online"
    cluster.tick()
    assert examine_replicas(session, VM1).condition is Condition.SOUND


def test_a_silent_node_may_be_serving(cluster: FakePacemaker, session: Session) -> None:
    cluster.crash("n1")
    cluster.states["n1"] = "unclean"
    remember(cluster, "n2", "sanctl-outdated-vm1", uuid(cluster))
    cluster.tick()
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "n1 is unclean" in shown.waits_for
    with pytest.raises(Refused, match="SAN-HEAL-008"):
        heal(session, N2, shown)
    assert cluster.patches == []


def test_it_is_shown_where_people_look(cluster: FakePacemaker, session: Session) -> None:
    diverge(cluster)
    found = [f for f in all_findings(session.observe(), None, now_s=0.0) if f.code == "SAN-HLT-038"]
    assert "device heal vm1" in found[0].do


def test_what_is_not_done_in_time_goes_on(cluster: FakePacemaker, session: Session) -> None:
    diverge(cluster)
    shown = examine_replicas(session, VM1)
    cluster.is_frozen = True
    with pytest.raises(NotConverged) as caught:
        heal(session, N1, shown)
    assert "goes on by itself" in caught.value.problems[0].hint
    assert cluster.permanent("n2", "sanctl-discard-vm1") is not None


def test_a_node_without_a_replica(cluster: FakePacemaker, session: Session) -> None:
    diverge(cluster)
    with pytest.raises(Refused) as caught:
        loss_of_keeping(examine_replicas(session, VM1), NodeName.parse("n3"))
    assert caught.value.problems[0].code == "SAN-DEV-015"


def lose_both_disks(cluster: FakePacemaker, disk: str, votes: str, words: str) -> None:
    """Both are back, of one generation and connected, and marked; none is UpToDate."""
    for node in ("n1", "n2"):
        cluster.disks[node] = disk
        cluster.in_contact[node] = words
        remember(cluster, node, "sanctl-outdated-vm1", uuid(cluster))
        value = f"file={votes} live={votes} strategy=x device=silent"
        cluster.attribute(node, "sanctl-votes", value)
    cluster.tick()
    cluster.tick()
    assert cluster.active("vm1") == []


@pytest.mark.parametrize("votes", ["two-node", "nodes"])
@pytest.mark.parametrize("disk", ["Outdated", "Consistent"])
def test_two_in_contact_of_which_none_is_good(
    cluster: FakePacemaker, session: Session, disk: str, votes: str
) -> None:
    """No agent takes a word of its own: the operator's was refused for ever."""
    lose_both_disks(cluster, disk, votes, f" gi=00000000000000A0:{COMMON}:{OLDER}")
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    assert not any(side.is_never_connected for side in shown.replicas)
    heal(session, N2, shown)
    order = f'name="sanctl-revive-vm1" value="{uuid(cluster)} 00000000000000A0"'
    assert order in cluster.patches[0] and "sanctl-discard" not in cluster.patches[0]
    assert cluster.active("vm1") == ["n2"]
    assert cluster.permanent("n1", "sanctl-outdated-vm1") == uuid(cluster)


@pytest.mark.parametrize("disk", ["Outdated", "Consistent"])
def test_one_in_contact_that_has_not_told_its_generation_is_asked_for_later(
    cluster: FakePacemaker, session: Session, disk: str
) -> None:
    lose_both_disks(cluster, disk, "two-node", "")
    with pytest.raises(Refused, match="SAN-HEAL-002"):
        heal(session, N2, examine_replicas(session, VM1))
