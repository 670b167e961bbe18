# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import UsageError
from sanctl.model.names import (
    ByteSize,
    DeviceName,
    Iqn,
    NodeName,
    PoolName,
    format_bytes,
)


@pytest.mark.parametrize("text", ["a", "vm1", "db-01", "x" * 31, "metadata", "moved"])
def test_good_device_names(text: str) -> None:
    assert str(DeviceName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1a",
        "A",
        "a_b",
        "a b",
        "a.b",
        "a/b",
        "../a",
        "x" * 32,
        "ä",
        "a\n",
        "-a",
        "a-",
        "\u0661a",
    ],
)
def test_bad_device_names(text: str) -> None:
    with pytest.raises(UsageError):
        DeviceName.parse(text)


@pytest.mark.parametrize(
    "text",
    ["all", "pool", "pools", "sanctl", "sanctl-x", "pool-a", "minor-3", "delete-a", "outdated-a"]
    + [f"a-{end}" for end in ("meta", "params", "replicas", "outdated", "prefer", "move")],
)
def test_reserved_device_names(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        DeviceName.parse(text)
    assert caught.value.problems[0].code == "SAN-NAME-002"


@pytest.mark.parametrize("text", ["n1", "node-1.example.net", "1", "a" * 63])
def test_good_node_names(text: str) -> None:
    assert NodeName.parse(text).value == text


@pytest.mark.parametrize("text", ["", "N1", "-a", "a-", "a..b b", "a" * 64, "n1 n2", "n_1"])
def test_bad_node_names(text: str) -> None:
    with pytest.raises(UsageError):
        NodeName.parse(text)


def test_pool_names() -> None:
    assert PoolName.parse("main").value == "main"
    with pytest.raises(UsageError):
        PoolName.parse("Main/")


@pytest.mark.parametrize(
    "text",
    [
        "iqn.1993-08.org.debian:01:abcdef",
        "iqn.1991-05.com.microsoft:host.example.com",
        "iqn.2026-11.net.example",
        "iqn.2026-11.net.ex--ample:a",
        "eui.0123456789abcdef",
        "iqn.2026-12.net.example:" + "x" * 199,
    ],
)
def test_good_iqns(text: str) -> None:
    assert Iqn.parse(text).value == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "iqn",
        "iqn.2026-13.net.example:x",
        "iqn.2026-00.net.example:x",
        "iqn.26-01.net.example:x",
        "iqn.2026-01:x",
        "iqn.2026-01.net.example:",
        "iqn.2026-01.net.example:a b",
        "iqn.2026-01.net.example:a_b",
        "iqn.2026-01.net.example:a/b",
        "iqn.2026-01.net.example:ä",
        "iqn.2026-01.net..example:a",
        "iqn.2026-12.net.example:" + "x" * 200,
        "eui.123",
        "naa.5000",
        "iqn.2026-01.net.example:a\n",
    ],
)
def test_bad_iqns(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Iqn.parse(text)
    assert caught.value.problems[0].code == "SAN-NAME-005"


def test_iqns_are_lower_case() -> None:
    assert Iqn.parse("IQN.1991-05.com.Microsoft:HOST").value == "iqn.1991-05.com.microsoft:host"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10G", 10 << 30),
        ("10GiB", 10 << 30),
        ("10gb", 10 << 30),
        ("512MiB", 512 << 20),
        ("1T", 1 << 40),
        ("1.5T", 3 << 39),
        ("0.5k", None),
        ("4096", 4096),
        ("4 K", 4096),
        (" 8k ", 8192),
        ("4097", None),
        ("0", None),
        ("-1G", None),
        ("1e3", None),
        ("G", None),
        ("", None),
        ("10X", None),
        ("1,5G", None),
        ("0.1G", None),
        ("9P", None),
        ("9" * 40, None),
        ("\u0661G", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    if size is not None:
        assert ByteSize.parse(text).bytes == size
        return
    with pytest.raises(UsageError) as caught:
        ByteSize.parse(text)
    assert caught.value.problems[0].code == "SAN-NAME-006"


@given(st.text())
def test_no_text_makes_a_parser_fall_over(text: str) -> None:
    for parse in (
        DeviceName.parse,
        NodeName.parse,
        PoolName.parse,
        Iqn.parse,
        ByteSize.parse,
    ):
        try:
            parse(text)
        except UsageError as error:
            assert "\n" not in str(error)


@given(st.integers(1, 1 << 41).map(lambda blocks: blocks * 4096))
def test_bytes_read_back(size: int) -> None:
    assert ByteSize.parse(str(size)).bytes == size


@given(st.integers(0, 1 << 60))
def test_shown_sizes_never_promise_more(count: int) -> None:
    number, unit = format_bytes(count).split()
    shift = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50}[unit]
    tenths = int(number.replace(".", "") if "." in number else f"{number}0")
    assert tenths << shift <= count * 10 < (tenths + 1) << shift
