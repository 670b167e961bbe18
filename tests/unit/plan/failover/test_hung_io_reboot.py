# SPDX-License-Identifier: GPL-2.0-or-later
"""When a hanging request makes its node reboot, and when not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.model.hung_io import HungCause
from sanctl.plan.failover.hung_io_reboot import (
    FORGOTTEN_AFTER_S,
    HANGING_AFTER_S,
    STUCK_AFTER_S,
    HungIoAction,
    OtherDevice,
    Verdict,
    choose_action,
    explains_silence,
    spare_others,
)

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
BEHIND = PeerState("peer", "Connected", "Secondary", "SyncSource", "Inconsistent", 9)
GONE = PeerState("peer", "Connecting", "Unknown", "Off", "DUnknown", 0)


def resource(
    *peers: PeerState, role: str = "Primary", suspended: str = "no", disk: str = "UpToDate"
) -> ResourceState:
    return ResourceState("vol", role, suspended, disk, 1024, peers)


def forgotten(age_s: float = FORGOTTEN_AFTER_S) -> OldRequest:
    return OldRequest(age_s, True, frozenset({"completed", "ok"}), frozenset({"done", "ok"}))


def hanging(age_s: float = HANGING_AFTER_S) -> OldRequest:
    return OldRequest(age_s, False, frozenset({"pending"}), frozenset({"done", "ok"}))


def awaited(age_s: float = 1e6) -> OldRequest:
    return OldRequest(age_s, False, frozenset({"completed", "ok"}), frozenset({"pending", "sent"}))


@pytest.mark.parametrize(
    ("request_", "peer", "is_silent", "verdict"),
    [
        (forgotten(), GOOD, False, HungIoAction.END),
        (forgotten(), GONE, True, HungIoAction.END),
        (forgotten(), GONE, False, HungIoAction.WAIT),
        (forgotten(FORGOTTEN_AFTER_S - 0.1), GOOD, True, HungIoAction.FINE),
        (hanging(), GOOD, False, HungIoAction.END),
        (hanging(), GONE, True, HungIoAction.WAIT),
        (hanging(HANGING_AFTER_S - 0.1), GOOD, True, HungIoAction.FINE),
        # DRBD drops a peer that does not answer (ko-count).
        (awaited(), GOOD, True, HungIoAction.FINE),
    ],
)
def test_which_requests_end_the_node(
    request_: OldRequest, peer: PeerState, is_silent: bool, verdict: HungIoAction
) -> None:
    found = choose_action([awaited(), request_], resource(peer), is_silent=is_silent)
    assert found.action is verdict
    if verdict is HungIoAction.FINE:
        assert found == Verdict(HungIoAction.FINE)
    else:
        cause = HungCause.FORGOTTEN if request_.waits_for_nothing else HungCause.DISK
        assert found == Verdict(verdict, cause, request_.age_s, peer is GOOD)


ages = st.floats(0, 1e6)
requests = st.lists(st.one_of(ages.map(forgotten), ages.map(hanging), ages.map(awaited)))


@given(requests, st.booleans(), st.sampled_from([GOOD, GONE]))
def test_frozen_io_and_a_standby_end_nothing(
    those: list[OldRequest], is_silent: bool, peer: PeerState
) -> None:
    for state in (resource(peer, suspended="fencing"), resource(peer, role="Secondary")):
        assert choose_action(those, state, is_silent=is_silent) == Verdict(HungIoAction.FINE)


@given(requests, st.booleans())
def test_without_a_good_peer_a_disk_never_ends_the_node(
    those: list[OldRequest], is_silent: bool
) -> None:
    only = [request for request in those if not request.waits_for_nothing]
    found = choose_action(only, resource(GONE), is_silent=is_silent)
    assert found.action is not HungIoAction.END


#: What ends the node as far as the device itself goes.
@pytest.mark.parametrize(
    ("requests", "state", "explains"),
    [
        ([hanging(STUCK_AFTER_S)], resource(GOOD), True),
        ([hanging(0.5), hanging(1e6)], resource(GOOD), True),
        ([hanging(STUCK_AFTER_S - 1.0)], resource(GOOD), False),
        ([forgotten()], resource(GOOD), True),
        ([awaited(30.0)], resource(GOOD), False),
        ([hanging(30.0)], resource(BEHIND), False),
        ([hanging(30.0)], resource(GONE), False),
        ([hanging(30.0)], resource(GOOD, role="Secondary"), False),
        ([hanging(30.0)], resource(GOOD, suspended="fencing"), False),
        ([], resource(GOOD), False),
    ],
)
def test_what_hangs_explains_silence_where_another_node_can_serve(
    requests: list[OldRequest], state: ResourceState, explains: bool
) -> None:
    assert explains_silence(requests, state) is explains


ALONE = Verdict(HungIoAction.END, HungCause.FORGOTTEN, 31.0, can_be_served=False)
FORGOTTEN = ALONE._replace(can_be_served=True)
DISK = Verdict(HungIoAction.END, HungCause.DISK, 61.0, can_be_served=True)


def other(
    *peers: PeerState,
    role: str = "Primary",
    suspended: str = "no",
    disk: str = "UpToDate",
    has_one_replica: bool = False,
    is_silent: bool = False,
    shares_disk: bool = False,
) -> OtherDevice:
    state = resource(*peers, role=role, suspended=suspended, disk=disk)
    return OtherDevice(state._replace(name="vol2"), has_one_replica, is_silent, shares_disk)


@pytest.mark.parametrize("verdict", [ALONE, FORGOTTEN, DISK])
@pytest.mark.parametrize(
    ("found", "keeps"),
    [
        (other(GONE), True),
        (other(), True),
        # Its resync has not ended: what it lacks is here alone.
        (other(BEHIND), True),
        (other(GOOD), False),
        (other(GONE, GOOD), False),
        (other(GONE, role="Secondary"), False),
        (other(GONE, role="Unknown"), True),
        # Hosts of none of these two are answered here.
        (other(GONE, is_silent=True), False),
        (other(GONE, disk="Diskless", suspended="no-data"), False),
        # The data is at the peer that fills it.
        (other(BEHIND, disk="Inconsistent"), False),
        (other(GONE, disk="DUnknown"), True),
        # It will be answered when its peer is fenced, whatever its requests do now.
        (other(GONE, suspended="fencing"), True),
        (other(GONE, suspended="fencing", is_silent=True), True),
    ],
)
def test_another_device_that_is_served_here_alone_keeps_the_node(
    verdict: Verdict, found: OtherDevice, keeps: bool
) -> None:
    decided = spare_others(verdict, [other(GOOD), found])
    if keeps:
        assert decided == verdict._replace(action=HungIoAction.WAIT, needed_by=("vol2",))
    else:
        assert decided == verdict


@pytest.mark.parametrize(
    ("verdict", "keeps"), [(ALONE, True), (FORGOTTEN, False), (DISK, False)], ids=str
)
def test_a_device_with_one_replica_keeps_the_node_where_the_reboot_gives_no_other_server(
    verdict: Verdict, keeps: bool
) -> None:
    decided = spare_others(verdict, [other(has_one_replica=True)])
    assert decided.action is (HungIoAction.WAIT if keeps else HungIoAction.END)


@pytest.mark.parametrize(
    ("verdict", "keeps"), [(ALONE, True), (FORGOTTEN, True), (DISK, False)], ids=str
)
def test_a_device_on_the_disk_that_hangs_is_not_served_either(
    verdict: Verdict, keeps: bool
) -> None:
    decided = spare_others(verdict, [other(GONE, shares_disk=True)])
    assert decided.action is (HungIoAction.WAIT if keeps else HungIoAction.END)


@pytest.mark.parametrize("verdict", [ALONE, FORGOTTEN, DISK])
def test_the_only_device_of_a_node_ends_it_as_ever(verdict: Verdict) -> None:
    assert spare_others(verdict, []) == verdict


@pytest.mark.parametrize("verdict", [ALONE, FORGOTTEN, DISK])
def test_where_the_others_cannot_be_seen_the_node_goes_on(verdict: Verdict) -> None:
    decided = spare_others(verdict, None)
    assert decided == verdict._replace(action=HungIoAction.WAIT, needed_by=None)


others = st.lists(
    st.builds(
        other,
        st.sampled_from([GOOD, BEHIND, GONE]),
        role=st.sampled_from(["Primary", "Secondary"]),
        suspended=st.sampled_from(["no", "fencing"]),
        disk=st.sampled_from(["UpToDate", "Diskless"]),
        has_one_replica=st.booleans(),
        is_silent=st.booleans(),
        shares_disk=st.booleans(),
    )
)


@given(others, st.sampled_from([ALONE, FORGOTTEN, DISK]))
def test_a_node_never_ends_while_it_alone_answers_another_devices_hosts(
    those: list[OtherDevice], verdict: Verdict
) -> None:
    decided = spare_others(verdict, those)
    answered_here_alone = [
        each
        for each in those
        if (each.state.role, each.state.disk, each.state.suspended) == ("Primary", "UpToDate", "no")
        and not (each.is_silent or each.has_one_replica or each.shares_disk)
        and each.state.peers != (GOOD,)
    ]
    if answered_here_alone:
        assert decided.action is HungIoAction.WAIT
    # Once the peers of all are in sync it ends, whatever has been waited for.
    back = [each._replace(state=each.state._replace(peers=(GOOD,))) for each in those]
    assert spare_others(verdict, back) == verdict


@given(st.none() | others)
def test_others_make_no_verdict_worse(those: list[OtherDevice] | None) -> None:
    for action in (HungIoAction.FINE, HungIoAction.WAIT):
        verdict = Verdict(action, HungCause.FORGOTTEN, 31.0)
        assert spare_others(verdict, those) == verdict
