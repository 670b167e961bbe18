# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster.toml that is too much, or names what no node may have, ends with a message."""

from __future__ import annotations

import contextlib
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanctl.config import parse
from sanctl.config.cluster import read
from sanctl.errors import ConfigError, ExitStatus
from tests.unit.config.test_cluster import GOOD, codes


@pytest.mark.parametrize(
    "wrong",
    [
        "x = " + "[" * 100_000,
        "x = " + "9" * 5000,
        ".".join(["schema"] * 5000) + " = 1",
        "[cluster." + ".".join("n" * 5000) + "]",
        "[nodes.n1]\nid = 0x" + "f" * 8000,
        "[nodes.n1]\nid = 18446744073709551616",
        "[nodes.n1]\nid = " + "[" * 100 + "]" * 100,
        "[nodes.n1]\nid = nan",
        "schema = inf",
        "schema = 0x" + "f" * 8000,
    ],
    ids=range(10),
)
def test_a_file_that_is_too_much_ends_with_a_message(wrong: str) -> None:
    """Not with an error in sanctl, and not with a message of megabytes."""
    with pytest.raises(ConfigError) as caught:
        parse(wrong)
    assert caught.value.exit_status is ExitStatus.CONFIG
    assert all(problem.code.startswith("SAN-CONF-") for problem in caught.value.problems)
    assert len(str(caught.value)) < 40_000


@given(st.text(max_size=200))
def test_whatever_the_text_is(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.builds(lambda: 1 << 20_000),
)
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)


@settings(max_examples=80)
@given(
    st.sampled_from(["schema", "cluster", "networks", "nodes", "pools", "qdevice"]),
    st.sampled_from(["", "n1", "main", "iscsi", "name"]),
    st.sampled_from(["", "id", "role", "iscsi", "path", "nodes", "cache", "cidr"]),
    _TREES,
)
def test_whatever_one_value_is(table: str, name: str, key: str, value: object) -> None:
    tree = tomllib.loads(GOOD)
    inner: dict[str, Any] = tree
    path = [part for part in (table, name, key) if part]
    for part in path[:-1]:
        if not isinstance(inner.get(part), dict):
            inner[part] = {}
        inner = inner[part]
    inner[path[-1]] = value
    with contextlib.suppress(ConfigError):
        read(tree)


@pytest.mark.parametrize(
    ("cidr", "portal"),
    [
        ("0.0.0.0/0", "0.0.0.0"),
        ("0.0.0.0/0", "255.255.255.255"),
        ("0.0.0.0/0", "224.0.0.1"),
        ("127.0.0.0/8", "127.0.0.1"),
        ("169.254.0.0/16", "169.254.1.1"),
        ("::/0", "::"),
        ("::/0", "::1"),
        ("::/0", "ff02::1"),
        ("fe80::/10", "fe80::1"),
        ("fe80::/10", "fe80::1%eth0"),
        ("::/0", "::ffff:10.77.1.1"),
        ("2001:db8::/32", "2001:db8::1%eth0"),
    ],
)
def test_portals_that_no_host_reaches(cidr: str, portal: str) -> None:
    text = GOOD.replace("10.77.1.0/24", cidr).replace('["10.77.1.2"]', f'["{portal}"]')
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert f"nodes.n2.example.iscsi: {portal} is " in str(caught.value)
    assert "SAN-CONF-010" in [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize(
    "path",
    [
        "/proc",
        "/proc/1/root",
        "/sys/fs",
        "/dev/shm/pool",
        "/run/pool",
        "/var/run/pool",
        "/srv/-pool",
        "/-rf/pool",
    ],
)
def test_pool_paths_that_are_no_place_for_data(path: str) -> None:
    assert codes(GOOD.replace("/srv/sanctl/main", path)) == ["SAN-CONF-016"]


@pytest.mark.parametrize("path", ["/srv/a-b", "/running", "/srv/dev", "/processed/x"])
def test_pool_paths_that_look_alike(path: str) -> None:
    assert str(parse(GOOD.replace("/srv/sanctl/main", path)).pools[0].path) == path
