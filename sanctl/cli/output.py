# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a command's result: tables and text for people, JSON in a stable frame for programs.

JSON is one object: {"schema": 1, "status", "data", "problems"}. It is written for failures too, on
standard output, so that a program reads one thing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sanctl.errors import ExitStatus, Problem

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = 1
#: Shown in text for a value that is not known.
UNKNOWN = "?"

STATUS_WORDS = {
    ExitStatus.OK: "ok",
    ExitStatus.DEGRADED: "degraded",
    ExitStatus.USAGE: "usage",
    ExitStatus.CONFIG: "config",
    ExitStatus.REFUSED: "refused",
    ExitStatus.COMMAND: "failed",
    ExitStatus.UNREACHABLE: "unreachable",
    ExitStatus.NOT_CONVERGED: "not-converged",
    ExitStatus.PARTIAL: "partial",
    ExitStatus.BUSY: "busy",
    ExitStatus.BUG: "bug",
    ExitStatus.INTERRUPTED: "interrupted",
    ExitStatus.HUNG_UP: "hung-up",
    ExitStatus.TERMINATED: "terminated",
}


def wants_json(argv: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, even if the rest of it is wrong."""
    return any(
        word == "--output=json" or (word == "--output" and following == "json")
        for word, following in zip(argv, [*argv[1:], ""], strict=False)
    )


def write_json(status: ExitStatus, data: object, problems: Iterable[Problem] = ()) -> None:
    """Write the JSON object of a result."""
    json.dump(
        {
            "schema": SCHEMA,
            "status": STATUS_WORDS[status],
            "data": data,
            "problems": [
                {"code": problem.code, "text": problem.text, "hint": problem.hint}
                for problem in problems
            ],
        },
        sys.stdout,
        indent=2,
        ensure_ascii=False,
    )
    sys.stdout.write("\n")


def finish(
    output: str,
    *,
    data: object,
    text: Callable[[], None],
    status: ExitStatus = ExitStatus.OK,
    problems: Iterable[Problem] = (),
) -> None:
    """Write a result as text or JSON, and exit with its status unless that is 0."""
    if output == "json":
        write_json(status, data, problems)
    else:
        text()
    if status is not ExitStatus.OK:
        raise click.exceptions.Exit(int(status))


def finish_change(output: str, data: Mapping[str, object], text: str, then: str = "") -> None:
    """Write the result of a command that may have had nothing to do: `changed` in its data.

    `then` follows the text where something was changed.
    """
    done = then if data["changed"] else ": nothing to do"
    finish(output, data=data, text=lambda: print(text + done))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table: fitted to a terminal, with colours; elsewhere one plain line for each row."""
    if not sys.stdout.isatty():
        _print_plain([columns, *rows])
        return
    # Imported here: output that does not go to a terminal does not need rich.
    from rich.console import Console  # noqa: PLC0415

    Console(highlight=False).print(make_table(columns, rows))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a terminal. Cells are texts: a `[` in one of them begins no markup."""
    from rich.table import Table  # noqa: PLC0415 - only on a terminal
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return table


def _print_plain(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


# Colour repeats what the word says; no information is in the colour alone.
_STYLES = {
    "ok": "green",
    "online": "green",
    "degraded": "yellow",
    "standby": "yellow",
    "shutting down": "yellow",
    "pending": "yellow",
    "maintenance": "yellow",
    "deleting": "yellow",
    "stopped": "red",
    "down": "red",
    "offline": "red",
    "unclean": "red",
    "unknown": "red",
    "?": "red",
}
