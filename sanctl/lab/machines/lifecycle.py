# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates, boots, stops and destroys a whole laboratory; one node's power is in node_power."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from threading import Event

import sanctl
from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.machines import (
    apt,
    guest_files,
    image,
    kernel,
    lab_state,
    network,
    node_power,
    process,
    requirements,
)
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.node_power import Power
from sanctl.lab.machines.progress import Progress
from sanctl.lab.machines.spec import EXT4, LabSpec, NodeSpec, Role
from sanctl.system.runner import LocalRunner, Runner

_BOOT_DEADLINE_S = 180.0
_BOOT_POLL_S = 1.0
_SYNC_DEADLINE_S = 8.0
_KEYGEN_DEADLINE_S = 20.0


def create(
    wanted: LabSpec,
    progress: Progress,
    *,
    own_kernel: Path | None = None,
    own_modules: Path | None = None,
    runner: Runner | None = None,
) -> Lab:
    """Make a laboratory's files: image, kernel, disks, keys. Nothing is started.

    A laboratory of that name that exists already is returned as it is.

    Raises:
        UsageError, Refused, ConfigError, CommandError: see their problems; nothing was left.
    """
    runner = runner or LocalRunner()
    facts = requirements.require(wanted)
    source = apt.host_source(facts.codename, runner)
    with progress.step("kernel") as tick:
        kernel_folder = kernel.ensure(
            wanted.release, source, runner, tick, own_kernel=own_kernel, own_modules=own_modules
        )
    with progress.step(f"node image ({wanted.release})") as tick:
        image_folder = image.ensure(wanted.release, source, runner, tick)
    lab = Lab(spec=wanted, image=image_folder, kernel=kernel_folder)
    try:
        with progress.step("disks and keys"):
            _make_files(lab, runner)
    except BaseException:
        shutil.rmtree(lab.directory, ignore_errors=True)
        raise
    return lab


def start(lab: Lab, progress: Progress, *, runner: Runner | None = None) -> None:
    """Boot every node that is off and wait until all answer over ssh.

    If this fails, the processes it started are ended again.

    Raises:
        CommandError, NotConverged: a node did not boot; its console's last lines are in the text.
        Refused: too little memory.
    """
    runner = runner or LocalRunner()
    off = [node for node in lab.machines if node_power.power(lab, node) is Power.OFF]
    requirements.require_memory(len(off), lab.spec.memory_mib)
    was_up = lab.is_up()
    try:
        with lab_state.locked(_lock_of(lab)):
            lab.run_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not lab.is_up():
                network.create(lab, runner)
            for node in lab.machines:
                if node.has_bmc:
                    _start_bmc(lab, node)
            begin = time.monotonic()
            for node in off:
                node_power.power_on(lab, node, post_delay_s=0)
        _wait_for_boot(lab, progress, runner, begin)
    except BaseException:
        if was_up:
            for node in off:
                node_power.power_off(lab, node)
        else:
            stop(lab, runner=runner, sync=False)
        raise


def stop(lab: Lab, *, runner: Runner | None = None, sync: bool = True) -> None:
    """End all processes and networks of a laboratory. Its disks stay.

    Nodes run `sync` first, unless `sync` is false: `sanctl lab down` is no power cut.
    """
    runner = runner or LocalRunner()
    if sync and lab.is_up():
        _sync_all(lab, runner)
    with lab_state.locked(_lock_of(lab)):
        # BMCs, shared ssh connections, nodes, and any other process in the namespace: first, as a
        # BMC may be about to switch a node on again.
        process.end_namespace(lab.namespace_path)
        for node in lab.machines:
            node_power.power_off(lab, node)
        network.delete(lab, runner)
        shutil.rmtree(lab.run_directory, ignore_errors=True)


def destroy(lab: Lab, *, runner: Runner | None = None) -> None:
    """End a laboratory and remove its disks and keys. The cached image stays."""
    stop(lab, runner=runner, sync=False)
    shutil.rmtree(lab.directory)


def leftovers(name: str) -> list[str]:
    """Return every process, mount and namespace left of a laboratory; empty after `stop`."""
    found = []
    namespace = Path(f"/run/netns/sanctl-{name}")
    if namespace.exists():
        found.append(f"network namespace {namespace}")
        found += [f"process {pid} in it" for pid in process.namespace_members(namespace)]
    folder = str(lab_state.STATE_ROOT / name) + "/"
    for pid in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (pid / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if folder in command and int(pid.name) != os.getpid():
                found.append(f"process {pid.name}: {command.strip()}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if folder in line]
    return found


def _make_files(lab: Lab, runner: Runner) -> None:
    # An empty folder is left by a removal. One with files may be another command's, at work.
    with suppress(OSError):
        lab.directory.rmdir()
    lab.directory.mkdir(parents=True, mode=0o700)
    lab.bmc_password_file.touch(mode=0o600)
    # IPMI 2.0 allows 20 bytes.
    lab.bmc_password_file.write_text(secrets.token_hex(8) + "\n")
    _keygen(lab.directory / "id_ed25519", f"lab {lab.name}", runner)
    host_keys = {}
    for node in lab.machines:
        folder = lab.node_directory(node)
        folder.mkdir(parents=True, mode=0o700)
        _keygen(folder / "ssh_host_ed25519_key", node.name, runner)
        host_keys[node.name] = (folder / "ssh_host_ed25519_key.pub").read_text().strip()
        (folder / "machine-id").write_text(secrets.token_hex(16) + "\n")
        if node.role is Role.STORAGE:
            for number, (label, _) in enumerate(guest_files.data_mounts(lab.spec), start=1):
                is_made_here = lab.spec.filesystem == EXT4
                if (number == 1 and lab.spec.has_flash) or not is_made_here:
                    _make_blank(folder / f"disk{number}.raw", lab.spec.disk_mib)
                    continue
                image.make_ext4(
                    None,
                    folder / f"disk{number}.raw",
                    size_mib=lab.spec.disk_mib,
                    label=label,
                    runner=runner,
                )
            if lab.spec.has_flash:
                _make_blank(folder / f"disk{lab.spec.all_disks}.raw", lab.spec.flash_mib)
        if lab.spec.sees_shared_disk(node):
            # A hard link in each node's folder: a node sees no other folder.
            shared = lab.directory / "shared.raw"
            if not shared.exists():
                _make_blank(shared, lab.spec.shared_mib)
            os.link(shared, folder / "shared.raw")
    lab_state.write_ssh_config(lab, host_keys)
    lab_state.save(lab)


def _make_blank(path: Path, size_mib: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_mib * 2**20)


def _keygen(path: Path, comment: str, runner: Runner) -> None:
    runner.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)],
        timeout_s=_KEYGEN_DEADLINE_S,
    )


def _start_bmc(lab: Lab, node: NodeSpec) -> None:
    pid_file = lab.run_directory / f"bmc-{node.name}.pid"
    running = process.Process.load(pid_file)
    if running is not None and running.is_alive():
        return
    package_root = str(Path(sanctl.__file__).parent.parent)
    process.spawn(
        lab.enter(sys.executable, "-m", "sanctl.lab.machines.bmc", lab.name, node.name),
        log=lab.node_directory(node) / "bmc.log",
        env={"PYTHONPATH": package_root},
    ).save(pid_file)


def _wait_for_boot(lab: Lab, progress: Progress, runner: Runner, begin: float) -> None:
    nodes = lab.machines
    with progress.nodes("boot", [node.name for node in nodes]) as done:

        def boot(node: NodeSpec, abandoned: Event) -> None:
            _wait_for_node(lab, node, runner, begin + _BOOT_DEADLINE_S, abandoned)
            done(node.name, f"{time.monotonic() - begin:.0f} s")

        _for_each(nodes, boot)


def _wait_for_node(
    lab: Lab, node: NodeSpec, runner: Runner, deadline: float, abandoned: Event
) -> None:
    # `running` and `degraded` both mean that systemd has nothing left to start.
    asked = lab.ssh_argv(
        node, "systemctl is-system-running --wait", options=("-o", "ConnectTimeout=2")
    )
    last = "nothing answered"
    while time.monotonic() < deadline and not abandoned.is_set():
        node_power.check_alive(lab, node)
        with suppress(CommandError):
            left_s = max(1.0, deadline - time.monotonic())
            answer = runner.run(asked, timeout_s=left_s, ok=(0, 1, 255))
            last = (answer.stdout + answer.stderr).strip()
            if answer.stdout.strip() in ("running", "degraded"):
                return
        abandoned.wait(_BOOT_POLL_S)
    raise NotConverged(
        Problem(
            "SAN-LAB-015",
            f"{node.name} did not finish booting in {_BOOT_DEADLINE_S:g} s ({last}); "
            f"the end of its console:\n" + process.tail(lab.console_log(node)),
            f"sanctl lab logs {node.name} --name {lab.name}",
        )
    )


def _sync_all(lab: Lab, runner: Runner) -> None:
    def sync(node: NodeSpec, _abandoned: Event) -> None:
        if node_power.power(lab, node) is Power.ON:
            with suppress(CommandError):
                runner.run(
                    lab.ssh_argv(node, "sync", options=("-o", "ConnectTimeout=2")),
                    timeout_s=_SYNC_DEADLINE_S,
                )

    _for_each(lab.machines, sync)


def _for_each(nodes: tuple[NodeSpec, ...], work: Callable[[NodeSpec, Event], None]) -> None:
    """Run a function for all nodes in parallel; the first failure or interrupt ends the rest."""
    abandoned = Event()
    pool = ThreadPoolExecutor(max_workers=len(nodes))
    try:
        for finished in as_completed([pool.submit(work, node, abandoned) for node in nodes]):
            finished.result()
    finally:
        abandoned.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _lock_of(lab: Lab) -> Path:
    return lab_state.RUN_ROOT / f".{lab.name}.lock"
