# SPDX-License-Identifier: GPL-2.0-or-later
"""When DRBD has to call the fence-peer handler again: frozen for fencing, and no call under way."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import HandlerCalls, PeerState, ResourceState
from sanctl.plan.failover.handler_calls import is_frozen_for_fencing, must_call_again

_NONE = HandlerCalls(0, ())


def _state(
    suspended: str = "fencing", role: str = "Primary", connection: str | None = "Connecting"
) -> ResourceState:
    peer = PeerState("peer", connection or "", "Unknown", "Off", "DUnknown", None)
    return ResourceState("vol1", role, suspended, "UpToDate", 1024, (peer,) if connection else ())


@pytest.mark.parametrize("suspended", ["fencing", "user,fencing", "no-data,fencing", "fencing,x"])
@pytest.mark.parametrize("connection", ["Connecting", "WFConnection", "Unconnected", "StandAlone"])
def test_a_frozen_primary_without_a_handler(suspended: str, connection: str) -> None:
    assert must_call_again(_state(suspended, connection=connection), _NONE)


def test_a_frozen_primary_that_has_given_its_peer_up() -> None:
    """DRBD 8.4 shows no connection then: as after a monitor that died between its two steps."""
    assert must_call_again(_state(connection=None), _NONE)


@pytest.mark.parametrize(
    "state",
    [
        None,
        _state("no"),
        _state("user"),
        _state("no-data"),
        _state("quorum"),
        _state(role="Secondary"),
        _state(role="Unknown"),
        _state(connection="Connected"),
        # DRBD calls the handler in these, or ends the freeze, a moment later.
        _state(connection="WFReportParams"),
        _state(connection="Disconnecting"),
        _state(connection="NetworkFailure"),
        _state(connection="BrokenPipe"),
        _state(connection="Unknown"),
    ],
    ids=str,
)
def test_nothing_else_is_ended_by_a_new_call(state: ResourceState | None) -> None:
    assert not must_call_again(state, _NONE)


@pytest.mark.parametrize(
    ("calls", "is_missing"),
    [
        (HandlerCalls(1, ("vol1",)), False),
        # The kernel waits for drbdadm, whoever called it: a promotion has no thread of its own.
        (HandlerCalls(0, ("vol1",)), False),
        # A thread whose program has not been started may be about this resource.
        (HandlerCalls(1, ()), False),
        (HandlerCalls(2, ("vol2",)), False),
        (HandlerCalls(1, ("vol2",)), True),
        (HandlerCalls(2, ("vol2", "vol2")), True),
        (HandlerCalls(0, ("vol10",)), True),
        (HandlerCalls(0, ()), True),
    ],
    ids=str,
)
def test_never_while_a_call_may_be_under_way(calls: HandlerCalls, *, is_missing: bool) -> None:
    assert must_call_again(_state(), calls) is is_missing


def test_frozen_for_fencing() -> None:
    assert is_frozen_for_fencing(_state())
    assert not is_frozen_for_fencing(_state("no"))
    assert not is_frozen_for_fencing(None)
