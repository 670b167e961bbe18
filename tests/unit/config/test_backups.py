# SPDX-License-Identifier: GPL-2.0-or-later
"""backup.toml: repositories for backups, and what is none."""

from __future__ import annotations

import pytest

from sanctl.config.backups import parse
from sanctl.errors import ConfigError
from sanctl.model.backup import Repository


def _parse(location: str, name: str = "nas") -> tuple[Repository, ...]:
    return parse(f'schema = 1\n[repositories.{name}]\nlocation = "{location}"\n')


@pytest.mark.parametrize(
    ("location", "is_remote"),
    [
        ("/mnt/backup/sanctl", False),
        ("/b", False),
        ("ssh://backup@nas.example.net/./sanctl", True),
        ("ssh://nas/srv/backups", True),
        ("ssh://root@10.0.0.1:2222/srv/backups", True),
        ("ssh://b@[fd00::1]:22/srv", True),
    ],
)
def test_a_repository(location: str, is_remote: bool) -> None:
    assert _parse(location) == (Repository(name="nas", location=location),)
    assert _parse(location)[0].is_remote is is_remote


@pytest.mark.parametrize(
    "location",
    [
        "relative/path", "/", "/mnt//x", "/mnt/../etc", "/mnt/./x", "/mnt/x/", "nas:/srv",
        "ssh://-oProxyCommand=x/srv", "ssh://nas", "ssh://u@-x/srv", "https://nas/srv",
        "ssh://nas/a b", "/mnt/a b", "/mnt/x::y", "file:///srv", "ssh://nas/$(x)",
    ],
)  # fmt: skip
def test_what_is_no_place(location: str) -> None:
    with pytest.raises(ConfigError, match="SAN-CONF-049"):
        _parse(location)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("schema = ", "SAN-CONF-001"),
        ("schema = 2", "SAN-CONF-002"),
        ("schema = 1", "SAN-CONF-003"),
        ("schema = 1\nother = 1\n[repositories]", "SAN-CONF-004"),
        ("schema = 1\n[repositories.Nas]\nlocation = '/b'", "SAN-CONF-006"),
        ("schema = 1\n[repositories.nas]", "SAN-CONF-003"),
        ("schema = 1\n[repositories.nas]\nlocation = 1", "SAN-CONF-005"),
        ("schema = 1\n[repositories.nas]\nlocation = '/b'\npassphrase = 'x'", "SAN-CONF-004"),
    ],
)
def test_what_is_wrong_is_named(text: str, code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        parse(text)


def test_they_are_sorted() -> None:
    text = "schema = 1\n[repositories.b]\nlocation = '/b'\n[repositories.a]\nlocation = '/a'"
    assert [each.name for each in parse(text)] == ["a", "b"]
    assert parse("schema = 1\n[repositories]") == ()
