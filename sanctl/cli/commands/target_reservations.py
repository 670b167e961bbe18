# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl target reservations`: who holds what, and the way to break it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.reservations import print_reservations, reservations_data
from sanctl.model.names import DeviceName
from sanctl.ops.reservations import clear_reservations, needs_clearing, published_reservations
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device

if TYPE_CHECKING:
    from sanctl.cli.documents import target as target_documents


@click.command(short_help="Show persistent reservations, or break them.")
@click.argument("name")
@click.argument("action", type=click.Choice(["clear"]), required=False, metavar="clear")
@yes_option
@timeout_option(60)
@output_option
def reservations(
    *, name: str, action: str | None, yes: bool, timeout_s: float, output: str
) -> None:
    """Show who is registered with device NAME, and who holds its persistent reservation.

    As the node that serves the device says; a registration is an initiator's, with all its
    sessions.

    With `clear` all registrations and the reservation end, after a question: for hosts that are
    gone for good and still keep others out. Every host on the access list can write then. The
    sessions of its hosts end, and they log in again within seconds.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    with env.session() as session:
        if action is None:
            shown = _seen(session, wanted)
            finish(output, data=shown, text=lambda: print_reservations(shown))
            return
        token = env.new_uuid()[-16:]
        if needs_clearing(session, wanted, token) and not yes:
            _ask(session, wanted)
        command_line = f"target reservations {name} clear"
        with env.logged("reservations", device=name, command_line=command_line):
            outcome = clear_reservations(session, wanted, token, timeout_s=timeout_s)
        found = reservations_data(
            outcome.cluster, outcome.device, published_reservations(session, wanted)
        )

    def text() -> None:
        if not outcome.changed:
            print(f"device {wanted}: no host is registered: nothing to do")
            return
        print(f"device {wanted}: reservations cleared, after {outcome.duration_s:.1f} s")
        if found["registrations"] is None or found["registrations"]:
            print("since then:")
            print_reservations(found)

    data: target_documents.ReservationsCleared = {
        "changed": outcome.changed,
        "duration_s": round(outcome.duration_s, 3),
        **found,
    }
    finish(output, data=data, text=text)


def _seen(session: Session, name: DeviceName) -> target_documents.Reservations:
    cluster = session.observe()
    device = existing_device(cluster, name)
    return reservations_data(cluster, device, published_reservations(session, name))


def _ask(session: Session, name: DeviceName) -> None:
    found = _seen(session, name)["registrations"]
    if found is None:
        who = "which hosts are registered is not known; all of them"
    else:
        who = ", ".join(map(_named, found))
    click.echo(
        f"device {name}: {who} will lose their registrations. Every host on the access list can "
        "write then: one that was kept out and is still alive writes over what others have. Switch "
        f"it off first, or take it off the list: 'sanctl target deny {name} IQN'. The sessions of "
        "the device's hosts end; they log in again within seconds.",
        err=True,
    )
    click.confirm(f"Break the reservations of device {name}?", abort=True, err=True)


def _named(entry: target_documents.Registration) -> str:
    words = [entry["host"]] if entry["host"] else []
    words += ["holds the reservation"] if entry["holder"] else []
    return f"{entry['initiator']} ({', '.join(words)})" if words else entry["initiator"]
