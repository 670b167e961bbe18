# SPDX-License-Identifier: GPL-2.0-or-later
"""Cuts between nodes, and the BPF filters that drop the packets."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import UsageError
from sanctl.lab.machines.network_cuts import Cut, bytecode, filter_commands, parse_sides, partition
from sanctl.lab.machines.spec import LabSpec, Network, NodeSpec

SPEC = LabSpec(nodes=3, initiators=1)
N1, N2 = SPEC.node("n1"), SPEC.node("n2")


def passes(program: str, frame: bytes, dice: int) -> bool:
    """Run a program as the kernel would (linux/filter.h, the instructions used here)."""
    count, *steps = program.split(",")
    code = [tuple(int(word) for word in step.split()) for step in steps]
    assert len(code) == int(count)
    accumulator, at = 0, 0
    while True:
        op, if_true, if_false, k = code[at]
        at += 1
        match op:
            case 0x20 if k == 0xFFFFF038:
                accumulator = dice
            case 0x20:
                (accumulator,) = struct.unpack_from(">I", frame, k)
            case 0x28:
                (accumulator,) = struct.unpack_from(">H", frame, k)
            case 0x30:
                accumulator = frame[k]
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x06:
                return k == 0xFFFFFFFF
            case _:
                raise AssertionError(op)


def frame_from(node: NodeSpec, network: Network) -> bytes:
    return bytes(6) + bytes.fromhex(node.mac(network).replace(":", "")) + bytes(50)


def test_a_total_cut_drops_its_sender_and_no_other() -> None:
    program = bytecode(N1, Network.SYNC, 100)
    assert not passes(program, frame_from(N1, Network.SYNC), 2**32 - 1)
    assert passes(program, frame_from(N2, Network.SYNC), 0)
    assert passes(program, frame_from(N1, Network.ISCSI), 0)
    assert passes(program, bytes(64), 0)


def test_a_cut_of_udp_leaves_other_packets_alone() -> None:
    program = bytecode(N1, Network.SYNC, 100, is_udp_only=True)
    ipv4 = frame_from(N1, Network.SYNC)[:12] + b"\x08\x00" + bytes(9)
    assert not passes(program, ipv4 + b"\x11" + bytes(40), 0)
    assert passes(program, ipv4 + b"\x06" + bytes(40), 0)
    arp = frame_from(N1, Network.SYNC)[:12] + b"\x08\x06" + bytes(9)
    assert passes(program, arp + b"\x11" + bytes(40), 0)
    assert passes(program, frame_from(N2, Network.SYNC)[:12] + ipv4[12:] + b"\x11", 0)


@given(loss=st.floats(0.1, 99.9), dice=st.integers(0, 2**32 - 1))
def test_a_lossy_link_loses_that_part(loss: float, dice: int) -> None:
    program = bytecode(N1, Network.SYNC, loss)
    is_lost = dice < round(loss / 100 * 2**32)
    assert passes(program, frame_from(N1, Network.SYNC), dice) is not is_lost
    assert passes(program, frame_from(N2, Network.SYNC), dice)


def test_a_partition_cuts_both_ways_between_all_sides() -> None:
    cuts = partition(Network.HEARTBEAT, [["n1"], ["n2", "n3"]])
    assert {(cut.source, cut.target) for cut in cuts} == {
        ("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"),
    }  # fmt: skip
    assert len(partition(Network.SYNC, [["n1"], ["n2"], ["n3"]])) == 6


def test_filters_are_where_the_receiver_is() -> None:
    cuts = [Cut(network=Network.SYNC, source="n1", target="n2")]
    lines = filter_commands(SPEC, cuts, ["n2-sync", "n1-sync"]).splitlines()
    assert [line.split()[4] for line in lines if line.startswith("filter add")] == ["egress"]
    assert [line.split()[3] for line in lines if line.startswith("filter add")] == ["n2-sync"]
    assert "filter del dev n1-sync egress" in lines


@pytest.mark.parametrize(
    "sides",
    [("n1",), ("n1", "n1,n2"), ("n1", ""), ("n1", "n9"), ("i1", "n1")],
    ids=["one", "twice", "empty", "unknown", "not on it"],
)
def test_sides_that_make_no_sense(sides: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        parse_sides(sides, SPEC, Network.SYNC)


def test_sides_as_they_are_typed() -> None:
    assert parse_sides(("n1", "n2,n3"), SPEC, Network.SYNC) == [["n1"], ["n2", "n3"]]
    assert len(parse_sides(("n1", "--", "n2", "--", "n3"), SPEC, Network.SYNC)) == 3
