"""Diverged replicas: tells the cluster what each side has, and carries out what an operator chose.

Replicas that have diverged refuse each other, and nothing in sanctl throws one away by itself.
`sanctl device heal NAME --keep NODE` leaves an order in the CIB, a permanent attribute of the node
whose copy is to go:

    sanctl-discard-NAME = UUID-OF-THE-DEVICE GENERATION bitmap|full

The agent there obeys only while its replica is a standby and holds exactly that generation, which
no other data ever has: an order that comes late, or twice, or after somebody else has healed the
device, finds another generation and is dropped. The agent on the other node sees the order and
connects again. `sanctl-revive-NAME = UUID GENERATION` is the second order: to call a replica good
that knows it is behind, because the one that was ahead is gone for good.

Nothing here runs while the replicas are in contact.
"""

from __future__ import annotations

import contextlib
import os
import time
import xml.etree.ElementTree as ET

from sanctl.agents import replica, suspicion
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import attributes, drbd, loop, pool
from sanctl.model.drbd import ResourceState
from sanctl.plan.generations import Generations, parse_generations
from sanctl.system import journal
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0
# The other node's agent looks every 10 or 11 s; a monitor has 30 s.
_CONTACT_S = 13.0


def parting(runner: Runner, device: Device, state: ResourceState) -> str:
    """Return what is published of a replica without contact: since when, and its generations.

    Since when it is known to be without contact is kept beside the data, as a node that reboots
    must not forget it.
    """
    note = _note(device)
    if state.is_in_contact or len(device.nodes) < 2:
        if note is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)
        return ""
    words = ""
    if note is not None:
        since = read_text_or(note, "").strip()
        if not since.isdecimal():
            since = str(int(time.time()))
            write_atomically(note, f"{since}\n")
        words = f" apart={since}"
    held = generations(runner, device)
    if held is not None:
        ids = (held.current, held.bitmap, *held.history)
        words += f" gi={':'.join(f'{each:016X}' for each in ids)}"
        words += " last=1" if held.was_primary else ""
    return words


def _note(device: Device) -> str | None:
    """Return the path of the file that holds since when a replica has been without contact."""
    for path in replica.attached_files(device):
        if path.endswith(".data"):
            return f"{path.removesuffix('.data')}.apart"
    return None


def generations(runner: Runner, device: Device) -> Generations | None:
    """Return the generations of this node's replica, None when it has none."""
    done = runner.run(
        ["drbdsetup", "get-gi", str(device.minor)], timeout_s=_QUERY_TIMEOUT_S, ok=range(256)
    )
    return parse_generations(done.stdout) if done.status == 0 else None


def obey(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Carry out an operator's order about this device, if there is one; return the new state.

    Raises:
        SanctlError: it could not be carried out; the next monitor tries again.
    """
    here = os.uname().nodename
    if state.is_in_contact:
        _finish(runner, device, here)
        return state
    if len(device.nodes) < 2:
        return state
    orders = _orders(runner, device)
    own = orders.pop(here, {})
    discard, revive = own.get("discard", []), own.get("revive", [])
    if revive:
        _revive(runner, device, state, revive, here)
    elif discard:
        _discard(runner, device, state, discard, here)
    elif (
        any("discard" in other for other in orders.values())
        and _is_alone(state)
        and not suspicion.is_suspect(device.name, suspicion.data_file(device.name))
    ):
        # The other node is about to throw its copy away: without this it would knock in vain.
        drbd.up(runner, device.name)
        _tell(device, "connecting again: the other replica is to be discarded", "connect")
    else:
        return state
    return drbd.observe(runner, device.name) or state


def _is_alone(state: ResourceState) -> bool:
    # DRBD 8.4 forgets a connection that it has given up.
    return not state.peers or any(peer.connection == "StandAlone" for peer in state.peers)


def _orders(runner: Runner, device: Device) -> dict[str, dict[str, list[str]]]:
    """Return the orders about this very device, by node and kind, as words after its UUID."""
    kinds = {f"sanctl-{kind}-{device.name}": kind for kind in ("discard", "revive")}
    wanted = " or ".join(f"@name='{name}'" for name in kinds)
    answer = runner.run(
        ["cibadmin", "--query", "--xpath", f"//nodes/node[instance_attributes/nvpair[{wanted}]]"],
        timeout_s=_QUERY_TIMEOUT_S,
        ok=(0, 6, 105),  # no such object: no orders
    )
    if answer.status != 0:
        return {}
    found: dict[str, dict[str, list[str]]] = {}
    for node in ET.fromstring(answer.stdout).iter("node"):  # noqa: S314 - the cluster's own CIB
        for pair in node.iter("nvpair"):
            kind = kinds.get(pair.get("name", ""))
            words = pair.get("value", "").split()
            if kind is not None and words[:1] == [device.uuid]:
                found.setdefault(node.get("uname", ""), {})[kind] = words[1:]
    return found


def _discard(
    runner: Runner, device: Device, state: ResourceState, order: list[str], here: str
) -> None:
    if state.is_primary:
        return  # The cluster demotes it first: the order came together with a mark.
    held = generations(runner, device)
    begun = os.path.exists(_begun(device))
    if held is None or len(order) != 2:
        return
    if held.name != order[0]:
        if not (begun and held.is_blank):
            # Healed already, or other data than the operator was shown.
            _forget(runner, device, "discard", here)
            _tell(
                device, f"order to discard {order[0]} dropped: the replica is {held.name}", "drop"
            )
        return
    with open(_begun(device), "w", encoding="utf-8"):
        pass
    _tell(device, f"discarding this replica's {order[0]} ({order[1]}), as ordered", "discard")
    if order[1] == "full" or suspicion.is_suspect(device.name, suspicion.data_file(device.name)):
        # A bitmap does not know of the writes that a suspect replica lost.
        begin_anew(runner, device)
        return
    drbd.disconnect(runner, device.name)
    drbd.connect_discarding(runner, device.name)
    deadline = time.monotonic() + _CONTACT_S
    while time.monotonic() < deadline:
        now = drbd.observe(runner, device.name)
        if now is not None and now.is_in_contact:
            _finish(runner, device, here)
            return
        time.sleep(0.3)
    # The permission to discard must not outlive this attempt: while it stands, DRBD would act on
    # it whenever the peer turns up.
    drbd.disconnect(runner, device.name)


def begin_anew(runner: Runner, device: Device) -> None:
    """Make this a replica that holds nothing; DRBD then sends it everything.

    Each step leaves what a start completes: metadata that are gone are made anew.
    """
    where = replica.load_topology().pool(device.pool)
    if where is None:
        return
    files = pool.files_of(str(where.path), device.name, device.uuid)
    drbd.down(runner, device.name)
    loop.detach(runner, files.metadata)
    pool.forget_metadata(files)
    suspicion.clear(device.name, files.data)
    replica.prepare_files(runner, device, str(where.path))
    replica.write_resource_file(device, files)
    replica.bring_up_drbd(runner, device, files)


def _revive(
    runner: Runner, device: Device, state: ResourceState, order: list[str], here: str
) -> None:
    held = generations(runner, device)
    is_meant = held is not None and order == [held.name] and not state.is_primary
    path = suspicion.data_file(device.name)
    was_suspect = is_meant and path is not None and suspicion.is_suspect(device.name, path)
    if was_suspect and path is not None:
        # First: the fence-peer handler, which DRBD calls next, does not go on with a suspect copy.
        suspicion.clear(device.name, path)
        _tell(device, f"{order[0]} is trusted although it lost writes, as ordered", "trust")
    if is_meant and state.disk in {"Outdated", "Consistent"}:
        drbd.call_up_to_date(runner, device.name, device.minor)
        _tell(device, f"{order[0]} is called up to date, as ordered", "revive")
    if was_suspect:
        drbd.up(runner, device.name)
    _forget(runner, device, "revive", here)


def _finish(runner: Runner, device: Device, here: str) -> None:
    """Take back an order that has been carried out."""
    if not os.path.exists(_begun(device)):
        return
    _forget(runner, device, "discard", here)
    os.unlink(_begun(device))
    _tell(device, "in contact again; what was to be discarded is being replaced", "done")


def forget(device: Device) -> None:
    """Drop what is kept on tmpfs of a device that is stopped here; an order stays in the CIB."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_begun(device))


def _begun(device: Device) -> str:
    return f"{RUNTIME}/discarding-{device.name}"


def _forget(runner: Runner, device: Device, kind: str, here: str) -> None:
    attributes.forget(runner, here, f"sanctl-{kind}-{device.name}", timeout_s=_QUERY_TIMEOUT_S)


def _tell(device: Device, text: str, step: str) -> None:
    journal.write(
        f"{device.name}: {text}",
        priority=journal.NOTICE,
        device=device.name,
        action="heal",
        step=step,
    )
