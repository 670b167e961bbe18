# SPDX-License-Identifier: GPL-2.0-or-later
"""Which addresses a node reaches, and when that is not known."""

from __future__ import annotations

import errno
from ipaddress import ip_address

import pytest

from sanctl.errors import ConfigError
from sanctl.plan.failover.reach import Look, Watch, count, hindrances, parse_watch, silent

FIRST, SECOND = ip_address("192.0.2.1"), ip_address("2001:db8::1")
WATCH = Watch((FIRST, SECOND), 2, 1.0, "8s")
NOTHING = Look(frozenset(), ())


def test_the_parameters_of_the_playbook_are_read() -> None:
    watch = parse_watch(
        host_list=" 192.0.2.1  2001:db8::1 192.0.2.1 ", attempts="2", timeout="1", dampen="8s"
    )
    assert watch == WATCH, "an address that is named twice counts once"
    assert parse_watch(host_list="fe80::1%eth1", attempts="1", timeout="0.5", dampen="0") == Watch(
        (ip_address("fe80::1%eth1"),), 1, 0.5, "0"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host_list", ""),
        ("host_list", " "),
        ("host_list", "192.0.2.1 switch"),
        ("host_list", "192.0.2.1,192.0.2.2"),
        ("host_list", "192.0.2.0/24"),
        ("attempts", ""),
        ("attempts", "0"),
        ("attempts", "6"),
        ("attempts", "1.5"),
        ("attempts", "two"),
        ("timeout", "0"),
        ("timeout", "0.0"),
        ("timeout", "-1"),
        ("timeout", "5.1"),
        ("timeout", "nan"),
        ("timeout", "1s"),
        ("dampen", ""),
        ("dampen", "-1s"),
        ("dampen", "8 parsecs"),
        ("dampen", "8s --private"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, value: str) -> None:
    given = {"host_list": "192.0.2.1", "attempts": "2", "timeout": "1", "dampen": "8s"}
    with pytest.raises(ConfigError, match=f"SAN-AGENT-018.*parameter {name} ") as refused:
        parse_watch(**(given | {name: value}))
    assert "sanctl_pacemaker_reach_targets" in refused.value.problems[0].hint


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (Look(frozenset({FIRST, SECOND}), ()), 2),
        (Look(frozenset({SECOND}), ()), 1),
        # Nobody answers: that is what the rule is for.
        (NOTHING, 0),
        # What is not watched does not count.
        (Look(frozenset({ip_address("192.0.2.9")}), ()), 0),
    ],
)
def test_those_that_answer_are_counted(look: Look, expected: int) -> None:
    assert count(WATCH, look) == expected


@pytest.mark.parametrize(
    "number",
    [
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
        errno.ENODEV,
        errno.ENXIO,
    ],
)
def test_a_node_without_a_way_reaches_nothing(number: int) -> None:
    """An interface that is down has no route: that is what devices are to leave a node for."""
    look = Look(frozenset(), ((FIRST, number), (SECOND, number)))
    assert count(WATCH, look) == 0
    assert hindrances(look) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOBUFS, errno.ENOMEM, errno.EINTR, 0])
def test_what_the_node_itself_could_not_do_is_no_silence(number: int) -> None:
    """0 would move the devices of each node that is short of memory."""
    one = Look(frozenset(), ((FIRST, errno.ENETUNREACH), (SECOND, number), (SECOND, number)))
    assert count(WATCH, one) is None
    assert hindrances(one) == [f"2001:db8::1: {errno.errorcode.get(number, number)}"]


def test_one_that_answers_is_enough_whatever_happened_to_the_others() -> None:
    look = Look(frozenset({FIRST}), ((SECOND, errno.ENOBUFS), (FIRST, errno.ENOBUFS)))
    assert count(WATCH, look) == 1
    assert silent(WATCH, look) == ["2001:db8::1"]
    assert silent(WATCH, NOTHING) == ["192.0.2.1", "2001:db8::1"]
