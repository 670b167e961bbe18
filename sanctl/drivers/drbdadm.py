# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD commands that need the resource file: adjust, attach, connect, create-md (drbdadm(8)).

drbdadm is given the one file of the resource that the command is about: by itself it reads all
files of the node, and fails when any of them is not as it should be (docs/adr/0045). Commands that
talk to the kernel alone, and all of the failover path, are in sanctl/drivers/drbdsetup.py.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping

from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PEERS_OF_DRBD_9, ResourceState
from sanctl.system import state_files
from sanctl.system.files import exists, is_folder
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
_ADJUST_ATTEMPTS = 3
_GAVE_UP = "did not terminate within"
_LAST_SIZE = re.compile(r"^la-size-sect (\d+);", re.MULTILINE)
#: Where the agents write resource files.
RESOURCE_FILES = state_files.drbd_folder()
# Where drbd-utils keeps which file has which resource (registry.c).
_REGISTRY = "/run/drbd"


def config_path(name: str) -> str:
    """Return the path of the file that drbdadm reads for one resource: it includes the others.

    The file names one resource file and what is common to all. `new-resource` and `new-minor`
    register it as the file that DRBD's handlers read, until the resource is down (drbdadm_main.c
    and registry.c of drbd-utils).
    """
    return f"{RESOURCE_FILES}/{name}.conf"


def _argv(name: str, *words: str) -> list[str]:
    path = config_path(name)
    # A replica that an older release has started has no such file until its agent writes it.
    only = ["--config-file", path] if exists(path) else []
    return ["drbdadm", *only, *words, name]


def registry_links(name: str, minor: int) -> list[str]:
    """Return the links by which DRBD's handlers find the file of a resource."""
    return [f"{_REGISTRY}/drbd-{each}.conf" for each in (f"resource-{name}", f"minor-{minor}")]


def register_config(name: str, minor: int) -> None:
    """Have DRBD's handlers read the file of this resource alone, where they do not yet.

    A resource that an older release has started is registered with all of the node's files; a
    resource whose drbdadm was killed too early is not registered at all.

    Raises:
        OSError: the registration could not be written.
    """
    path = config_path(name)
    if not is_folder(_REGISTRY) or not exists(path):
        return  # drbdadm has registered nothing yet on this node, and does so for the first one.
    for link in registry_links(name, minor):
        with contextlib.suppress(OSError):
            if os.readlink(link) == path:
                continue
        # Replaced in one step, as the kernel may call a handler at any moment.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{link}.new")
        os.symlink(path, f"{link}.new")
        os.replace(f"{link}.new", link)


def create_metadata(
    runner: Runner, name: str, metadata_device: str, *, kernel_generation: int
) -> None:
    """Write new metadata: the replica is Inconsistent and has never held data.

    Nothing may use `metadata_device`, the loop device over the replica's metadata file: drbdmeta
    writes there all the same.

    For DRBD 8.4 drbdmeta is started alone. drbdadm starts it three times, and each of them
    drbdsetup: to ask whether the minor is attached, and to write a random number for LINBIT's
    usage count, which nothing else reads (drbdadm_usage_cnt.c, adm_create_md).

    DRBD 9 gets room for all four replicas from the start: an attached resource cannot grow it.
    """
    if kernel_generation >= 9:
        argv = _argv(name, "create-md", "--force", f"--max-peers={PEERS_OF_DRBD_9}")
    else:
        argv = ["drbdmeta", "--force", "-", "v08", metadata_device, "flex-external", "create-md"]
    runner.run(argv, timeout_s=120.0, stdin="yes\nyes\n")


def recorded_size_bytes(runner: Runner, metadata_device: str, *, kernel_generation: int) -> int:
    """Return the size that detached metadata records for its replica (`la-size-sect`).

    Raises:
        CommandError: there is no metadata there, or it is in use.
    """
    layout = "v09" if kernel_generation >= 9 else "v08"
    # --force: after a crash the activity log is not applied yet, which does not touch the size.
    dump = runner.run(
        ["drbdmeta", "--force", "-", layout, metadata_device, "flex-external", "dump-md"],
        timeout_s=_TIMEOUT_S,
    ).stdout
    found = _LAST_SIZE.search(dump)
    if not found:
        raise CommandError(
            Problem("SAN-DRBD-002", f"the metadata on {metadata_device} records no size")
        )
    return int(found[1]) * 512


def adjust(runner: Runner, name: str) -> None:
    """Attach and connect, or bring a resource that is up in line with the resource file.

    Tried again where drbdadm gave up a step of it: it allows each drbdsetup five seconds, which is
    little while many devices are started, and leaves that drbdsetup running (m_system_ex in
    drbdadm_main.c). The next attempt finds what is done, or fails beside the one that still runs.

    Raises:
        CommandError: refused, or not done in time.
    """
    is_repeated = False
    for attempts_left in reversed(range(_ADJUST_ATTEMPTS)):
        try:
            runner.run(_argv(name, "adjust"), timeout_s=_TIMEOUT_S)
        except CommandError as error:
            is_repeated = is_repeated or _GAVE_UP in str(error)
            if not attempts_left or not is_repeated:
                raise
        else:
            return


def adjust_single_replica(runner: Runner, name: str, minor: int) -> None:
    """Attach the only replica of a resource, or bring a resource in line with having one.

    DRBD 8.4's drbdadm adjusts nothing whose file names no peer (tried with 9.22), so it is done
    step by step there. Making a resource or minor that exists is fine (drbdsetup-8.4(8)). Fencing
    is off, because a Primary without a peer has no peer to ask about; an attach needs no peer then
    either.

    Raises:
        CommandError: refused.
    """
    if drbd_kernel.generation() >= 9:
        adjust(runner, name)
        return
    runner.run(_argv(name, "new-resource"), timeout_s=_TIMEOUT_S)
    runner.run(_argv(name, "new-minor"), timeout_s=_TIMEOUT_S)
    state = drbdsetup.observe(runner, name)
    if state is None or state.disk == "Diskless":
        runner.run(_argv(name, "attach"), timeout_s=_TIMEOUT_S)
    else:
        runner.run(
            ["drbdsetup", "disk-options", str(minor), "--fencing=dont-care"], timeout_s=_TIMEOUT_S
        )


def attach(
    runner: Runner, name: str, minor: int, *, bitmaps_for: Mapping[str, int] | None = None
) -> None:
    """Attach without connecting: for a replica that must not be compared with its peer.

    DRBD 9 is to have a bitmap for each peer of `bitmaps_for`, which has their node ids.

    Raises:
        CommandError: refused; or the minor belongs to another resource, whose disk this would be.
    """
    state = drbdsetup.observe(runner, name)
    if state is not None and state.disk != "Diskless":
        _delete_unconnected(runner, state, bitmaps_for or {})
        return
    for command in ("new-resource", "new-minor"):
        # Refused where the resource or the minor exists, which is fine.
        runner.run(_argv(name, command), timeout_s=_TIMEOUT_S, ok=range(256))
    state = drbdsetup.observe(runner, name)
    if state is None or state.minor != minor:
        # DRBD 8.4 attaches to a minor, whichever resource it belongs to.
        raise CommandError(
            Problem(
                "SAN-DRBD-004",
                f"{name} does not have minor {minor} on this node",
                "'drbdsetup status' shows what is up; it may be what was left of a deleted device",
            )
        )
    # DRBD 9 gives a bitmap to each peer that it knows when it attaches, or when it connects.
    known = {peer.name for peer in state.peers}
    for node, node_id in (bitmaps_for or {}).items():
        if node not in known:
            drbdsetup.new_peer(runner, name, node_id, node)
    runner.run(_argv(name, "attach"), timeout_s=_TIMEOUT_S)
    state = drbdsetup.observe(runner, name)
    if state is not None:
        _delete_unconnected(runner, state, bitmaps_for or {})


def make_peers_known(runner: Runner, name: str) -> str:
    """Have DRBD 9 know the peers that the resource file names, and connect to none (StandAlone).

    DRBD tells a replica's generations towards a peer that it knows, and in no other way. What is
    left is what `adjust` leaves that ends before it connects. Known ones are refused, which is
    fine; returns what drbdadm has said of those and of others, in one line.

    Raises:
        CommandError: drbdadm did not answer.
    """
    refused = []
    for command in ("new-peer", "new-path"):
        done = runner.run(_argv(name, command), timeout_s=_TIMEOUT_S, ok=range(256))
        if done.status != 0:
            said = " ".join(done.stderr.split())
            refused.append(f"{command}: exit status {done.status}{said and f', {said}'}")
    return "; ".join(refused)


def _delete_unconnected(runner: Runner, state: ResourceState, nodes: Mapping[str, int]) -> None:
    for peer in state.peers:
        if peer.name in nodes and peer.connection == "StandAlone":
            drbdsetup.delete_peer(runner, state.name, nodes[peer.name])


def disconnect(runner: Runner, name: str) -> None:
    """End all connections of a resource; connections that have ended are fine."""
    runner.run(_argv(name, "disconnect"), timeout_s=_TIMEOUT_S, ok=range(256))


def force_disconnect(runner: Runner, name: str) -> None:
    """End all connections as a broken link would: a Primary that loses its peer so is frozen."""
    runner.run(_argv(name, "disconnect", "--force"), timeout_s=_TIMEOUT_S)


def connect(runner: Runner, name: str) -> None:
    """Connect a resource to its peers again; nothing else of it is adjusted.

    Raises:
        CommandError: refused, as where it is connected or connecting already.
    """
    runner.run(_argv(name, "connect"), timeout_s=_TIMEOUT_S)


def connect_discarding(runner: Runner, name: str) -> None:
    """Connect, and allow DRBD to overwrite this replica if the replicas have diverged.

    Where the replicas have not diverged DRBD resyncs the older one, whatever is asked here
    (drbdsetup-8.4(8), --discard-my-data).
    """
    runner.run(_argv(name, "connect", "--discard-my-data"), timeout_s=_TIMEOUT_S)
