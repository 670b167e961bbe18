# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl device heal`."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from typing import Any

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.errors import ExitStatus, Problem, Refused
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.ops.device_heal import examine_replicas, heal_device
from sanctl.plan.replicas.heal import Condition, Diagnosis, Loss, ReplicaFacts, loss_of_keeping

_COLUMNS = ("COPY ON", "DISK", "ONLY THERE", "APART SINCE", "GENERATION", "NOTES")
_WORDS = {
    Condition.SOUND: "its replicas have not diverged; nothing is to be decided",
    Condition.DIVERGED: "its replicas have diverged: each has writes that the other lacks",
    Condition.UNRELATED: "its replicas have no common past: they hold different data",
    Condition.BLOCKED: "no replica may be served: each is marked as behind, knows itself to be "
    "behind, is out of reach, or has not met the one that is",
}


@click.command()
@click.argument("name")
@click.option("--keep", metavar="NODE", help="The node whose copy is kept; the other is lost.")
@yes_option
@accept_option
@timeout_option(120)
@output_option
def heal(
    *,
    name: str,
    keep: str | None,
    yes: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Decide which copy is kept of a device whose replicas have diverged.

    Without --keep it shows the copies, and what keeping each would lose; exit status 1: there is
    something to decide. With --keep it shows the loss, asks, and does it.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    chosen = NodeName.parse(keep) if keep is not None else None
    with env.session() as session:
        shown = examine_replicas(session, wanted)
        if chosen is None:
            finish(
                output,
                data=_data(shown),
                text=lambda: _print(shown),
                status=ExitStatus.OK if shown.condition is Condition.SOUND else ExitStatus.DEGRADED,
            )
            return
        lost = loss_of_keeping(shown, chosen)
        if not yes:
            with contextlib.redirect_stdout(sys.stderr):
                _print(shown)
            click.echo(f"\nKeeping the copy on {chosen} loses {lost.text}.", err=True)
            click.confirm(
                f"Device {wanted}: discard the copy on {lost.node}?", abort=True, err=True
            )
        command_line = f"device heal {name} --keep {keep} (loses {lost.text})"
        with env.logged("heal", device=name, command_line=command_line):
            heal_device(
                session, wanted, chosen, shown=shown, accepted=accepted, timeout_s=timeout_s
            )
    finish(
        output,
        data={**_data(shown), "kept": chosen.value, "lost": _loss_data(lost)},
        text=lambda: print(
            f"device {wanted}: the copy on {chosen} serves; lost: {lost.text}\n"
            f"'sanctl device show {wanted}' shows how the copy on {lost.node} is replaced"
        ),
    )


def _losses(shown: Diagnosis) -> dict[NodeName, Loss | Problem]:
    """What keeping each copy would lose, or why it cannot be kept."""
    found: dict[NodeName, Loss | Problem] = {}
    for side in shown.replicas:
        try:
            found[side.node] = loss_of_keeping(shown, side.node)
        except Refused as error:
            found[side.node] = error.problems[0]
    return found


def _print(shown: Diagnosis) -> None:
    print(f"device {shown.device.name}: {_WORDS[shown.condition]}")
    print_table(_COLUMNS, (_row(side) for side in shown.replicas))
    if shown.condition is Condition.SOUND:
        return
    for node, verdict in _losses(shown).items():
        if isinstance(verdict, Loss):
            print(f"--keep {node} loses {verdict.text}")
        else:
            print(f"--keep {node} is refused: {verdict}")


def _row(side: ReplicaFacts) -> tuple[str, ...]:
    notes = [side.state.value]
    if side.serves:
        notes.append("serves")
    if side.is_marked:
        notes.append("marked as behind")
    if side.replica.was_last_primary:
        notes.append("served last")
    if side.is_never_connected:
        notes.append("has met no other since it was started")
    if side.replica.is_suspect:
        notes.append("lost writes that it had acknowledged")
    kib = side.replica.out_of_sync_kib
    return (
        side.node.value,
        side.replica.disk or UNKNOWN,
        UNKNOWN if kib is None else format_bytes(kib * 1024),
        _moment(side.replica.disconnected_since_s),
        UNKNOWN if side.generations is None else side.generations.name,
        ", ".join(notes),
    )


def _moment(since_s: int | None) -> str:
    if since_s is None:
        return UNKNOWN
    return datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _data(shown: Diagnosis) -> dict[str, Any]:
    losses = _losses(shown)
    return {
        "name": shown.device.name.value,
        "condition": shown.condition.value,
        "copies": [
            {
                "node": side.node.value,
                "node_state": side.state.value,
                "disk": side.replica.disk,
                "serves": side.serves,
                "marked": side.is_marked,
                "suspect": side.replica.is_suspect,
                "untried": side.is_never_connected,
                "served_last": side.replica.was_last_primary,
                "only_there_bytes": None
                if side.replica.out_of_sync_kib is None
                else side.replica.out_of_sync_kib * 1024,
                "apart_since": None
                if side.replica.disconnected_since_s is None
                else _moment(side.replica.disconnected_since_s),
                "generation": None if side.generations is None else side.generations.name,
                "keeping_it": _verdict_data(losses[side.node]),
            }
            for side in shown.replicas
        ],
    }


def _verdict_data(verdict: Loss | Problem) -> dict[str, Any]:
    if isinstance(verdict, Loss):
        return {"loses": _loss_data(verdict), "refused": None}
    return {"loses": None, "refused": {"code": verdict.code, "text": verdict.text}}


def _loss_data(lost: Loss) -> dict[str, Any]:
    return {"node": lost.node.value, "bytes_at_most": lost.bytes_at_most, "text": lost.text}
