# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device heal`: table of diverged replicas, question, loss."""

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
from sanctl.plan.replicas.diagnosis import Condition, Diagnosis, ReplicaFacts
from sanctl.plan.replicas.heal import loss_of_keeping
from sanctl.plan.replicas.loss import Loss

_COLUMNS = ("REPLICA ON", "DISK", "ONLY THERE", "APART SINCE", "GENERATION", "NOTES")
_CONDITION_TEXTS = {
    Condition.SOUND: "its replicas have not diverged, and a node serves it: nothing to decide",
    Condition.WAITING: "no node serves it, and no operator can decide now",
    Condition.DIVERGED: "its replicas have diverged: each has writes that the other lacks",
    Condition.UNRELATED: "its replicas have no common past: they hold different data",
    Condition.BLOCKED: "no replica may be served: each is marked as outdated, knows that it is "
    "outdated, is out of reach, or has not connected since its start to the one that is",
}

_ONLY_BLOCKED = "its only replica is not served by itself: it may lack writes"


@click.command()
@click.argument("name")
@click.option("--keep", metavar="NODE", help="The node whose replica is kept; the other is lost.")
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
    """Decide which replica is kept of a device whose replicas have diverged.

    Without --keep the command shows the replicas, and what keeping each would lose; exit status 1:
    there is something to decide. With --keep it shows the loss, asks, and discards the other one.
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
            click.echo(f"\nKeeping the replica on {chosen} loses {lost.text}.", err=True)
            do = f"discard {_replicas_text(lost)}" if lost.nodes else "serve it as it is"
            click.confirm(f"Device {wanted}: {do}?", abort=True, err=True)
        command_line = f"device heal {name} --keep {keep} (loses {lost.text})"
        with env.logged("heal", device=name, command_line=command_line):
            heal_device(
                session, wanted, chosen, shown=shown, accepted=accepted, timeout_s=timeout_s
            )
    finish(
        output,
        data={**_data(shown), "kept": chosen.value, "lost": _loss_data(lost)},
        text=lambda: print(
            f"device {wanted}: the replica on {chosen} serves; lost: {lost.text}"
            + (
                f"\n'sanctl device show {wanted}' shows how {_replicas_text(lost)} is replaced"
                if lost.nodes
                else ""
            )
        ),
    )


def _losses(shown: Diagnosis) -> dict[NodeName, Loss | Problem]:
    """Return what keeping each replica would lose, or why it cannot be kept."""
    found: dict[NodeName, Loss | Problem] = {}
    for side in shown.replicas:
        try:
            found[side.node] = loss_of_keeping(shown, side.node)
        except Refused as error:
            found[side.node] = error.problems[0]
    return found


def _print(shown: Diagnosis) -> None:
    is_only = shown.condition is Condition.BLOCKED and len(shown.replicas) == 1
    what = _ONLY_BLOCKED if is_only else _CONDITION_TEXTS[shown.condition]
    print(f"device {shown.device.name}: {what}")
    print_table(_COLUMNS, (_row(side) for side in shown.replicas))
    if shown.condition is Condition.WAITING:
        print(f"waits: {shown.waits_for}")
    if shown.condition in {Condition.SOUND, Condition.WAITING}:
        return
    if shown.unmarks_itself:
        print("every replica is marked and none differs: one mark is removed by itself soon")
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
        notes.append("marked as outdated")
    if side.replica.was_last_primary:
        notes.append("served last")
    if side.is_connected_unjoined:
        notes.append("connected to one whose node has not joined Pacemaker")
    elif side.is_never_connected:
        notes.append("not connected to another replica since it was started")
    if side.replica.is_unflushed_resync:
        notes.append("suspect: lost its power before its resync was on its disk")
    if side.replica.is_unflushed_cache:
        notes.append("suspect: may lack acknowledged writes")
    kib = side.replica.out_of_sync_kib
    return (
        side.node.value,
        side.replica.disk or UNKNOWN,
        UNKNOWN if kib is None else format_bytes(kib * 1024),
        _time_text(side.replica.disconnected_since_s),
        UNKNOWN if side.generations is None else side.generations.name,
        ", ".join(notes),
    )


def _time_text(since_s: int | None) -> str:
    if since_s is None:
        return UNKNOWN
    return datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _data(shown: Diagnosis) -> dict[str, Any]:
    losses = _losses(shown)
    return {
        "name": shown.device.name.value,
        "condition": shown.condition.value,
        "waits_for": shown.waits_for or None,
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
                else _time_text(side.replica.disconnected_since_s),
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


def _replicas_text(lost: Loss) -> str:
    return f"the replica on {' and on '.join(map(str, lost.nodes))}"


def _loss_data(lost: Loss) -> dict[str, Any]:
    nodes = [node.value for node in lost.nodes]
    return {
        "node": nodes[0] if nodes else None,
        "nodes": nodes,
        "bytes_at_most": lost.bytes_at_most,
        "text": lost.text,
    }
