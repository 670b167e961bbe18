# SPDX-License-Identifier: GPL-2.0-or-later
"""Switches one node on and off: starts its kernel, kills all its processes as a power cut does.

A node is a session of processes that starts with `nsenter` into the lab's network and `unshare`
into a process and mount namespace of its own. Killing that session is a true power cut: the
kernel ends everything in the process namespace with its first process, so no I/O helper of User
Mode Linux survives holding a disk's lock, and the node's mounts go with the mount namespace.
What it had written to its disk files stays, everything else is lost.
"""

from __future__ import annotations

import os
from enum import StrEnum

from sanctl.errors import CommandError, Problem, Refused
from sanctl.lab.machines import guest_files
from sanctl.lab.machines.lab_state import Lab, locked
from sanctl.lab.machines.process import Process, end_session, spawn, tail
from sanctl.lab.machines.spec import NodeSpec, Role

_SEED_BYTES = 512

# Arguments: NAME KERNEL-FOLDER IMAGE-FOLDER NODE-FOLDER MEMORY-MIB POST-SECONDS, then the kernel's.
_LAUNCH = r"""
set -eu
kernel=$1 image=$2 node=$3 memory=$4 post=$5
shift 5
if [ "$post" != 0 ]; then
    echo "power on, POST takes $post s"
    sleep "$post"
fi
tree=$(readlink -f "$kernel/tree")
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
mount -t tmpfs -o "mode=1777,size=$((memory + 64))m" tmpfs "$tree/tmp"
mount --bind "$node" "$tree/run/node"
mount --bind "$image" "$tree/run/image"
mount --bind "$kernel" "$tree/run/kernel"
export TMPDIR=/tmp HOME=/tmp
# When a guest reboots, User Mode Linux executes the name it was started by, with all its files
# still open: the taps among them, which would be busy. So by then that name is a program that only
# fails, and this loop starts the kernel again. A seed goes on its command line: the one on the
# config disk has been used.
while :; do
    ln -sf /run/kernel/linux "$node/started"
    (sleep 5; rm -f "$node/started"; cp /bin/false "$node/started") &
    seed=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    chroot "$tree" /run/node/started "$@" "seed=$seed" && break
    [ ! -L "$node/started" ] || exit 1
    echo "reboot"
done
echo "power off"
"""


class Power(StrEnum):
    """Whether a node has power."""

    ON = "on"
    OFF = "off"


def kernel_arguments(lab: Lab, node: NodeSpec) -> tuple[str, ...]:
    """Return the command line of a node's kernel."""
    spec = lab.spec
    disks = []
    if node.role is Role.STORAGE:
        disks = [f"ubd{k}=/run/node/disk{k}.raw" for k in range(1, spec.all_disks + 1)]
    if spec.sees_shared_disk(node):
        # Without the lock that would keep the others out.
        disks.append(f"ubd{guest_files.SHARED_DISK}c=/run/node/shared.raw")
    nics = [
        f"vec{number}:transport=tap,ifname={node.tap(network)},mac={node.mac(network)},"
        "depth=128,gro=1"
        for number, network in enumerate(node.networks)
    ]
    return (
        f"umid={node.name}",
        "uml_dir=/tmp/uml",
        f"mem={spec.memory_mib}M",
        "seccomp=on",
        "ubd0=/run/node/root.cow,/run/image/root.img",
        *disks,
        f"ubd{guest_files.CONFIG_DISK}r=/run/node/config.tar",
        # Shared by all nodes: read-only, and without the lock that would keep the others out.
        f"ubd{guest_files.MODULES_DISK}rc=/run/kernel/modules.img",
        *nics,
        "root=/dev/ubda",
        "rw",
        f"init={guest_files.INIT}",
        "con=null",
        "con0=null,fd:1",
        "console=tty0",
        "panic=5",
        "net.ifnames=0",
        "systemd.show_status=1",
        "TERM=dumb",
    )


def power(lab: Lab, node: NodeSpec) -> Power:
    """Return whether a node has power: from power on, POST included."""
    process = Process.load(lab.node_directory(node) / "pid")
    return Power.ON if process is not None and process.is_alive() else Power.OFF


def power_on(lab: Lab, node: NodeSpec, *, post_delay_s: float) -> None:
    """Switch a node on; it boots after its POST. A node that is on is left alone."""
    if not lab.is_up():
        raise Refused(
            Problem("SAN-LAB-004", f"lab {lab.name} is down", f"sanctl lab up --name {lab.name}")
        )
    folder = lab.node_directory(node)
    with locked(folder / "power.lock"):
        if power(lab, node) is Power.ON:
            return
        _write_config_disk(lab, node)
        # Only the latest boot and what followed it, plus the boot before: enough to look back.
        log = lab.console_log(node)
        if log.exists():
            log.replace(log.with_suffix(".previous.log"))
        process = spawn(
            [
                *lab.enter("unshare", "--mount", "--propagation", "private"),
                "--pid", "--fork", "--kill-child=SIGKILL",
                "sh", "-c", _LAUNCH, f"sanctl-lab-{node.name}",
                str(lab.kernel), str(lab.image), str(folder),
                str(lab.spec.memory_mib), f"{post_delay_s:g}",
                *kernel_arguments(lab, node),
            ],
            log=log,
        )  # fmt: skip
        process.save(folder / "pid")


def power_off(lab: Lab, node: NodeSpec) -> None:
    """Cut a node's power. Returns when no process of the node is left.

    Raises:
        CommandError: a process of the node survives.
    """
    folder = lab.node_directory(node)
    with locked(folder / "power.lock"):
        process = Process.load(folder / "pid")
        if process is not None and process.is_alive():
            end_session(process)
        (folder / "pid").unlink(missing_ok=True)
        _forget_running_state(lab, node)


def check_alive(lab: Lab, node: NodeSpec) -> None:
    """Check that a node which should be booting has not powered off.

    Raises:
        CommandError: the node is off; the end of its console is in the text.
    """
    if power(lab, node) is Power.OFF:
        raise CommandError(
            Problem(
                "SAN-LAB-014",
                f"{node.name} went off while booting; the end of its console:\n"
                + tail(lab.console_log(node)),
                f"sanctl lab logs {node.name} --name {lab.name}",
            )
        )


def _write_config_disk(lab: Lab, node: NodeSpec) -> None:
    folder = lab.node_directory(node)
    identity = guest_files.identity_files(
        lab.spec,
        node,
        machine_id=(folder / "machine-id").read_text().strip(),
        host_key=(folder / "ssh_host_ed25519_key").read_text(),
        host_public_key=(folder / "ssh_host_ed25519_key.pub").read_text(),
        login_key=(lab.directory / "id_ed25519.pub").read_text(),
    )
    packed = guest_files.config_disk(
        identity, guest_files.link_commands(node), os.urandom(_SEED_BYTES)
    )
    target = folder / "config.tar"
    target.touch(mode=0o600)
    target.write_bytes(packed)


def _forget_running_state(lab: Lab, node: NodeSpec) -> None:
    """Remove the files of state that ended with the node's power.

    The socket of the shared ssh connection is removed, so that no command waits on a dead one (its
    process ends when the keep-alives stay unanswered), and the markers of delayed or lossy links.
    """
    (lab.run_directory / f"ssh-{node.name}").unlink(missing_ok=True)
    for marker in lab.run_directory.glob(f"impaired-{node.name}-*"):
        marker.unlink()
