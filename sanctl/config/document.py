# SPDX-License-Identifier: GPL-2.0-or-later
"""Typed access to a parsed TOML or inventory tree, which collects problems instead of stopping.

A value that is missing or of the wrong type adds one problem and reads as None; checks that need
the value are then skipped, so one mistake gives one line.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sanctl.errors import Problem, UsageError

# TOML's whole numbers have 64 bits; what Python reads beyond may be too long to be shown.
_INT_BITS = 64

Path = tuple[str, ...]
PathName = Callable[[Path], str]


def dotted(path: Path) -> str:
    """Return a path as TOML writes it."""
    return ".".join(path)


def _shown(value: object) -> str:
    """Return a wrong value for a message, cut where it is long or nested deeply."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return "a number of thousands of digits"


class Document:
    """A parsed document, the problems found in it so far, and the way to name a path in it.

    Attributes:
        problems: what is wrong with it.
        passed_over: what is in it and not known here, and does no harm; None: that is a problem.
    """

    def __init__(
        self,
        tree: Mapping[str, Any],
        place: PathName = dotted,
        passed_over: list[Problem] | None = None,
        missing_hint: str = "",
    ) -> None:
        self._tree = tree
        self._place = place
        self._missing_hint = missing_hint
        self.problems: list[Problem] = []
        self.passed_over = passed_over

    def note(self, code: str, path: Path, text: str, hint: str = "") -> None:
        """Add a problem with the value at `path`."""
        self.problems.append(Problem(code, f"{self._place(path)}: {text}", hint))

    def note_unknown(self, code: str, path: Path, text: str, hint: str = "") -> None:
        """Add a problem with what this release does not know, and can go on without."""
        found = Problem(code, f"{self._place(path)}: {text}", hint)
        (self.problems if self.passed_over is None else self.passed_over).append(found)

    def note_name(self, path: Path, error: UsageError) -> None:
        """Add the problems of an invalid name."""
        for problem in error.problems:
            self.note("SAN-CONF-006", path, problem.text, problem.hint)

    def _get(self, path: Path) -> Any:
        value: Any = self._tree
        for key in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    def has(self, path: Path) -> bool:
        """Whether there is anything at `path`."""
        return self._get(path) is not None

    def table(self, path: Path, *, known: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the keys of the table at `path`, noting those that are not known.

        Keys whose value is None count as absent: an inventory has them for unset variables.
        """
        value = self._get(path) if path else self._tree
        if value is None:
            self.note("SAN-CONF-003", path, "is missing", self._missing_hint)
            return ()
        if not isinstance(value, Mapping):
            self.note("SAN-CONF-005", path, "must be a table")
            return ()
        keys = tuple(str(key) for key, item in value.items() if item is not None)
        if known is not None:
            for key in keys:
                if key not in known:
                    self.note_unknown(
                        "SAN-CONF-004",
                        (*path, key),
                        "is not a key sanctl knows",
                        f"known here: {', '.join(known)}",
                    )
        return keys

    def text(self, path: Path, *, code: str = "SAN-CONF-003", hint: str = "") -> str | None:
        """Return the text at `path`; a missing one is noted under `code`."""
        value = self._get(path)
        if value is None or value == "":
            self.note(code, path, "is missing", hint or self._missing_hint)
            return None
        if not isinstance(value, str):
            self.note("SAN-CONF-005", path, f"must be a text, not {_shown(value)}")
            return None
        # A plain str, whatever tagged subclass of it an inventory hands over.
        return str(value)

    def integer(self, path: Path) -> int | None:
        """Return the whole number at `path`."""
        value = self._get(path)
        if value is None:
            self.note("SAN-CONF-003", path, "is missing", self._missing_hint)
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.note("SAN-CONF-005", path, f"must be a whole number, not {_shown(value)}")
            return None
        if value.bit_length() >= _INT_BITS:
            self.note("SAN-CONF-005", path, "is a larger number than anything here can be")
            return None
        return int(value)

    def texts(self, path: Path) -> tuple[str, ...] | None:
        """Return the list of texts at `path`; an absent one is empty."""
        value = self._get(path)
        if value is None:
            return ()
        if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
            self.note("SAN-CONF-005", path, f"must be a list, not {_shown(value)}")
            return None
        if not all(isinstance(item, str) for item in value):
            self.note("SAN-CONF-005", path, "must hold texts only")
            return None
        return tuple(str(item) for item in value)
