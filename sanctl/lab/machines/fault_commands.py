# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `sanctl lab`: partition, cut, disk, clock, kill, fill; heal undoes them all."""

from __future__ import annotations

import click

from sanctl.errors import CommandError, Problem, UsageError
from sanctl.lab.machines import network_cuts, node_faults, requirements
from sanctl.lab.machines.command_options import (
    CABLES,
    PERCENT,
    name_option,
    network_named,
    require_up,
)
from sanctl.lab.machines.network_cuts import Cut
from sanctl.system.runner import LocalRunner

_ACTIONS = click.Choice([each.value for each in node_faults.DiskBehaviour])


@click.command()
@name_option
@click.argument("cable", metavar="NETWORK", type=click.Choice(CABLES))
@click.argument("sides", metavar="SIDE -- SIDE…", nargs=-1, required=True)
def partition(*, name: str, cable: str, sides: tuple[str, ...]) -> None:
    """Split a network: `sanctl lab partition sync n1 -- n2,n3`, undone by `… sync heal`.

    No packet passes between nodes on different sides; a node that is not named reaches all. This
    machine and the BMCs still reach every node, as over a management network.
    """
    requirements.require_root()
    lab = require_up(name)
    network = network_named(cable)
    before = {cut for cut in network_cuts.load(lab) if cut.network is network}
    if sides == ("heal",):
        network_cuts.change(lab, LocalRunner(), remove=before)
        return
    parsed = network_cuts.parse_sides(sides, lab.spec, network)
    network_cuts.change(
        lab, LocalRunner(), add=network_cuts.partition(network, parsed), remove=before
    )


@click.command()
@name_option
@click.argument("cable", metavar="NETWORK", type=click.Choice(CABLES))
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--loss", type=PERCENT, default=100.0, show_default=True,
              metavar="PCT", help="How much is lost; 0 undoes it.")  # fmt: skip
def cut(*, name: str, cable: str, source: str, target: str, loss: float) -> None:
    """Lose what one node sends to another, in that direction only."""
    requirements.require_root()
    lab = require_up(name)
    network = network_named(cable)
    for node in (source, target):
        if network not in lab.spec.node(node).networks:
            raise UsageError(Problem("SAN-LAB-005", f"{node} is not on network {network}"))
    wanted = Cut(network=network, source=source, target=target, loss_pct=loss)
    if loss:
        network_cuts.change(lab, LocalRunner(), add=[wanted])
    else:
        network_cuts.change(lab, LocalRunner(), remove=[wanted])


@click.command()
@name_option
@click.argument("node")
@click.argument("does", metavar="[" + "|".join(_ACTIONS.choices) + "]", type=_ACTIONS)
@click.option("--disk", "number", type=int, default=1, show_default=True, help="Which data disk.")
@click.option("--sector", "sectors", type=click.IntRange(min=0), multiple=True, metavar="N",
              help="With bad: this sector of 512 bytes cannot be read; more than once for more.",
              )  # fmt: skip
def disk(*, name: str, node: str, does: str, number: int, sectors: tuple[int, ...]) -> None:
    """Make a data disk fail, hang or work again, beneath its mounted filesystem."""
    requirements.require_root()
    lab = require_up(name)
    node_faults.break_disk(
        lab,
        lab.spec.node(node),
        number,
        node_faults.DiskBehaviour(does),
        LocalRunner(),
        sectors=sectors,
    )


@click.command(context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("node")
@click.argument("seconds", type=int)
def clock(*, name: str, node: str, seconds: int) -> None:
    """Set a node's clock to the right time plus SECONDS (0: to the right time)."""
    requirements.require_root()
    lab = require_up(name)
    node_faults.jump_clock(lab, lab.spec.node(node), seconds, LocalRunner())


@click.command()
@name_option
@click.argument("node")
@click.argument("daemon")
def kill(*, name: str, node: str, daemon: str) -> None:
    """Kill a daemon of a node (SIGKILL), such as corosync or pacemaker-controld."""
    requirements.require_root()
    lab = require_up(name)
    node_faults.kill_daemon(lab, lab.spec.node(node), daemon, LocalRunner())


@click.command()
@name_option
@click.argument("node")
@click.argument("place", type=click.Choice([each.value for each in node_faults.FilledFilesystem]))
@click.option("--free", is_flag=True, help="Free the filled space again.")
def fill(*, name: str, node: str, place: str, free: bool) -> None:
    """Fill a node's pool or its root filesystem to the last block."""
    requirements.require_root()
    lab = require_up(name)
    act = node_faults.free_filesystem if free else node_faults.fill_filesystem
    act(lab, lab.spec.node(node), node_faults.FilledFilesystem(place), LocalRunner())


@click.command()
@name_option
def heal(*, name: str) -> None:
    """Undo every fault: cables, cuts, power, disks, clocks, full filesystems."""
    requirements.require_root()
    left = node_faults.heal(require_up(name), LocalRunner())
    if left:
        raise CommandError(
            Problem(
                "SAN-LAB-009",
                "not healed: " + "; ".join(left),
                f"sanctl lab power --name {name} NODE reset, then heal again",
            )
        )
    click.echo("nothing is broken any more")


COMMANDS = (partition, cut, disk, clock, kill, fill, heal)
