# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `sanctl lab`: up, down, destroy, status, list, ssh, logs, power, link ..."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from sanctl.cli.options import SECONDS
from sanctl.cli.output import finish
from sanctl.errors import ExitStatus, Problem, Refused, UsageError
from sanctl.lab.machines import (
    fault_commands,
    guest_files,
    kernel_config,
    lab_state,
    lifecycle,
    network_cuts,
    node_power,
    requirements,
    rollout,
    spec,
)
from sanctl.lab.machines import network as networks
from sanctl.lab.machines.command_options import (
    CABLES,
    DELAY_MS,
    PERCENT,
    Command,
    name_option,
    network_named,
    output_option,
    print_json,
    require_up,
)
from sanctl.lab.machines.progress import Progress
from sanctl.lab.machines.spec import LabSpec, Network
from sanctl.system.runner import LocalRunner


def _post_delay_option(command: Command) -> Command:
    return click.option(
        "--post-delay", type=SECONDS, metavar="SECONDS",
        help="How long a node's firmware takes before it boots.",
    )(command)  # fmt: skip


@click.group(no_args_is_help=False)
def lab() -> None:
    """A cluster of real kernels on this machine."""


@lab.command()
@name_option
@click.option("--nodes", type=int, help="Cluster nodes; an odd count ends with a witness. [3]")
@click.option("--witness", type=click.Choice([each.value for each in spec.Witness]),
              help="Source of the third vote. [node if --nodes is odd, else none]")  # fmt: skip
@click.option("--initiators", type=int, help="Hosts that use the storage. [1]")
@click.option("--release", type=click.Choice(spec.RELEASES), help="The nodes' Debian. [trixie]")
@click.option("--memory", type=int, metavar="MIB", help=f"Per node. [{spec.DEFAULT_MEMORY_MIB}]")
@click.option("--disk-size", metavar="SIZE", help="Size of each data disk, such as 4G. [4G]")
@click.option("--disks", type=int, help="Data disks per storage node. [1]")
@click.option("--filesystem", type=click.Choice(spec.FILESYSTEMS),
              help=f"Of the data disks. [{spec.DEFAULT_FILESYSTEM}]")  # fmt: skip
@click.option("--racks", type=int, help="Racks that the storage nodes are spread over. [none]")
@click.option("--hyperconverged", is_flag=True, default=None,
              help="The storage nodes are hosts of their own devices, too.")  # fmt: skip
@click.option(
    "--flash", metavar="SIZE", help="Size of a flash disk before the first data disk. [none]"
)
@click.option("--shared-disk", metavar="SIZE",
              help=f"Size of {guest_files.SHARED_DEVICE}, shared by all nodes. [none]")  # fmt: skip
@_post_delay_option
@click.option("--kernel", type=click.Path(path_type=Path), help="An own UML binary …")
@click.option("--modules", type=click.Path(path_type=Path), help="… and its lib/modules folder.")
@click.option("--rollout/--no-rollout", "is_rolled_out", default=True,
              help="Run the Ansible playbook afterwards.")  # fmt: skip
@output_option
def up(
    *,
    name: str,
    kernel: Path | None,
    modules: Path | None,
    is_rolled_out: bool,
    output: str,
    disk_size: str | None,
    flash: str | None,
    shared_disk: str | None,
    **sizes: Any,
) -> None:
    """Build what is missing, boot all nodes and roll the cluster out.

    A lab that exists keeps its nodes and disks: nodes that are off are booted.
    """
    requirements.require_root()
    wanted = {
        "name": name,
        "nodes": sizes["nodes"],
        "witness": sizes["witness"],
        "initiators": sizes["initiators"],
        "release": sizes["release"],
        "memory_mib": sizes["memory"],
        "disks": sizes["disks"],
        "racks": sizes["racks"],
        "own_hosts": sizes["hyperconverged"],
        "filesystem": sizes["filesystem"],
        "disk_mib": None if disk_size is None else spec.parse_size_mib(disk_size),
        "flash_mib": None if flash is None else spec.parse_size_mib(flash),
        "shared_mib": None if shared_disk is None else spec.parse_size_mib(shared_disk),
        "post_delay_s": sizes["post_delay"],
    }
    wanted = {key: value for key, value in wanted.items() if value is not None}
    found = lab_state.find(name)
    # What a laboratory had before there was a choice is what a spec without a word means.
    unsaid = {} if found else {"filesystem": spec.DEFAULT_FILESYSTEM}
    asked = LabSpec(**{**unsaid, **wanted})
    problems = spec.check(asked)
    if problems:
        raise UsageError(*problems)
    # `timeout` and CI end a command with SIGTERM: that must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    progress = Progress()
    if found is None:
        found = lifecycle.create(asked, progress, own_kernel=kernel, own_modules=modules)
    else:
        _refuse_another_shape(found, wanted, own_kernel=kernel)
    lifecycle.start(found, progress)
    if is_rolled_out:
        rollout.run(found)
    if output == "json":
        print_json(_describe(found))
    else:
        progress.say(f"lab {name} is up; sanctl lab ssh n1, and sanctl lab down ends it")


@lab.command()
@name_option
def down(name: str) -> None:
    """End every process and network of a lab; its disks stay."""
    requirements.require_root()
    lifecycle.stop(lab_state.load(name))
    _prove_gone(name)
    Progress().say(f"lab {name} is down; its disks are kept (sanctl lab destroy removes them)")


@lab.command()
@name_option
def destroy(name: str) -> None:
    """End a lab and remove its disks."""
    requirements.require_root()
    lifecycle.destroy(lab_state.load(name))
    _prove_gone(name)
    Progress().say(f"lab {name} is gone")


@lab.command()
@name_option
@output_option
def status(name: str, output: str) -> None:
    """Show a lab's nodes and their power."""
    requirements.require_root()
    described = _describe(lab_state.load(name))
    if output == "json":
        print_json(described)
        return
    click.echo(f"lab {name}: {'up' if described['up'] else 'down'}, {described['release']}")
    click.echo(f"{'NODE':6} {'ROLE':10} {'POWER':6} {'ADDRESS':14} {'BMC':14} UNPLUGGED")
    for node in described["nodes"]:
        click.echo(
            f"{node['name']:6} {node['role']:10} {node['power']:6} {node['address']:14} "
            f"{node['bmc'] or '-':14} {' '.join(node['unplugged']) or '-'}"
        )
    for cut in described["cuts"]:
        click.echo(
            f"cut: {cut['loss_pct']:g} % of what {cut['source']} sends to {cut['target']}"
            f" on {cut['network']}"
        )


@lab.command("list")
@output_option
def list_labs(output: str) -> None:
    """List the labs of this machine."""
    requirements.require_root()
    labs = [{"name": name, "up": lab_state.load(name).is_up()} for name in lab_state.names()]
    if output == "json":
        print_json({"labs": labs})
        return
    for each in labs:
        click.echo(f"{each['name']:16} {'up' if each['up'] else 'down'}")


@lab.command(context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(name: str, node: str, command: tuple[str, ...]) -> None:
    """Log in to a node, or run a command there."""
    requirements.require_root()
    found = require_up(name)
    argv = found.ssh_argv(found.spec.node(node), *command)
    os.execvp(argv[0], argv)  # noqa: S606


@lab.command()
@name_option
@click.argument("node")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are added.")
@click.option("--bmc", is_flag=True, help="The BMC's log instead of the console.")
def logs(name: str, node: str, follow: bool, bmc: bool) -> None:
    """Show a node's console log since its power on."""
    requirements.require_root()
    found = lab_state.load(name)
    machine_ = found.spec.node(node)
    log = found.node_directory(machine_) / "bmc.log" if bmc else found.console_log(machine_)
    if follow:
        os.execvp("tail", ["tail", "-n", "50", "-F", str(log)])  # noqa: S606
    sys.stdout.write(log.read_text(errors="replace") if log.exists() else "")


@lab.command()
@name_option
@click.argument("node")
@click.argument("action", type=click.Choice(["off", "on", "reset", "status"]))
@_post_delay_option
@output_option
def power(name: str, node: str, action: str, post_delay: float | None, output: str) -> None:
    """Switch a node's power off or on, as its BMC would."""
    requirements.require_root()
    found = lab_state.load(name)
    machine_ = found.spec.node(node)
    if action in ("off", "reset"):
        node_power.power_off(found, machine_)
    if action in ("on", "reset"):
        delay = found.spec.post_delay_s if post_delay is None else post_delay
        node_power.power_on(found, machine_, post_delay_s=delay)
    now = node_power.power(found, machine_).value
    if output == "json":
        print_json({"node": node, "power": now})
    else:
        click.echo(f"{node}: {now}")


@lab.command()
@name_option
@click.argument("node")
@click.argument("cable", metavar="NETWORK", type=click.Choice(CABLES))
@click.argument("action", type=click.Choice(["down", "up"]))
@click.option(
    "--delay", type=DELAY_MS, default=0.0, metavar="MS", help="Delay what the node sends."
)
@click.option(
    "--loss", type=PERCENT, default=0.0, metavar="PCT", help="Lose some of what it sends."
)
def link(*, name: str, node: str, cable: str, action: str, delay: float, loss: float) -> None:
    """Pull a cable, put it back, or put it back worse than it was."""
    requirements.require_root()
    found = require_up(name)
    machine_ = found.spec.node(node)
    chosen = network_named(cable)
    if chosen not in machine_.networks:
        raise UsageError(Problem("SAN-LAB-005", f"{node} is not on network {chosen}"))
    if action == "down" and (delay or loss):
        raise UsageError(Problem("SAN-LAB-005", "--delay and --loss go with a cable that is up"))
    if not 0 <= loss <= 100 or delay < 0:
        raise UsageError(Problem("SAN-LAB-005", "--loss is from 0 to 100, --delay not negative"))
    if action == "down":
        networks.unplug(found, machine_, chosen, LocalRunner())
    else:
        networks.plug(found, machine_, chosen, LocalRunner(), delay_ms=delay, loss_pct=loss)


@lab.command("kernel-check")
@click.option("--config", default="running", show_default=True, metavar="FILE|running",
              help="A kernel's configuration.")  # fmt: skip
@click.option("--for", "purpose", type=click.Choice(kernel_config.PURPOSES), default="storage",
              show_default=True, help="The role of the node with that kernel.")  # fmt: skip
@output_option
def kernel_check(config: str, purpose: str, output: str) -> None:
    """Compare a kernel's configuration with the options a node needs; show why it needs them."""
    missing = kernel_config.missing_options(
        kernel_config.parse_config(kernel_config.read(config)), kernel_config.fragment(purpose)
    )

    def text() -> None:
        for option in missing:
            click.echo(f"{option.name} is missing ({option.wanted}): {option.reason}")
        if not missing:
            click.echo("nothing is missing")

    finish(
        output,
        data={"missing": [option._asdict() for option in missing]},
        text=text,
        status=ExitStatus.DEGRADED if missing else ExitStatus.OK,
    )


def _interrupt(signum: int, frame: object) -> None:  # noqa: ARG001 - a signal handler's shape
    raise KeyboardInterrupt


def _refuse_another_shape(
    found: lab_state.Lab, wanted: dict[str, Any], *, own_kernel: Path | None
) -> None:
    asked = replace(found.spec, **wanted)
    if asked != found.spec or own_kernel is not None:
        raise Refused(
            Problem(
                "SAN-LAB-006",
                f"lab {found.name} exists with another shape",
                f"sanctl lab destroy --name {found.name} first, or use another --name",
            )
        )


def _describe(found: lab_state.Lab) -> dict[str, Any]:
    runner = LocalRunner()
    is_up = found.is_up()
    return {
        "name": found.name,
        "up": is_up,
        "release": found.spec.release,
        "directory": str(found.directory),
        "cuts": [asdict(cut) for cut in sorted(network_cuts.load(found))],
        "nodes": [
            {
                "name": node.name,
                "role": node.role.value,
                "power": node_power.power(found, node).value,
                "address": node.address(Network.HEARTBEAT),
                "bmc": node.bmc_address if node.has_bmc else None,
                "unplugged": [
                    cable.value
                    for cable in node.networks
                    if is_up and not networks.is_plugged(found, node, cable, runner)
                ],
            }
            for node in found.machines
        ],
    }


def _prove_gone(name: str) -> None:
    left = lifecycle.leftovers(name)
    if left:
        raise Refused(Problem("SAN-LAB-016", "left behind: " + "; ".join(left), "end it by hand"))


for _command in fault_commands.COMMANDS:
    lab.add_command(_command)
