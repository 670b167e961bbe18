from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.names import NodeName
from sanctl.plan.placement import Candidate, metadata_bytes, place


def _candidate(name: str, room: int, active: int) -> Candidate:
    return Candidate(node=NodeName.parse(name), room_bytes=room, active_devices=active)


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
def test_placement(found: list[Candidate], replicas: int, random: object) -> None:
    chosen = place(found, replicas=replicas)
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
    assert place(shuffled, replicas=replicas) == chosen


@given(candidates.filter(lambda found: len(found) >= 2), st.data())
def test_a_pinned_node_is_chosen_and_serves(found: list[Candidate], data: st.DataObject) -> None:
    pinned = data.draw(st.sampled_from([c.node for c in found]))
    assert place(found, replicas=2, pinned=(pinned,))[0] == pinned


@given(st.integers(1, 1 << 40))
def test_metadata_is_small_and_enough_for_four_bitmaps(size: int) -> None:
    bitmap = -(-size // (4096 * 8))
    assert 4 * (bitmap - 1) < metadata_bytes(size) <= size // 8192 + (5 << 20)
