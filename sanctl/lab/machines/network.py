# SPDX-License-Identifier: GPL-2.0-or-later
"""A laboratory's bridges and taps in its network namespace; a cable pulled, plugged, delayed."""

from __future__ import annotations

from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import HOST_ADDRESS, PREFIX_LENGTH, LabSpec, Network, NodeSpec
from sanctl.system.runner import Runner

_TIMEOUT_S = 30.0


def bridge_commands(spec: LabSpec) -> str:
    """Return the `ip -batch` lines that make bridges, taps and BMC addresses."""
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
    """Make the network namespace with bridges and taps; if a step fails, remove it again."""
    runner.run(["ip", "netns", "add", lab.namespace], timeout_s=_TIMEOUT_S)
    try:
        # IPv6 link-local addresses would only cost duplicate address detection and multicasts.
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
    """Plug a cable in; with `delay_ms` or `loss_pct` what the node sends is delayed or lost.

    Raises:
        CommandError: the node did not set or remove its netem queue.
    """
    _ip(lab, runner, "link", "set", node.tap(network), "master", network.value)
    # No command runs on the node unless there is a queue to change: it may be off, or hang.
    marker = lab.run_directory / f"impaired-{node.name}-{network}"
    if delay_ms or loss_pct or marker.exists():
        argv = impair_argv(network, delay_ms=delay_ms, loss_pct=loss_pct)
        runner.run(lab.ssh_argv(node, *argv), timeout_s=_TIMEOUT_S)
        if delay_ms or loss_pct:
            marker.touch()
        else:
            marker.unlink()


def unplug(lab: Lab, node: NodeSpec, network: Network, runner: Runner) -> None:
    """Pull a cable: packets of both directions are lost, without an error or a lost carrier."""
    _ip(lab, runner, "link", "set", node.tap(network), "nomaster")


def is_plugged(lab: Lab, node: NodeSpec, network: Network, runner: Runner) -> bool:
    """Whether a node's cable is plugged in."""
    shown = _ip(lab, runner, "-o", "link", "show", "dev", node.tap(network))
    return f" master {network} " in shown


def impair_argv(network: Network, *, delay_ms: float, loss_pct: float) -> tuple[str, ...]:
    """Return the command that a node runs to delay or lose what it sends.

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
