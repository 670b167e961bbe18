# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths a storage node that is a host logs in to, and when it tries one again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.own_session import Record, Session
from sanctl.parse.iscsiadm import parse_records, parse_sessions
from sanctl.plan.host.logins import MOST_S, Attempts, by_target, due_logins, open_targets

_PREFIX = "iqn.2026-11.net.example:lab."
_OWN, _PEER = Record(f"{_PREFIX}vol1", "10.77.1.1:3260"), Record(f"{_PREFIX}vol1", "10.77.1.2:3260")
_OTHER = Record("iqn.2026-11.net.example:lab2.vol1", "10.9.9.9:3260")


_IQN = Iqn.parse("iqn.1993-08.org.debian:01:n1")
_HOST = Host(name=HostName.parse("n1"), iqns=(_IQN,))
_DEVICE = DeviceSpec(
    name=DeviceName.parse("vol1"),
    uuid="0" * 32,
    size=ByteSize.parse("1G"),
    pool=PoolName.parse("main"),
    replicas=1,
    nodes=(NodeName.parse("n1"),),
    minor=1,
    initiators=(_IQN,),
)


@pytest.mark.parametrize(
    ("device", "iqn", "expected"),
    [
        (_DEVICE, _IQN.value, True),
        (_DEVICE, "", True),
        (_DEVICE, "iqn.1993-08.org.debian:01:n2", False),
        (replace(_DEVICE, initiators=(), hosts=(_HOST,)), _IQN.value, True),
        (replace(_DEVICE, initiators=()), _IQN.value, False),
        (replace(_DEVICE, is_stopping=True), _IQN.value, False),
        (replace(_DEVICE, is_restoring=True), _IQN.value, False),
    ],
)
def test_a_target_that_lets_nobody_in_is_not_waited_for(
    device: DeviceSpec, iqn: str, expected: bool
) -> None:
    found = open_targets([device], prefix=_PREFIX, iqn=iqn)
    assert found == ({f"{_PREFIX}vol1"} if expected else set())


def _due(
    *records: Record,
    sessions: tuple[Session, ...] = (),
    tried: dict[Record, Attempts] | None = None,
    now_s: float = 100.0,
) -> tuple[Record, ...]:
    return due_logins(
        records,
        sessions,
        tried or {},
        prefix=_PREFIX,
        own_portals={"10.77.1.1:3260"},
        now_s=now_s,
    )


def test_its_own_portal_goes_first_and_other_clusters_are_left_alone() -> None:
    assert _due(_PEER, _OTHER, _OWN) == (_OWN, _PEER)


def test_a_session_in_recovery_is_one() -> None:
    assert _due(_PEER, _OWN, sessions=(Session(1, _OWN),)) == (_PEER,)


def test_a_path_that_stays_away_is_tried_less_and_less_often_but_always_again() -> None:
    assert _due(_PEER, tried={_PEER: Attempts(1, 98.0)}) == ()
    assert _due(_PEER, tried={_PEER: Attempts(1, 97.0)}) == (_PEER,)
    assert _due(_PEER, tried={_PEER: Attempts(2, 97.0)}) == ()
    for count in (6, 10_000):
        assert _due(_PEER, tried={_PEER: Attempts(count, 100.0)}, now_s=99.0 + MOST_S) == ()
        assert _due(_PEER, tried={_PEER: Attempts(count, 100.0)}, now_s=100.0 + MOST_S) == (_PEER,)


def test_what_iscsiadm_prints_is_read() -> None:
    records = parse_records(
        f"10.77.1.1:3260,1 {_PREFIX}vol1\n10.77.1.1:3260,1 {_PREFIX}vol1\n"
        f"[fd00::2]:3260,2 {_PREFIX}vol1\niscsiadm: No records found\n"
    )
    assert records == (_OWN, Record(f"{_PREFIX}vol1", "[fd00::2]:3260"))
    sessions = parse_sessions(
        f"tcp: [3] 10.77.1.1:3260,1 {_PREFIX}vol1 (non-flash)\n"
        f"tcp: [12] 10.77.1.2:3260,-1 {_PREFIX}vol1 (non-flash)\n"
    )
    assert sessions == (Session(3, _OWN), Session(12, _PEER))
    assert by_target(sessions) == {f"{_PREFIX}vol1": sessions}
