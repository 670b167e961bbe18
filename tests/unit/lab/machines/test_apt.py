# SPDX-License-Identifier: GPL-2.0-or-later
"""The choice of a Debian mirror from apt's own configuration."""

from __future__ import annotations

import pytest

from sanctl.lab.machines import apt

# From apt 2.6 on Debian 12, shortened.
TARGETS = """\
MetaKey: main/binary-amd64/Packages
ShortDesc: Packages
Origin: Debian
Component: main
Release: bookworm-updates
Repo-URI: http://mirror.example/debian/
Sourcesentry: /etc/apt/sources.list.d/debian.sources:1

MetaKey: main/binary-amd64/Packages
Origin: Another Vendor
Component: main
Release: bookworm
Repo-URI: https://vendor.example/apt/
Sourcesentry: /etc/apt/sources.list.d/vendor.list:1

MetaKey: contrib/binary-amd64/Packages
Origin: Debian
Component: contrib
Release: bookworm
Repo-URI: http://mirror.example/debian/
Sourcesentry: /etc/apt/sources.list.d/debian.sources:1

MetaKey: main/binary-amd64/Packages
Origin: Debian
Component: main
Release: bookworm
Repo-URI: http://mirror.example/debian/
Sourcesentry: /etc/apt/sources.list.d/debian.sources:1
"""

SETTINGS = """\
Acquire "";
Acquire::Check-Valid-Until "false";
Acquire::Languages "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::https::Proxy "";
APT::Architecture "amd64";
"""


def test_the_release_itself_is_chosen_and_no_other_vendor() -> None:
    assert apt.choose_mirror(TARGETS, "bookworm") == (
        "http://mirror.example/debian",
        "/etc/apt/sources.list.d/debian.sources",
    )


def test_a_host_without_that_release_has_no_mirror() -> None:
    assert apt.choose_mirror(TARGETS, "trixie") is None
    assert apt.choose_mirror("", "trixie") is None


def test_what_apt_needs_to_reach_its_mirror_is_handed_on() -> None:
    assert apt.inherited_options(SETTINGS) == (
        'Acquire::Check-Valid-Until "false";',
        'Acquire::http::Proxy "http://proxy.example:3128";',
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "Types: deb\nSuites: bookworm bookworm-updates\nSigned-By: /k/debian.gpg\n",
            "/k/debian.gpg",
        ),
        ("deb [arch=amd64 signed-by=/k/a.gpg] http://mirror.example bookworm main\n", "/k/a.gpg"),
        ("deb [signed-by=/k/a.gpg,/k/b.gpg] http://mirror.example bookworm main\n", "/k/a.gpg"),
        ("deb http://mirror.example bookworm main\n", ""),
        ("Suites: bookworm\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n", ""),
        (
            "Suites: trixie\nSigned-By: /k/t.gpg\n\nSuites: bookworm\nSigned-By: /k/b.gpg\n",
            "/k/b.gpg",
        ),
        ("", ""),
    ],
)
def test_the_key_is_the_one_the_host_trusts(text: str, key: str) -> None:
    assert apt.signed_by(text, "bookworm") == key


def test_mmdebstrap_command() -> None:
    source = apt.AptSource("http://mirror.example/debian", "/k/d.gpg", ('A "b";',))
    argv = apt.mmdebstrap_argv(
        source, suite="trixie", target="/t", variant="minbase", include=("x", "y")
    )
    assert argv[-3:] == ("trixie", "/t", "http://mirror.example/debian")
    assert "--include=x,y" in argv
    assert "--keyring=/k/d.gpg" in argv
    assert '--aptopt=A "b";' in argv
