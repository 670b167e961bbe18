# SPDX-License-Identifier: GPL-2.0-or-later
"""The request of a client: what is one, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.agents.service import request

GOOD = [b"1", b"0.1.0-abc", b"/tmp", b"18", b"2", b"/x/device", b"monitor", b"A=1", b"B=2=3"]


def body(fields: list[bytes]) -> bytes:
    return b"\0".join(fields) + b"\0"


def test_a_request_is_read() -> None:
    assert request.parse(body(GOOD)) == request.Request(
        release="0.1.0-abc",
        folder="/tmp",
        umask=18,
        argv=("/x/device", "monitor"),
        environment={b"A": b"1", b"B": b"2=3"},
    )


def test_empty_arguments_and_values_stay() -> None:
    fields = [*GOOD[:4], b"3", b"device", b"", b"x", b"EMPTY=", b"=strange"]
    found = request.parse(body(fields))
    assert (found.argv, found.environment) == (("device", "", "x"), {b"EMPTY": b""})


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\0",
        body([b"2", *GOOD[1:]]),
        body(GOOD)[:-1],
        body(GOOD[:4]),
        body([*GOOD[:3], b"-1", *GOOD[4:]]),
        body([*GOOD[:4], b"0", *GOOD[5:]]),
        body([*GOOD[:4], b"9", *GOOD[5:]]),
        body([*GOOD[:4], b"x", *GOOD[5:]]),
    ],
)
def test_what_is_no_request_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="request"):
        request.parse(wrong)


@given(st.binary(max_size=80))
def test_nonsense_is_refused_by_one_error_alone(nonsense: bytes) -> None:
    for read in (request.parse, request.parse_length):
        try:
            read(nonsense)
        except ValueError:
            continue


@pytest.mark.parametrize("header", [b"", b"12", b"00000x12", b"99999999", b"-0000012"])
def test_what_is_no_length_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="request"):
        request.parse_length(header)
