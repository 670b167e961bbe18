# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps hosts out of a device after the whole cluster was started anew, until that is decided.

Only of a device with the parameter `awaits` (docs/adr/0073). A start and a promotion that find
nobody who says that hosts are let in close the access list, and monitors keep it closed. What a
node knows it notes on tmpfs, with the run of the cluster software in which it holds, so that a
failover reads one file; and it publishes that with the replica's state, for a node that starts
later. Where an answer is missing hosts stay out, and the next monitor looks again.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

from sanctl.agents.fencing import cluster_run, joined_peers
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, gate, lio, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.admission import HELD_KEY, LET_IN_KEY, held_word, run_word, says_of_hosts
from sanctl.model.packed_states import STATES_ATTRIBUTE, unpack
from sanctl.plan.site.admission import Evidence, is_let_in, is_said_by_another
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_PUBLISHED = "admission"
#: Less than the interval of monitors; each device has one.
_ASK_S = 8.0
_TIMEOUT_S = 5.0
#: As long as other nodes' attributes take to arrive here, and a little more.
_JOIN_S, _LOOK_S = 4.0, 0.5


def wait_for_others(runner: Runner, device: Device) -> None:
    """Wait for what other members say of hosts, before a start of a device that awaits sites.

    Just started, this node does not have what they publish; and one that goes on may be gone a
    moment later. All starts here wait for the same few seconds after the first one.
    """
    if not device.awaits:
        return
    begun = state_files.of_node("admission-begun")
    latest_s = time.monotonic() + _JOIN_S
    try:
        state_files.make_folder()
        run = cluster_run.here()
        noted = _note(device).read()
        if not run or is_let_in(Evidence(run, noted, device.released, serves_hosts=False)):
            return
        if begun.read() != run:
            begun.write(run)
        while (
            time.monotonic() < latest_s
            and 0 <= (begun.age_s() or 0.0) < _JOIN_S
            and any(_is_silent(runner, device.name, node) for node in _others(device))
        ):
            time.sleep(_LOOK_S)
    except (SanctlError, OSError):
        # The start decides by what there is.
        return


def _is_silent(runner: Runner, name: str, node: str) -> bool:
    """Whether a member that takes part in Pacemaker has said nothing of hosts at a device yet."""
    try:
        states = unpack(node_attributes.query(runner, STATES_ATTRIBUTE, node))
    except SanctlError:
        return True
    return not says_of_hosts(states.get(name, "")) and joined_peers.has_joined(
        cib.node_state(runner, node)
    )


def at_start(runner: Runner, device: Device) -> Device:
    """Return the device as a start makes it: with nobody on its access list, if that is open."""
    return _known(runner, device, serves_hosts=False) if device.awaits else device


def at_promotion(runner: Runner, device: Device) -> Device:
    """Return the device as a promotion serves it. Where it serves hosts already it goes on."""
    if not device.awaits:
        return device
    seen = _seen(device)
    return _known(runner, device, serves_hosts=seen is not None and seen.serves_hosts)


def while_up(runner: Runner, device: Device) -> Device:
    """Return the device as a replica that is up has it. A list that has entries is not closed.

    They are of before the cluster software was started here, or of before the setting; a promotion
    closes such a list, if it has to. Nor is one that cannot be read, unless it is known what is to
    be in it: hosts may be at work.
    """
    if not device.awaits:
        with contextlib.suppress(OSError):
            _published(device.name).remove()
        return device
    seen = _seen(device)
    found = _known(runner, device, serves_hosts=seen is not None and seen.serves_hosts)
    if found.held and (seen is None or seen.has_entries):
        with contextlib.suppress(OSError):
            _published(device.name).remove()
        return device._replace(leaves_list=seen is None)
    return found


def published_field(name: str) -> str:
    """Return what is published of it with the replica's state; empty: the device awaits nothing."""
    word = _published(name).read()
    return f" {word}" if word else ""


def note_reason(name: str, why: str) -> None:
    """Note why hosts are kept out; the next monitor publishes it. It is for people alone."""
    with contextlib.suppress(OSError):
        if _reason(name).read() != why:
            _reason(name).write(why)


def ask_if_held(runner: Runner, device: Device) -> None:
    """Have the sites asked, at once and with each monitor, while hosts are kept out."""
    if not device.held:
        return
    asked = state_files.of_node("sites-asked-held")
    with contextlib.suppress(SanctlError, OSError):
        age_s = asked.age_s()
        if age_s is not None and 0 <= age_s < _ASK_S:
            return
        runner.run(
            ["systemctl", "start", "--no-block", "sanctl-sites.service"], timeout_s=_TIMEOUT_S
        )
        asked.write()


def _known(runner: Runner, device: Device, *, serves_hosts: bool) -> Device:
    run, known = "", False
    try:
        run = cluster_run.here()
        noted = _note(device).read()
        known = is_let_in(Evidence(run, noted, device.released, serves_hosts))
        if not known:
            known = _is_said_by_another(runner, device)
        if known and run and noted != run:
            # Without room for it each action asks.
            with contextlib.suppress(OSError):
                _note(device).write(run)
    except (SanctlError, OSError):
        known = known or serves_hosts
    found = (
        device._replace(is_let_in=True)
        if known
        else device.held_back(held_word(run, _reason_of(device.name)))
    )
    _write_published(found, run)
    return found


def _is_said_by_another(runner: Runner, device: Device) -> bool:
    return is_said_by_another(
        device.name,
        (node_attributes.query(runner, STATES_ATTRIBUTE, node) for node in _others(device)),
    )


def _others(device: Device) -> list[str]:
    return sorted(set(device.nodes) - {os.uname().nodename})


class _Seen(NamedTuple):
    """What the kernel has of a device: entries in its access list; with DRBD below the gate."""

    has_entries: bool
    serves_hosts: bool


def _seen(device: Device) -> _Seen | None:
    """Return what the kernel has of a device; None: it could not be read, which is logged."""
    try:
        has_entries = bool(lio.access(device.name))
        return _Seen(has_entries, has_entries and gate.gate_table(device.name).startswith("drbd"))
    except (SanctlError, OSError) as error:
        journal.write(
            f"{device.name}: whether hosts are served here could not be read: {error}",
            priority=journal.ERROR,
            device=device.name,
            action="access-list",
        )
        return None


def _write_published(device: Device, run: str) -> None:
    word = f"{HELD_KEY}={device.held}" if device.held else f"{LET_IN_KEY}={run_word(run)}"
    file = _published(device.name)
    try:
        if file.read() != word:
            file.write(word)
    except OSError:
        with contextlib.suppress(OSError):
            file.remove()


def _reason_of(name: str) -> str:
    with contextlib.suppress(OSError):
        return _reason(name).read()
    return ""


def _note(device: Device) -> state_files.StateFile:
    # Of the node: it outlives a stop of the replica, but not the run that it names.
    return state_files.of_node(f"let-in.{device.name}.{device.uuid}")


def _reason(name: str) -> state_files.StateFile:
    return state_files.of_node(f"held-why.{name}")


def _published(name: str) -> state_files.StateFile:
    return state_files.of_device(name, _PUBLISHED)
