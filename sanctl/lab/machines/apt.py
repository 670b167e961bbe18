# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian mirror that this machine's apt uses, and the mmdebstrap command for it."""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.errors import ConfigError, Problem
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 60.0
# Settings of the host's apt that decide whether its mirror works at all: a proxy, or a frozen
# mirror whose signatures are past their date.
_HANDED_ON = (
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::http::",
    "Acquire::https::",
)


# A path; a key given in place is left to mmdebstrap, which knows Debian's own keyring.
_SIGNED_BY = re.compile(r"signed-by\s*[:=]\s*(/[^\s\],]+)", re.IGNORECASE)


class AptSource(NamedTuple):
    """A mirror with Debian's releases, the key it is signed with, and apt's own settings."""

    uri: str
    keyring: str
    options: tuple[str, ...]


def host_source(codename: str, runner: Runner) -> AptSource:
    """Find the mirror this host takes Debian itself from.

    Raises:
        ConfigError: apt has no Debian mirror configured.
    """
    targets = runner.run(
        ["apt-get", "indextargets", "Created-By: Packages"], timeout_s=_TIMEOUT_S
    ).stdout
    settings = runner.run(["apt-config", "dump"], timeout_s=_TIMEOUT_S).stdout
    chosen = choose_mirror(targets, codename)
    if chosen is None:
        raise ConfigError(
            Problem(
                "SAN-LAB-020",
                f"apt on this host has no Debian mirror for {codename}",
                "add one to /etc/apt/sources.list.d and run apt-get update",
            )
        )
    uri, entry = chosen
    return AptSource(uri, signed_by(read_text_or(entry, ""), codename), inherited_options(settings))


def choose_mirror(targets: str, codename: str) -> tuple[str, str] | None:
    """Pick a mirror, and the file that names it, from what `apt-get indextargets` prints.

    Wanted is the release itself (not its updates) and its main component.
    """
    for block in targets.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields.get("Release") != codename or fields.get("Component") != "main":
            continue
        # Unset until the first apt-get update.
        if fields.get("Origin", "Debian") == "Debian" and fields.get("Repo-URI"):
            entry = fields.get("Sourcesentry", "").rpartition(":")[0]
            return fields["Repo-URI"].rstrip("/"), entry
    return None


def signed_by(sources: str, codename: str) -> str:
    """Return the key file that a sources file (of either format) names for a release, or ""."""
    for stanza in sources.split("\n\n"):
        if codename not in re.findall(r"[\w.-]+", stanza):
            continue
        match = _SIGNED_BY.search(stanza)
        if match:
            return match[1]
    return ""


def inherited_options(settings: str) -> tuple[str, ...]:
    """Return the lines of `apt-config dump` that another apt needs to use the same mirror."""
    return tuple(
        line.strip()
        for line in settings.splitlines()
        if line.startswith(_HANDED_ON) and not line.rstrip().endswith(' "";')
    )


def mmdebstrap_argv(
    source: AptSource, *, suite: str, target: str, variant: str, include: tuple[str, ...]
) -> tuple[str, ...]:
    """The command that installs packages of a release into an empty folder."""
    keyring = (f"--keyring={source.keyring}",) if source.keyring else ()
    # In a mount namespace of its own: when it is interrupted, none of its mounts stay behind for a
    # later clean-up to walk into.
    return (
        "unshare", "--mount", "--propagation", "private",
        "mmdebstrap", "--mode=root", "--format=directory", f"--variant={variant}",
        *(f"--aptopt={option}" for option in source.options),
        '--aptopt=Acquire::Languages "none"', "--aptopt=Acquire::Retries \"3\"",
        "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=force-unsafe-io",
        *keyring, "--include=" + ",".join(include), suite, target, source.uri,
    )  # fmt: skip
