# SPDX-License-Identifier: GPL-2.0-or-later
"""Ends the ledger of a bench command, and prints its writes, losses and errors with the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus
from sanctl.lab.harness.failover import LedgerLoad


def close_load(load: LedgerLoad) -> dict[str, Any]:
    """End the ledger and return the checker's result for every block that was written."""
    load.host.stop_ledger(load.run)
    return load.host.check_ledger(load.run)


def finish_bench(
    output: str,
    check: Mapping[str, Any],
    *,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    data: Mapping[str, Any],
    is_good: bool,
) -> None:
    """Print the table and the ledger's result; exit with 0 only if both are good.

    Args:
        output: `text` or `json`.
        check: the checker's result.
        columns: the headings of the table.
        rows: its rows.
        data: fields of the JSON document besides the ledger's result.
        is_good: whether every measurement kept its goal.
    """

    def text() -> None:
        print_table(columns, rows)
        click.echo(
            f"{check['acknowledged']} writes acknowledged, {check['lost']} lost, "
            f"{check['errors']} errors"
        )

    is_kept = is_good and check["lost"] == check["errors"] == 0
    ledger = {key: check[key] for key in ("acknowledged", "lost", "errors")}
    finish(
        output,
        data=ledger | dict(data),
        text=text,
        status=ExitStatus.OK if is_kept else ExitStatus.DEGRADED,
    )
