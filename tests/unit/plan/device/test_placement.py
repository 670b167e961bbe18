# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.names import NodeName
from sanctl.plan.device.placement import (
    PlacementCandidate,
    choose_nodes,
    explain_choice,
    metadata_bytes,
    place_device,
)


def _candidate(
    name: str, room: int, active: int = 0, site: str = "", rack: str = ""
) -> PlacementCandidate:
    return PlacementCandidate(
        node=NodeName.parse(name), room_bytes=room, active_devices=active, site=site, rack=rack
    )


candidates = st.lists(
    st.builds(
        _candidate,
        st.integers(1, 32).map(lambda k: f"n{k}"),
        st.integers(0, 5).map(lambda gib: gib << 30),
        st.integers(0, 9),
    ),
    unique_by=lambda candidate: candidate.node,
    max_size=8,
)


@given(candidates, st.integers(1, 4), st.randoms())
def test_placement(found: list[PlacementCandidate], replicas: int, random: object) -> None:
    chosen = place_device(found, replicas=replicas)
    if len(found) < replicas:
        assert chosen == ()
        return
    assert len(set(chosen)) == len(chosen) == replicas
    by_node = {candidate.node: candidate for candidate in found}
    rejected = [c for c in found if c.node not in chosen]
    if rejected:
        assert min(by_node[n].room_bytes for n in chosen) >= max(c.room_bytes for c in rejected)
    assert by_node[chosen[0]].active_devices == min(by_node[n].active_devices for n in chosen)
    # The order in which nodes are looked at decides nothing.
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place_device(shuffled, replicas=replicas) == chosen


somewhere = st.lists(
    st.builds(
        _candidate,
        st.integers(1, 32).map(lambda k: f"n{k}"),
        st.integers(0, 5).map(lambda gib: gib << 30),
        st.integers(0, 9),
        st.sampled_from(["north", "south", "east"]),
        st.sampled_from(["a", "b"]),
    ),
    unique_by=lambda candidate: candidate.node,
    max_size=8,
)


@given(somewhere, st.integers(1, 4))
def test_replicas_are_spread_over_sites_and_racks(
    found: list[PlacementCandidate], replicas: int
) -> None:
    chosen = choose_nodes(found, replicas=replicas)
    if len(found) < replicas:
        assert chosen == ()
        return
    by_node = {candidate.node: candidate for candidate in found}
    sites = {by_node[node].site for node in chosen}
    assert len(sites) == min(replicas, len({candidate.site for candidate in found}))
    for site in sites:
        here = [candidate for candidate in found if candidate.site == site]
        racks = [by_node[node].rack for node in chosen if by_node[node].site == site]
        assert len(set(racks)) == min(len(racks), len({candidate.rack for candidate in here}))


@given(somewhere, st.integers(1, 4), st.integers(0, 2))
def test_every_node_gets_a_reason_and_replica_holders_count(
    found: list[PlacementCandidate], replicas: int, held: int
) -> None:
    holders, free = found[:held], found[held:]
    verdicts = explain_choice(free, replicas=replicas, beside=holders)
    assert sorted(v.node for v in verdicts) == sorted(c.node for c in free)
    assert all(verdict.reason for verdict in verdicts)
    chosen = [verdict.node for verdict in verdicts if verdict.is_chosen]
    assert len(chosen) == (replicas if len(free) >= replicas else 0)
    taken = {holder.site for holder in holders}
    if chosen and {candidate.site for candidate in free} - taken:
        first = next(c for c in free if c.node == chosen[0])
        assert first.site not in taken


def test_the_reasons() -> None:
    gib = 1 << 30
    found = [
        _candidate("n1", 9 * gib, site="north", rack="a"),
        _candidate("n2", 8 * gib, site="north", rack="a"),
        _candidate("n3", 1 * gib, site="south", rack="a"),
        _candidate("n4", 7 * gib, site="north", rack="b"),
    ]
    told = {str(v.node): v.reason for v in explain_choice(found, replicas=2)}
    assert told == {
        "n1": "most room, 9 GiB",
        "n3": "another site (south)",
        "n4": "site north has a replica already, on n1",
        "n2": "rack a has a replica already, on n1",
    }
    told = {str(v.node): v.reason for v in explain_choice(found, replicas=3)}
    assert told["n4"] == "another rack (b)"
    alike = [_candidate("n1", gib), _candidate("n2", gib), _candidate("n3", gib, 2)]
    told = {str(v.node): v.reason for v in explain_choice(alike, replicas=1)}
    assert told == {
        "n1": "as good as the others, first by name",
        "n2": "as good as n1, later by name",
        "n3": "serves more devices, 2; n1 0",
    }
    told = {str(v.node): v.reason for v in explain_choice(alike[1:], replicas=1)}
    assert told["n2"] == "serves the fewest devices, 0"
    pinned = (NodeName.parse("n3"),)
    told = {str(v.node): v.reason for v in explain_choice(alike, replicas=1, pinned=pinned)}
    assert told["n3"] == "asked for"
    assert explain_choice(alike[:1], replicas=1)[0].reason == "the only one left"
    assert explain_choice(alike[:1], replicas=2)[0].reason == "2 are needed, and 1 could"
    less = explain_choice([_candidate("n1", 2 * gib), _candidate("n2", gib)], replicas=1)
    assert less[1].reason == "less room, 1 GiB; n1 has 2 GiB"


@given(candidates.filter(lambda found: len(found) >= 2), st.data())
def test_a_pinned_node_is_chosen_and_serves(
    found: list[PlacementCandidate], data: st.DataObject
) -> None:
    pinned = data.draw(st.sampled_from([c.node for c in found]))
    assert place_device(found, replicas=2, pinned=(pinned,))[0] == pinned


@given(st.integers(1, 1 << 40))
def test_metadata_is_small_and_enough_for_four_bitmaps(size: int) -> None:
    bitmap = -(-size // (4096 * 8))
    assert 4 * (bitmap - 1) < metadata_bytes(size) <= size // 8192 + size // 256 + (5 << 20)
