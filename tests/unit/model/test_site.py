# SPDX-License-Identifier: GPL-2.0-or-later
"""Sites and records of copies: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest

from sanctl.errors import UsageError
from sanctl.model.site import (
    COPY_PREFIX,
    SITE_PREFIX,
    CopyRecord,
    ProvenCopy,
    Site,
    is_host_key,
    parse_address,
    parse_limit,
    parse_path,
    parse_site_name,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
SITE = Site("far", "copies", "site.example", 2222, "/srv/c", "/etc/sanctl/site_key", "a" * 32, KEY)
COPY = ProvenCopy("to-far-1", "b" * 16, 1, 2, 3, 4, 5, "c" * 64)


def test_a_site_is_read_as_it_was_written() -> None:
    assert Site.parse(SITE.id, SITE.value) == SITE
    limited = SITE._replace(limit_bytes_s=10 << 20)
    assert Site.parse(limited.id, limited.value) == limited != SITE
    # As ssh-keygen -l shows GitHub's key.
    assert SITE.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        (f"{SITE_PREFIX}far", SITE.value + " more"),
        (f"{SITE_PREFIX}far", SITE.value + " -1"),
        (f"{SITE_PREFIX}far", SITE.value + " 65536 more"),
        (f"{SITE_PREFIX}Far", SITE.value),
        ("sanctl-host.far", SITE.value),
        (SITE.id, SITE.value.replace("a" * 32, "a" * 31)),
        (SITE.id, SITE.value.replace("copies@", "-oProxyCommand=x@")),
        (SITE.id, SITE.value.replace("/srv/c", "srv/c")),
        (SITE.id, SITE.value.replace("AAAAC3", "AAA=C3")),
        (SITE.id, SITE.value.replace("AAAAC3", "AAA\x00C3")),
    ],
)
def test_what_is_no_site(identifier: str, value: str) -> None:
    assert Site.parse(identifier, value) is None


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (
        CopyRecord("web", "far", "d" * 32, "", None),
        CopyRecord("web", "far", "d" * 32, "e" * 16, None),
        CopyRecord("web", "far", "d" * 32, "", COPY),
        CopyRecord("web", "far", "d" * 32, "e" * 16, COPY),
    ):
        assert CopyRecord.parse(record.id, record.value) == record


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-point.web.far", f"{'d' * 32} -"),
        (f"{COPY_PREFIX}web", f"{'d' * 32} -"),
        (f"{COPY_PREFIX}.far", f"{'d' * 32} -"),
        (f"{COPY_PREFIX}web.far", "d" * 32),
        (f"{COPY_PREFIX}web.far", f"{'d' * 31} -"),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} x"),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} - to-far-1"),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} - " + " ".join(COPY._replace(token="x").words)),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} - " + " ".join(COPY._replace(name="X").words)),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} - " + " ".join(COPY._replace(made_s=-1).words)),
        (f"{COPY_PREFIX}web.far", f"{'d' * 32} - " + " ".join(COPY._replace(digest="c").words)),
    ],
)
def test_what_is_no_record(identifier: str, value: str) -> None:
    assert CopyRecord.parse(identifier, value) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("root@far", ("root", "far", 22)),
        ("b_1@10.0.0.1:2222", ("b_1", "10.0.0.1", 2222)),
        ("root@[fe80::1]:22", ("root", "[fe80::1]", 22)),
        ("root@[::1]", ("root", "[::1]", 22)),
    ],
)
def test_addresses(text: str, wanted: tuple[str, str, int]) -> None:
    assert parse_address(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["far", "@far", "root@", "root@-far", "root@far:", "root@far:0", "root@far:65536", "Root@far",
     "root@far:22:22", "root@a b", "-root@far", "root@::1", "root@[x]", "root@far;reboot"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="SAN-SITE-001"):
        parse_address(text)


def test_names_paths_and_keys() -> None:
    assert parse_site_name("far-1") == "far-1"
    assert parse_path("/srv/a.b/c_d+e=f@g") == "/srv/a.b/c_d+e=f@g"
    for name in ("", "Far", "-far", "far-", "a" * 17, "a.b"):
        with pytest.raises(UsageError, match="SAN-SITE-001"):
            parse_site_name(name)
    for path in (
        "",
        "/",
        "srv",
        "/srv/",
        "/srv//x",
        "/srv/../etc",
        "/a b",
        "/a'b",
        "/" + "a" * 200,
    ):
        with pytest.raises(UsageError, match="SAN-SITE-001"):
            parse_path(path)
    assert is_host_key(KEY) and not is_host_key("ssh-ed25519") and not is_host_key("|1|x y")


@pytest.mark.parametrize(
    ("text", "wanted"), [("10M", 10 << 20), ("1.5MiB", 3 << 19), ("16k", 16384), ("none", 0)]
)
def test_limits_of_a_rate(text: str, wanted: int) -> None:
    assert parse_limit(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["0", "0M", "-1M", "nan", "inf", "", "M", "1e9", "15K", "4097M", "9" * 5000 + "M", "10M/s"],
)
def test_what_is_no_limit_of_a_rate(text: str) -> None:
    with pytest.raises(UsageError, match=r"SAN-SITE-001.*16K to 4G"):
        parse_limit(text)
