# SPDX-License-Identifier: GPL-2.0-or-later
"""APT's configuration (apt.conf(5)) as far as the doctor needs it, and packages on hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# The alternatives in this order: what looks like a comment within a string is none.
_HELD = re.compile(r"^Package: (\S+)\n(?:\S.*\n| .*\n)*?Status: hold ", re.MULTILINE)
_TOKEN = re.compile(
    r'"(?P<string>[^"\n]*)"|(?P<comment>//[^\n]*|/\*.*?\*/|#(?!clear\b)[^\n]*)'
    r"|(?P<mark>[{};])|(?P<word>[^\s{};\"]+)",
    re.DOTALL,
)


def settings(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names, in small letters, and values in the order in which APT reads them.

    Of a list each value has the list's name. `#clear` is a name with the value that it clears.
    """
    for text in texts:
        yield from _of_file(text)


def _of_file(text: str) -> Iterator[tuple[str, str]]:
    scope: list[str] = []
    name, value = "", None
    for token in _TOKEN.finditer(text):
        kind, found = token.lastgroup, token.group(token.lastgroup or 0)
        if kind == "string":
            value = found
        elif kind == "word":
            if name == "#clear":
                value = found.lower()
            else:
                name = found.lower()
        elif found == "{":
            scope.append(name)
            name, value = "", None
        elif kind == "mark":
            if value is not None:
                yield "::".join(each.strip(":") for each in (*scope, name) if each), value
            name, value = "", None
            if found == "}" and scope:
                scope.pop()


def last_value(found: Sequence[tuple[str, str]], name: str) -> str:
    """Return the value of a setting that is no list; empty: not set."""
    return next((value for each, value in reversed(found) if each == name), "")


def values(found: Sequence[tuple[str, str]], name: str) -> list[str]:
    """Return the values of a list."""
    listed: list[str] = []
    for each, value in found:
        if each == "#clear" and (value == name or name.startswith(f"{value}::")):
            listed.clear()
        elif each == name:
            listed.append(value)
    return listed


def held_packages(status: str) -> list[str]:
    """Return the packages that dpkg's status file says are on hold (`apt-mark hold`)."""
    return _HELD.findall(status)
