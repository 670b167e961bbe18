# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas are copied in a hold only where DRBD says, in the hold, that they hold the same data."""

from __future__ import annotations

import pytest

from sanctl.parse.drbd import ProcState, parse_proc_state
from sanctl.plan.device.hold import (
    ONLY_PEER,
    active_problem,
    standby_problem,
    standbys_in_sync,
)

ACTIVE = ProcState("Connected", "Primary", "Secondary", "UpToDate", "UpToDate", False, 0)
STANDBY = ACTIVE._replace(role="Secondary", peer_role="Primary")
ALONE = ProcState("WFConnection", "Primary", "Unknown", "UpToDate", "Outdated", False, 40)


def seen(state: ProcState) -> dict[str, ProcState]:
    """What DRBD 8.4 says, which has one peer."""
    return {ONLY_PEER: state}


def problem(state: ProcState, *, has_standby: bool) -> str:
    return active_problem(seen(state), standbys=("n2",) if has_standby else ())


def is_standby_in_sync(state: ProcState) -> bool:
    return standbys_in_sync(seen(state), ("n2",)) == ("n2",)


def test_replicas_in_sync_are_copied() -> None:
    assert problem(ACTIVE, has_standby=True) == ""
    assert problem(ACTIVE, has_standby=False) == ""
    assert standby_problem(seen(STANDBY)) == ""
    assert is_standby_in_sync(ACTIVE)
    # While they are compared, too.
    for side in ("VerifyS", "VerifyT"):
        assert problem(ACTIVE._replace(connection=side), has_standby=True) == ""
        assert standby_problem(seen(STANDBY._replace(connection=side))) == ""


def test_an_active_replica_without_a_peer_is_copied_alone() -> None:
    assert problem(ALONE, has_standby=False) == ""
    assert not is_standby_in_sync(ALONE)
    assert "WFConnection, Outdated" in problem(ALONE, has_standby=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connection", "SyncSource"),
        ("connection", "PausedSyncS"),
        ("peer_role", "Primary"),
        ("peer_role", "Unknown"),
        ("peer_disk", "Inconsistent"),
        ("out_of_sync_kib", 4),
    ],
)
def test_a_peer_that_lacks_a_write_is_not_copied(field: str, value: object) -> None:
    state = ACTIVE._replace(**{field: value})  # type: ignore[arg-type]
    assert not is_standby_in_sync(state)
    assert "not in sync" in problem(state, has_standby=True)
    assert problem(state, has_standby=False) == ""


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("role", "Secondary", "Secondary there"),
        ("disk", "Inconsistent", "disk there is Inconsistent"),
        ("is_suspended", True, "holds its I/O back"),
    ],
)
def test_an_active_replica_that_is_none(field: str, value: object, why: str) -> None:
    state = ACTIVE._replace(**{field: value})  # type: ignore[arg-type]
    for has_standby in (False, True):
        assert why in problem(state, has_standby=has_standby)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connection", "WFConnection"),
        ("connection", "SyncTarget"),
        ("role", "Primary"),
        ("peer_role", "Secondary"),
        ("disk", "Outdated"),
        ("peer_disk", "DUnknown"),
        ("out_of_sync_kib", 4),
    ],
)
def test_a_standby_that_is_not_in_sync_is_not_copied(field: str, value: object) -> None:
    state = STANDBY._replace(**{field: value})  # type: ignore[arg-type]
    assert standby_problem(seen(state))


NINE = ACTIVE._replace(connection="Established")
BEHIND = NINE._replace(connection="SyncSource", peer_disk="Inconsistent", out_of_sync_kib=8)


def test_of_several_standbys_those_in_sync_are_copied() -> None:
    states = {"n2": NINE, "n3": BEHIND, "n4": NINE}
    assert standbys_in_sync(states, ("n2", "n3", "n4")) == ("n2", "n4")
    # A peer of DRBD's that has been dropped is none of the device's; one that DRBD does not know.
    assert standbys_in_sync(states, ("n2", "n5")) == ("n2",)
    assert active_problem(states, standbys=("n2", "n4")) == ""
    assert "n3 is not in sync (SyncSource" in active_problem(states, standbys=("n2", "n3"))
    assert "knows no replica on n5" in active_problem(states, standbys=("n5", "n2"))


def test_a_standby_of_several_goes_by_its_connection_to_the_primary() -> None:
    here = NINE._replace(role="Secondary")
    lost = here._replace(connection="Off", peer_role="Unknown", peer_disk="DUnknown")
    active = here._replace(peer_role="Primary")
    assert standby_problem({"n1": active, "n3": here}) == ""
    assert standby_problem({"n1": active, "n3": lost}) == ""
    assert "Off" in standby_problem({"n1": lost, "n3": here})
    assert standby_problem({"n1": active._replace(out_of_sync_kib=4), "n3": here})
    assert "2 other nodes are Primary" in standby_problem({"n1": active, "n3": active})


def test_unknown_is_no() -> None:
    assert active_problem({}, standbys=())
    assert standby_problem({})


_PROC = """version: 8.4.11 (api:1/proto:86-101)
srcversion: 211FB288A383ED945B83420

 1: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:65536 nr:0 dw:65536 dr:2112 al:17 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 2: cs:Unconfigured
11: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C s-----
    ns:0 nr:0 dw:0 dr:2112 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:65404
\t[=>..................] sync'ed: 11.8% (65404/73600)K
 5: cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----
    ns:0 nr:0 dw:0 dr:2112 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:d oos:0
 3: cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown C r-----
    ns:0 nr:0 dw:0 dr:2112 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:d oos:8
"""


def test_proc_drbd_is_read() -> None:
    assert parse_proc_state(_PROC, 1) == ACTIVE
    assert parse_proc_state(_PROC, 11) == ProcState(
        "SyncSource", "Primary", "Secondary", "UpToDate", "Inconsistent", True, 65404
    )
    assert parse_proc_state(_PROC, 3) == ProcState(
        "WFConnection", "Secondary", "Unknown", "UpToDate", "DUnknown", False, 8
    )
    # Without a connection it has no protocol: as of a device with one replica.
    assert parse_proc_state(_PROC, 5) == ProcState(
        "StandAlone", "Primary", "Unknown", "UpToDate", "DUnknown", False, 0
    )
    for minor in (2, 4):
        assert parse_proc_state(_PROC, minor) is None
    assert parse_proc_state("version: 9.2.8 (api:2/proto:86-122)\n", 1) is None
    # A line without its second line is of no use.
    assert parse_proc_state(_PROC.partition("    ns:")[0], 1) is None


def test_a_file_of_drbd_9s_debugfs_is_read() -> None:
    text = (
        " 7: cs:Established ro:Primary/Secondary ds:UpToDate/UpToDate C r------\n"
        "    ns:65536 nr:0 dw:65536 dr:2112 al:17 bm:0 lo:0 pe:[0;0] ua:0 ap:[0;0] ep:1 wo:2"
        " oos:0\n"
        "\tact_log: used:0/1237 hits:0 misses:0 starving:0 locked:0 changed:0\n"
        "\tblocked on activity log: 0/0/0\n"
    )
    assert parse_proc_state(text, 7) == NINE
    assert parse_proc_state(text, 1) is None
