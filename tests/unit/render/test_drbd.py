# SPDX-License-Identifier: GPL-2.0-or-later
"""The DRBD resource file for both generations."""

from __future__ import annotations

import pytest

from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.render.drbd import (
    BackingDevices,
    ReplicaAddress,
    activity_log_extents,
    device_secret,
    port_of,
    render_resource,
    resync_controller,
)


def _render(
    generation: int,
    replicas: int = 2,
    *,
    address: str = "10.0.0.",
    sync: SyncPolicy = DEFAULT_SYNC_POLICY,
    link_bytes_s: int | None = None,
    al_extents: int | None = None,
    connection: tuple[str, ...] = (),
) -> str:
    return render_resource(
        name="vol1",
        minor=3,
        size_bytes=1 << 30,
        secret="5" * 32,
        replicas=tuple(
            ReplicaAddress(f"n{number}", number, f"{address}{number}")
            for number in range(replicas, 0, -1)
        ),
        backing=BackingDevices("/dev/loop4", "/dev/loop5"),
        handlers="/usr/lib/sanctl",
        generation=generation,
        sync=sync,
        link_bytes_s=link_bytes_s,
        al_extents=al_extents,
        connection=connection,
    )


def _section(text: str, name: str) -> str:
    return text.split(f"  {name} {{\n", 1)[1].split("  }\n", 1)[0]


@pytest.mark.parametrize("generation", [8, 9])
def test_safety_options_are_in_the_section_the_generation_wants(generation: int) -> None:
    text = _render(generation)
    fencing = "fencing resource-and-stonith;"
    assert (fencing in _section(text, "disk")) == (generation == 8)
    assert (fencing in _section(text, "net")) == (generation == 9)
    assert "allow-two-primaries" not in text
    for policy in ("after-sb-0pri", "after-sb-1pri", "after-sb-2pri", "rr-conflict"):
        assert f"{policy} disconnect;" in _section(text, "net")
    assert "on-no-data-accessible suspend-io;" in _section(text, "options")
    assert "protocol C;" in text
    assert "cram-hmac-alg sha256;" in text


@pytest.mark.parametrize("generation", [8, 9])
def test_replicas_are_in_the_order_of_their_ids(generation: int) -> None:
    text = _render(generation)
    assert text.index("on n1 {") < text.index("on n2 {")
    assert "address ipv4 10.0.0.2:7803;" in text


def test_9_numbers_nodes_from_zero_and_meshes_them() -> None:
    text = _render(9, replicas=3)
    assert "node-id 0;" in text
    assert "node-id 2;" in text
    assert "hosts n1 n2 n3;" in text
    assert "node-id" not in _render(8)


@pytest.mark.parametrize(
    ("replicas", "fencing", "quorum"),
    [
        (1, "dont-care", "off"),
        (2, "resource-and-stonith", "off"),
        (3, "resource-only", "majority"),
        (4, "resource-only", "majority"),
    ],
)
def test_9_uses_quorum_from_three_replicas_on(replicas: int, fencing: str, quorum: str) -> None:
    text = _render(9, replicas)
    assert f"fencing {fencing};" in _section(text, "net")
    options = _section(text, "options")
    assert f"quorum {quorum};" in options
    assert "on-no-quorum suspend-io;" in options
    assert "auto-promote no;" in options, "a probe must not promote a standby"
    assert text.count("  on n") == replicas


def test_8_4_gets_no_option_of_9() -> None:
    for word in ("quorum", "auto-promote", "node-id", "connection-mesh"):
        assert word not in _render(8)


def test_ipv6_is_bracketed() -> None:
    assert "address ipv6 [fd00::1]:7803;" in _render(8, address="fd00::")


def test_secrets_differ_by_device_and_cluster() -> None:
    secrets = {device_secret(c, d) for c in ("one", "two") for d in ("a" * 32, "b" * 32)}
    assert len(secrets) == 4
    assert all(len(secret) == 32 for secret in secrets)


def test_braces_balance() -> None:
    for generation in (8, 9):
        text = _render(generation)
        assert text.count("{") == text.count("}")


@pytest.mark.parametrize(("gib", "extents"), [(1, 257), (512, 257), (513, 1237)])
def test_the_activity_log_fits_the_device(gib: int, extents: int) -> None:
    assert activity_log_extents(gib << 30) == extents
    assert f"al-extents {extents};" in _render(8) or gib > 512


def test_no_single_transaction_can_exchange_what_was_just_written() -> None:
    """Of 67 extents 64 could leave at once, with blocks that no flush had made stable."""
    exchanged_at_once = 64  # AL_UPDATES_PER_TRANSACTION
    for size in (1 << 20, 1 << 30, 32 << 30, 1 << 40, 16 << 40):
        assert activity_log_extents(size) > 4 * exchanged_at_once


def test_port() -> None:
    assert port_of(1) == 7801


def test_checksums_are_an_option_that_may_differ_and_never_an_algorithm_that_must_not() -> None:
    texts = [_render(8, sync=DEFAULT_SYNC_POLICY._replace(csums=csums)) for csums in (False, True)]
    assert all("csums-alg sha256;" in _section(text, "net") for text in texts)
    assert "csums-after-crash-only yes;" in _section(texts[0], "net")
    assert "csums-after-crash-only no;" in _section(texts[1], "net")


@pytest.mark.parametrize(
    ("policy", "link", "fill", "ceiling"),
    [
        (DEFAULT_SYNC_POLICY, None, "2048s", "716800k"),
        (DEFAULT_SYNC_POLICY, 125_000_000, "1220s", "109863k"),
        (DEFAULT_SYNC_POLICY, 1_250_000_000, "12207s", "1098632k"),
        (DEFAULT_SYNC_POLICY, 12_500_000_000, "16384s", "4194304k"),
        (DEFAULT_SYNC_POLICY, 12_500_000, "1024s", "32768k"),
        (DEFAULT_SYNC_POLICY._replace(rate_max_kib_s=40_000), 1_250_000_000, "12207s", "40000k"),
        (DEFAULT_SYNC_POLICY._replace(rate_min_kib_s=500), 12_500_000, "1024s", "10986k"),
    ],
)
def test_the_controller_suits_the_network(
    policy: SyncPolicy, link: int | None, fill: str, ceiling: str
) -> None:
    options = dict(resync_controller(policy, link))
    assert (options["c-fill-target"], options["c-max-rate"]) == (fill, ceiling)
    assert options["c-min-rate"] == f"{policy.rate_min_kib_s}k"
    text = _section(_render(8, sync=policy, link_bytes_s=link), "disk")
    assert all(f"{key} {value};" in text for key, value in options.items())


def test_a_running_replica_keeps_its_activity_log() -> None:
    assert "al-extents 257;" in _render(8)
    assert "al-extents 67;" in _render(8, al_extents=67)
    assert "al-extents 1237;" in _render(8, al_extents=1237)


def test_a_replica_limited_to_one_peer_has_one_connection() -> None:
    text = _render(9, 4, connection=("n3", "n1"))
    assert "  connection-mesh {\n    hosts n3 n1;\n  }\n" in text
    assert text.count("  on n") == 4 and "quorum majority;" in text
    assert "hosts n1 n2 n3 n4;" in _render(9, 4)
