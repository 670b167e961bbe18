# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD through its own tools: drbdadm for what needs the resource file, drbdsetup for the rest.

drbdadm is given the one file of the resource that it is asked about: by itself it reads all of the
node, and fails when any of them is not as it should be (docs/adr/0045). drbdsetup talks to the
kernel at once. So the failover path (`primary`, `secondary`, `observe`) uses drbdsetup only.
"""

from __future__ import annotations

import contextlib
import os
import re

from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import OldRequest, ResourceState
from sanctl.parse.drbd import (
    Advance,
    Outstanding,
    parse_events2,
    parse_oldest_requests,
    parse_outstanding,
    parse_proc,
)
from sanctl.system.files import exists, is_folder, read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
#: drbdsetup's exit status for a resource that the kernel does not have (drbdsetup(8)).
_NO_SUCH_RESOURCE = 10
#: Where the agents write resource files.
RESOURCE_FILES = "/run/sanctl/drbd.d"
# Where drbd-utils keeps which file has which resource (registry.c).
_REGISTRY = "/run/drbd"
_DEBUG = "/sys/kernel/debug/drbd/resources"


def generation() -> int:
    """Return 8 or 9: which DRBD the running kernel has loaded.

    Raises:
        CommandError: DRBD is not loaded, or tells a version that sanctl does not know.
    """
    text = read_text_or("/sys/module/drbd/version", "")
    major = text.partition(".")[0].strip()
    if major not in {"8", "9"}:
        raise CommandError(
            Problem(
                "SAN-DRBD-001",
                f"DRBD 8.4 or 9 is not loaded (version read: {text.strip() or 'none'})",
                "modprobe drbd",
            )
        )
    return int(major)


def is_loaded() -> bool:
    """Whether the running kernel has DRBD; where not, no resource can be up."""
    return bool(read_text_or("/sys/module/drbd/version", ""))


def observe(runner: Runner, name: str) -> ResourceState | None:
    """Return what DRBD says about a resource here, or None when it is not up.

    Raises:
        CommandError: DRBD did not answer; nothing may be concluded from that.
    """
    if not is_loaded():
        return None
    done = runner.run(
        ["drbdsetup", "events2", "--now", "--statistics", name],
        timeout_s=_TIMEOUT_S,
        ok=(0, _NO_SUCH_RESOURCE),
    )
    return parse_events2(done.stdout).get(name)


def stands_alone(state: ResourceState) -> bool:
    """Whether DRBD has given a connection up, for somebody to begin it again."""
    # DRBD 8.4 forgets a connection that it has given up.
    return not state.peers or any(peer.connection == "StandAlone" for peer in state.peers)


def observe_all(runner: Runner) -> dict[str, ResourceState]:
    """Return what DRBD says about every resource here, by name.

    Raises:
        CommandError: DRBD did not answer.
    """
    if not is_loaded():
        return {}
    done = runner.run(["drbdsetup", "events2", "--now", "--statistics"], timeout_s=_TIMEOUT_S)
    return parse_events2(done.stdout)


def advances() -> dict[int, Advance]:
    """Return how far resyncs and verifies here have come, by minor; DRBD 9 does not tell."""
    return parse_proc(read_text_or("/proc/drbd", ""))


def oldest_requests(name: str) -> tuple[OldRequest, ...]:
    """Return the requests of hosts that wait longest; none where the kernel does not tell."""
    # Without debugfs, or where a locked-down kernel keeps it shut, nothing is known.
    return parse_oldest_requests(read_text_or(f"{_DEBUG}/{name}/volumes/0/oldest_requests", ""))


def outstanding(minor: int) -> Outstanding | None:
    """Return how many requests of a device are not answered; DRBD 9 does not tell."""
    return parse_outstanding(read_text_or("/proc/drbd", "")).get(minor)


def answered(minor: int) -> int:
    """Return how many requests of hosts have been answered since the device exists."""
    # Documentation/block/stat.rst: the first field of each kind is what was completed.
    fields = read_text_or(f"/sys/block/drbd{minor}/stat", "").split()
    return sum(int(fields[at]) for at in (0, 4, 11, 15) if at < len(fields))


def hold_resync(runner: Runner, minor: int, *, is_held: bool) -> None:
    """Hold the resync of a device back on this side, or let it run; either twice is fine."""
    runner.run(
        ["drbdsetup", "pause-sync" if is_held else "resume-sync", str(minor)],
        timeout_s=_TIMEOUT_S,
        ok=range(256),
    )


def invalidate(runner: Runner, minor: int) -> None:
    """Call all of this node's replica out of sync. Only ever for one that is no copy any more.

    Raises:
        CommandError: DRBD refused: a resync runs, or there is no disk.
    """
    runner.run(["drbdsetup", "invalidate", str(minor)], timeout_s=_TIMEOUT_S)


def verify(runner: Runner, minor: int) -> None:
    """Begin to compare the replicas, from their first block on.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    runner.run(["drbdsetup", "verify", str(minor), "--start=0s"], timeout_s=_TIMEOUT_S)


def verify_peer(runner: Runner, name: str, peer: int) -> None:
    """Begin to compare with one peer, from the first block on: DRBD 9, where each is its own.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    # Without a start it goes on where the last one ended.
    runner.run(["drbdsetup", "verify", name, str(peer), "0", "--start=0"], timeout_s=_TIMEOUT_S)


def send_differences(runner: Runner, name: str, peer: int) -> None:
    """Send a peer anew what a verify has just found to differ there, and no more: DRBD 9.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    runner.run(
        ["drbdsetup", "invalidate-remote", name, str(peer), "0", "--reset-bitmap=no"],
        timeout_s=_TIMEOUT_S,
    )


def configuration_of(name: str) -> str:
    """Return where the file lies that has drbdadm read one resource, and what is common to all.

    `new-resource` and `new-minor` put it down as the one that DRBD's handlers are to read, until
    the resource is down (drbdadm_main.c and registry.c of drbd-utils).
    """
    return f"{RESOURCE_FILES}/{name}.conf"


def _adm(name: str, *words: str) -> list[str]:
    path = configuration_of(name)
    # A replica that an older release has started has none, until its file is written again.
    only = ["--config-file", path] if exists(path) else []
    return ["drbdadm", *only, *words, name]


def register(name: str, minor: int) -> None:
    """Have DRBD's handlers read that file of a resource that is up, if they do not.

    One that an older release has started is registered with all of the node's files, and one whose
    drbdadm was killed too early not at all.

    Raises:
        OSError: it could not be put down.
    """
    path = configuration_of(name)
    if not is_folder(_REGISTRY) or not exists(path):
        return  # drbdadm has put down nothing yet on this node, and does it for the first one.
    for link in (f"{_REGISTRY}/drbd-{it}.conf" for it in (f"resource-{name}", f"minor-{minor}")):
        with contextlib.suppress(OSError):
            if os.readlink(link) == path:
                continue
        # Never without, as a handler may be called at any moment.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{link}.new")
        os.symlink(path, f"{link}.new")
        os.replace(f"{link}.new", link)


def create_metadata(runner: Runner, name: str, *, kernel_generation: int) -> None:
    """Write new metadata: the replica is Inconsistent and has never held data.

    DRBD 9 gets room for all four copies from the start: an attached resource cannot grow it.
    """
    peers = ["--max-peers=3"] if kernel_generation >= 9 else []
    runner.run(_adm(name, "create-md", "--force", *peers), timeout_s=120.0, stdin="yes\nyes\n")


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
    found = re.search(r"^la-size-sect (\d+);", dump, re.MULTILINE)
    if not found:
        raise CommandError(
            Problem("SAN-DRBD-002", f"the metadata on {metadata_device} tells no size")
        )
    return int(found[1]) * 512


def up(runner: Runner, name: str) -> None:
    """Attach and connect, or bring what is up in line with the resource file."""
    runner.run(_adm(name, "adjust"), timeout_s=_TIMEOUT_S)


def up_alone(runner: Runner, name: str, minor: int) -> None:
    """Attach the only replica of a resource, or bring it in line with being that.

    DRBD 8.4's drbdadm adjusts nothing whose file names no peer (tried with 9.22), so it is done
    step by step there. Making what exists is fine (drbdsetup-8.4(8)). Without fencing, because a
    Primary that has nobody to lose has nobody to ask about; an attach needs no peer then, either.

    Raises:
        CommandError: refused.
    """
    if generation() >= 9:
        up(runner, name)
        return
    runner.run(_adm(name, "new-resource"), timeout_s=_TIMEOUT_S)
    runner.run(_adm(name, "new-minor"), timeout_s=_TIMEOUT_S)
    state = observe(runner, name)
    if state is None or state.disk == "Diskless":
        runner.run(_adm(name, "attach"), timeout_s=_TIMEOUT_S)
    else:
        runner.run(
            ["drbdsetup", "disk-options", str(minor), "--fencing=dont-care"], timeout_s=_TIMEOUT_S
        )


def set_flushing(runner: Runner, minor: int, *, on: bool) -> None:
    """Have the local disk flushed between writes that depend on each other, or only drained.

    Of a disk that is attached, at any moment (drbdsetup-8.4(8), disk-flushes).

    Raises:
        CommandError: refused, or no disk is attached.
    """
    word = "yes" if on else "no"
    runner.run(
        ["drbdsetup", "disk-options", str(minor), f"--disk-flushes={word}"], timeout_s=_TIMEOUT_S
    )


def hold_without_two(runner: Runner, name: str) -> None:
    """Have DRBD 9 freeze a Primary's I/O while fewer than two copies are connected and UpToDate.

    By its quorum: it is judged anew in the change of state in which a copy is lost, so before
    another write ends (drbd_state.c, calc_quorum; drbdsetup-9.0(8), quorum-minimum-redundancy).
    What is so already when this is called freezes nothing.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(
        ["drbdsetup", "resource-options", name, "--quorum-minimum-redundancy=2"],
        timeout_s=_TIMEOUT_S,
    )


def release_without_two(runner: Runner, name: str, *, copies: int) -> None:
    """Let a majority of the copies be enough again, also for I/O that is frozen now.

    DRBD 9.3.3 judges that anew only where `quorum` changes (drbd_main.c, set_resource_options): so
    it is the majority's number for a moment, which is never less than the majority.

    Args:
        runner: starts drbdsetup.
        name: of the resource; one that is not up is fine.
        copies: how many replicas the device has.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    for quorum in (str(copies // 2 + 1), "majority"):
        runner.run(
            ["drbdsetup", "resource-options", name,
             "--quorum-minimum-redundancy=off", f"--quorum={quorum}"],
            timeout_s=_TIMEOUT_S,
            ok=(0, _NO_SUCH_RESOURCE),
        )  # fmt: skip


def attach(runner: Runner, name: str, minor: int) -> None:
    """Attach without connecting: for a replica that must not be compared with its peer.

    Raises:
        CommandError: refused; or the minor is another's, whose disk it would become.
    """
    state = observe(runner, name)
    if state is not None and state.disk != "Diskless":
        return
    for part in ("new-resource", "new-minor"):
        # One that is there is refused, which is fine.
        runner.run(_adm(name, part), timeout_s=_TIMEOUT_S, ok=range(256))
    state = observe(runner, name)
    if state is None or state.minor != minor:
        # DRBD 8.4 attaches to a minor, whosever it is.
        raise CommandError(
            Problem(
                "SAN-DRBD-004",
                f"{name} does not have minor {minor} on this node",
                "'drbdsetup status' shows what is up; it may be what was left of a deleted device",
            )
        )
    runner.run(_adm(name, "attach"), timeout_s=_TIMEOUT_S)


def drop_disk(runner: Runner, minor: int) -> None:
    """Detach from a disk that has failed, as DRBD does at an error: without waiting for it.

    Raises:
        CommandError: refused.
    """
    runner.run(["drbdsetup", "detach", str(minor), "--force"], timeout_s=_TIMEOUT_S)


def cut(runner: Runner, name: str) -> None:
    """End the connections as a broken link would: a Primary that loses its peer so is frozen."""
    runner.run(_adm(name, "disconnect", "--force"), timeout_s=_TIMEOUT_S)


def down(runner: Runner, name: str) -> None:
    """Disconnect and detach; what is down already is fine."""
    runner.run(["drbdsetup", "down", name], timeout_s=_TIMEOUT_S, ok=(0, _NO_SUCH_RESOURCE))


def disconnect(runner: Runner, name: str) -> None:
    """End the connections; ones that have ended are fine."""
    runner.run(_adm(name, "disconnect"), timeout_s=_TIMEOUT_S, ok=range(256))


def disconnect_peer(runner: Runner, name: str, node_id: int) -> None:
    """End the connection to one peer of DRBD 9; one that has ended is fine (drbdsetup-9.0(8)).

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(["drbdsetup", "disconnect", name, str(node_id)], timeout_s=_TIMEOUT_S)


def forget_peer(runner: Runner, name: str, node_id: int) -> None:
    """Free what the metadata of DRBD 9 keep for a peer; of one that they do not know, nothing.

    They have room for three peers. What is kept of one that is gone takes a place, and says what
    to send of other data should a node of that number ever come again (drbdsetup-9.0(8)).

    Raises:
        CommandError: it is still configured, or DRBD did not answer.
    """
    runner.run(["drbdsetup", "forget-peer", name, str(node_id)], timeout_s=_TIMEOUT_S)


def connect_discarding(runner: Runner, name: str) -> None:
    """Connect, with leave to overwrite what this replica has if the replicas have diverged.

    Of replicas that have not diverged DRBD resyncs the older one, whatever is asked here
    (drbdsetup-8.4(8), --discard-my-data).
    """
    runner.run(_adm(name, "connect", "--discard-my-data"), timeout_s=_TIMEOUT_S)


def call_up_to_date(runner: Runner, name: str, minor: int) -> None:
    """Declare a replica that knows it is behind to be good: what the peer had is given up."""
    runner.run(["drbdsetup", "primary", _subject(name, minor), "--force"], timeout_s=_TIMEOUT_S)
    secondary(runner, name, minor, timeout_s=_TIMEOUT_S)


def _subject(name: str, minor: int) -> str:
    """Return what drbdsetup changes the role of: 8.4 takes a minor, 9 a resource."""
    return name if generation() >= 9 else str(minor)


def primary(runner: Runner, name: str, minor: int, *, timeout_s: float) -> None:
    """Make this node Primary; DRBD calls the fence-peer handler first where it has to.

    Raises:
        CommandError: refused, or not done in time.
    """
    runner.run(["drbdsetup", "primary", _subject(name, minor)], timeout_s=timeout_s)


def secondary(runner: Runner, name: str, minor: int, *, timeout_s: float) -> None:
    """Make this node Secondary; a resource that is not up is fine.

    Raises:
        CommandError: somebody holds the device open, or I/O hangs.
    """
    runner.run(
        ["drbdsetup", "secondary", _subject(name, minor)],
        timeout_s=timeout_s,
        ok=(0, _NO_SUCH_RESOURCE),
    )


def skip_initial_sync(runner: Runner, minor: int) -> None:
    """Declare two new, zero-filled, connected replicas to be the same, and UpToDate.

    DRBD itself refuses unless both have never held data (drbdsetup-8.4(8), new-current-uuid).
    """
    runner.run(
        ["drbdsetup", "new-current-uuid", "--clear-bitmap=yes", str(minor)], timeout_s=_TIMEOUT_S
    )


def resize(runner: Runner, minor: int, *, has_peers: bool) -> None:
    """Let the device grow to what the smallest replica now has.

    `assume-clean`, because both files grew by a hole: the new part reads as zeros on every
    replica, and nothing has to be sent. Without a peer DRBD 8.4 refuses that ("Protocol version 93
    required"), and grows only when it is told not to mind one (drbdsetup-8.4(8), resize): without
    the option it says yes and keeps its size.
    """
    assumed = "--assume-clean=yes" if has_peers else "--assume-peer-has-space=yes"
    runner.run(["drbdsetup", "resize", str(minor), assumed], timeout_s=_TIMEOUT_S)


def check_resource_file(runner: Runner, path: str) -> None:
    """Let drbdadm parse a resource file that is not in use yet.

    Raises:
        CommandError: it does not parse.
    """
    runner.run(["drbdadm", "--config-file", path, "dump", "all"], timeout_s=_TIMEOUT_S)
