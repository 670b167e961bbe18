# SPDX-License-Identifier: GPL-2.0-or-later
"""Updates of the cluster's packages by night are a finding, as APT's files and dpkg's say."""

from __future__ import annotations

import pytest

from sanctl.plan.health.update_health import unattended_update_finding

ON = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
#: As Debian ships it, shortened.
SHIPPED = """
// Unattended-Upgrade::Origins-Pattern controls which packages are
Unattended-Upgrade::Origins-Pattern {
        "origin=Debian,codename=${distro_codename},label=Debian"; // see http://www.debian.org/
};
/* Python regular expressions, matching packages to exclude
   "pacemaker"; */
Unattended-Upgrade::Package-Blacklist {
    //  "linux-";
    # "corosync";
};
"""
EXCLUDES = """
Unattended-Upgrade::Package-Blacklist { "pacemaker"; "corosync"; "libqb"; "drbd"; "linux-"; };
"""


def status(*held: str) -> str:
    return "".join(
        f"Package: {name}\nStatus: {word} ok installed\nDescription: x\n Status: hold of text\n\n"
        for name, word in (("bash", "install"), *((each, "hold") for each in held))
    )


def told(parts: dict[str, str], main: str = "", dpkg: str = "") -> str:
    found = unattended_update_finding(parts, main, dpkg)
    assert found is None or found.code == "SAN-DOC-007"
    return "" if found is None else found.what.partition("may update ")[2].partition(" on ")[0]


ALL = "pacemaker, corosync, libqb, drbd, linux-image"


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ({}, ""),
        ({"50unattended-upgrades": SHIPPED}, ""),
        ({"20auto-upgrades": ON.replace('Upgrade "1"', 'Upgrade "0"')}, ""),
        ({"20auto-upgrades": ON, "50unattended-upgrades": SHIPPED}, ALL),
        ({"20auto-upgrades": ON, "52sanctl": EXCLUDES}, ""),
        # The later file says; and what APT does not read says nothing.
        (
            {"10periodic": ON, "20x": 'apt { periodic { unattended-upgrade "0"; }; };'},
            "",
        ),
        ({"20auto-upgrades": ON, "52sanctl.dpkg-old": EXCLUDES}, ALL),
        ({"20auto-upgrades": ON, "52sanctl.conf": EXCLUDES}, ""),
        ({"20auto-upgrades": ON, "52sanctl": EXCLUDES, "99x": "#clear Unattended-Upgrade;"}, ALL),
        # Expressions match from the begin, and one that cannot be read matches nothing.
        (
            {"1": ON, "2": 'Unattended-Upgrade::Package-Blacklist:: "(pace|corosync$)";'},
            "libqb, drbd, linux-image",
        ),
        ({"1": ON, "2": 'Unattended-Upgrade::Package-Blacklist { "maker"; "("; "*"; };'}, ALL),
        ({"1": ON, "2": "} ; { nonsense"}, ALL),
    ],
)
def test_what_may_be_updated(parts: dict[str, str], wanted: str) -> None:
    assert told(parts) == wanted


def test_in_the_main_file() -> None:
    assert told({"52sanctl": EXCLUDES}, ON) == ""
    assert told({}, ON) == ALL


def test_packages_on_hold_are_not_updated() -> None:
    held = status("pacemaker", "corosync", "libqb100", "drbd-utils")
    assert told({"1": ON}, dpkg=held) == "linux-image"
    assert told({"1": ON}, dpkg=status()) == ALL
