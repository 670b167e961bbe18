# SPDX-License-Identifier: GPL-2.0-or-later
"""A laboratory's networks: bridges and taps inside one network namespace of its own."""

from __future__ import annotations

from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import HOST_ADDRESS, PREFIX_LENGTH, LabSpec, Network, NodeSpec
from sanctl.system.runner import Runner

_TIMEOUT_S = 30.0


def bridge_commands(spec: LabSpec) -> str:
    """The `ip -batch` lines that make the networks."""
    lines = ["link set lo up"]
    for network in Network:
        lines += [
            f"link add {network} type bridge mcast_snooping 0",
            f"link set {network} up",
        ]
    lines.append(f"addr add {HOST_ADDRESS}/{PREFIX_LENGTH} dev {Network.HEARTBEAT}")
    lines += [
        f"addr add {node.bmc_address}/32 dev {Network.HEARTBEAT}"
        for node in spec.machines
        if node.has_bmc
    ]
    for node in spec.machines:
        for network in node.networks:
            tap = node.tap(network)
            lines += [
                f"tuntap add dev {tap} mode tap",
                f"link set {tap} master {network} up",
            ]
    return "\n".join(lines) + "\n"


def create(lab: Lab, runner: Runner) -> None:
    """Make the namespace and all that is in it; nothing is left of it if a step fails."""
    runner.run(["ip", "netns", "add", lab.namespace], timeout_s=_TIMEOUT_S)
    try:
        # Link-local addresses would wait for duplicates and send chatter nobody reads.
        runner.run(
            lab.enter("sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1",
                      "net.ipv6.conf.all.disable_ipv6=1"),
            timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        runner.run(
            ["ip", "-n", lab.namespace, "-batch", "-"],
            stdin=bridge_commands(lab.spec),
            timeout_s=_TIMEOUT_S,
        )
    except BaseException:
        delete(lab, runner)
        raise


def delete(lab: Lab, runner: Runner) -> None:
    """Remove the namespace; bridges and taps go with it."""
    if lab.is_up():
        runner.run(["ip", "netns", "delete", lab.namespace], timeout_s=_TIMEOUT_S)


def plug(
    lab: Lab,
    node: NodeSpec,
    network: Network,
    runner: Runner,
    *,
    delay_ms: float = 0.0,
    loss_pct: float = 0.0,
) -> None:
    """Put a cable back, good as new or worse: what the node sends is delayed or lost.

    Raises:
        CommandError: the node could not be told to worsen, or no longer worsen, what it sends.
    """
    _ip(lab, runner, "link", "set", node.tap(network), "master", network.value)
    # A node is only asked when there is something to change: it may be off, or hang.
    marker = lab.run_directory / f"impaired-{node.name}-{network}"
    if delay_ms or loss_pct or marker.exists():
        argv = impair_argv(network, delay_ms=delay_ms, loss_pct=loss_pct)
        runner.run(lab.ssh_argv(node, *argv), timeout_s=_TIMEOUT_S)
        if delay_ms or loss_pct:
            marker.touch()
        else:
            marker.unlink()


def unplug(lab: Lab, node: NodeSpec, network: Network, runner: Runner) -> None:
    """Pull a cable: from now on what either side sends is lost, and no error tells them."""
    _ip(lab, runner, "link", "set", node.tap(network), "nomaster")


def is_plugged(lab: Lab, node: NodeSpec, network: Network, runner: Runner) -> bool:
    """Whether a node's cable is in."""
    shown = _ip(lab, runner, "-o", "link", "show", "dev", node.tap(network))
    return f" master {network} " in shown


def impair_argv(network: Network, *, delay_ms: float, loss_pct: float) -> tuple[str, ...]:
    """The command a node runs to worsen what it sends.

    It runs in the node because lab kernels have netem, while a host's kernel may not.
    """
    if not delay_ms and not loss_pct:
        return ("tc", "qdisc", "replace", "dev", network.nic, "root", "pfifo_fast")
    return (
        "tc", "qdisc", "replace", "dev", network.nic, "root", "netem",
        "delay", f"{delay_ms:g}ms", "loss", f"{loss_pct:g}%",
    )  # fmt: skip


def _ip(lab: Lab, runner: Runner, *arguments: str) -> str:
    return runner.run(["ip", "-n", lab.namespace, *arguments], timeout_s=_TIMEOUT_S).stdout
