# SPDX-License-Identifier: GPL-2.0-or-later
"""The states of a node's replicas as one value: what cannot be read says nothing."""

from __future__ import annotations

import hashlib

import pytest

from sanctl.model.packed_states import pack, unpack

STATE = (
    "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate "
    "out-of-sync=0 role=Secondary size=10737418240 suspended=no acl={} policy=default "
    "resync=fast,as+little+differs,done,1795600000,1795600009,{},4096 cache=write-through"
)


def states(count: int) -> dict[str, str]:
    words = [hashlib.sha256(str(number).encode()).hexdigest()[:8] for number in range(count)]
    return {
        f"vol{number}": STATE.format(word, int(word, 16) % 999983)
        for number, word in enumerate(words)
    }


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_all_come_back(count: int) -> None:
    assert unpack(pack(states(count))) == states(count)


def test_few_can_be_read_by_an_operator_and_500_are_small() -> None:
    assert pack({"b": "disk=UpToDate x=1", "a": "disk=Down"}) == "a disk=Down;b disk=UpToDate x=1"
    assert "vol9 disk=UpToDate" in pack(states(10))
    assert len(pack(states(500))) < 32 << 10


@pytest.mark.parametrize("unfit", ["disk=;", 'disk="', "disk=<", "disk=\n", "disk=&"])
def test_a_state_that_does_not_fit_is_not_known(unfit: str) -> None:
    assert unpack(pack({"vol1": unfit, "vol2": "disk=UpToDate"})) == {"vol2": "disk=UpToDate"}


def test_too_many_are_not_known() -> None:
    many = {f"v{n}": hashlib.sha256(str(n).encode()).hexdigest() for n in range(4000)}
    assert pack(many) == "?"


@pytest.mark.parametrize("text", ["", "?", "-", "vol1", "z:", "z:???", "z:AAAA", ";;"])
def test_what_cannot_be_read_says_nothing(text: str) -> None:
    assert unpack(text) == {}


def test_a_value_that_was_cut_off_says_nothing() -> None:
    whole = pack(states(500))
    assert unpack(whole[: len(whole) // 8 * 4]) == {}
