# SPDX-License-Identifier: GPL-2.0-or-later
"""A device as agents see it: what the cluster wants of it, and which of its parts are up here."""

from __future__ import annotations

from typing import NamedTuple

from sanctl.drivers import drbdsetup, gate, lio
from sanctl.model.access import HostAccess
from sanctl.model.drbd import ResourceState
from sanctl.system.runner import Runner


class Device(NamedTuple):
    """A device as the cluster describes it to an agent.

    Attributes:
        name: the device's name.
        uuid: 32 hex digits.
        size_bytes: the wanted size.
        pool: the pool's name.
        nodes: the replica nodes.
        minor: the DRBD minor.
        initiators: the initiators that may log in by their IQN alone.
        sync: its sync policy as text (sanctl/model/sync_policy.py).
        verify: the latest order to verify its replicas (sanctl/model/verify_result.py).
        cache: the cache policy, as the CIB holds it; empty: none.
        hosts: the hosts that may log in.
        unreadable_hosts: names of hosts that are not let in, as this release cannot read how.
        point: the latest order to make a restore point (sanctl/model/restore_point.py).
        restore: the order to go back to a restore point, while it keeps hosts out
            (sanctl/model/device_restore.py).
        origin: the restore point that it was made from (sanctl/model/clone_origin.py).
        awaits: the sites that have to say that it was not taken over before hosts are let in, after
            the whole cluster was started anew; empty: none.
        released: the runs of the cluster software in which hosts are let in by an order.
        held: no host is let in, as that is not known yet: the run, and why (admission.py).
        is_let_in: it is known that hosts are let in; of a device that awaits no site it is not set.
        leaves_list: the access list stays as it is, as it is not known what it is to be.
        reservations: hosts may make persistent reservations.
        clear_reservations: the latest order to clear them, a token; empty: none.
        lacks: words of its parameter `needs` that this release does not know.
    """

    name: str
    uuid: str
    size_bytes: int
    pool: str
    nodes: tuple[str, ...]
    minor: int
    initiators: tuple[str, ...]
    sync: str = ""
    verify: str = ""
    cache: str = ""
    hosts: tuple[HostAccess, ...] = ()
    unreadable_hosts: tuple[str, ...] = ()
    point: str = ""
    restore: str = ""
    origin: str = ""
    awaits: str = ""
    released: str = ""
    held: str = ""
    is_let_in: bool = False
    leaves_list: bool = False
    reservations: bool = False
    clear_reservations: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def all_initiators(self) -> tuple[str, ...]:
        """The initiators that may log in, by themselves or as one of a host."""
        return tuple(dict.fromkeys((*self.initiators, *(i for h in self.hosts for i in h.iqns))))

    @property
    def access(self) -> set[str]:
        """The entries of the access list, as they are published."""
        return {*self.initiators, *(word for host in self.hosts for word in host.words)}

    def closed(self, restore: str) -> Device:
        """Return this device with nobody on its access list, as it goes back to a restore point."""
        return self._replace(restore=restore, initiators=(), hosts=(), unreadable_hosts=())

    def held_back(self, held: str) -> Device:
        """Return this device with nobody on its access list, until a site or an order says so."""
        return self._replace(held=held, initiators=(), hosts=(), unreadable_hosts=())

    @property
    def drbd_device(self) -> str:
        """Path of the DRBD device."""
        return f"/dev/drbd{self.minor}"


class Health(NamedTuple):
    """Which parts of a device are up on this node, read from the kernel.

    Attributes:
        gate: `absent`, `error`, or what the gate leads onto.
        alua: `absent`, `Standby`, `Active/Optimized`, …
        is_exported: the target is enabled.
        drbd: the DRBD resource, None when it is not up.
        is_suspended: a device-mapper device holds I/O back.
    """

    gate: str
    alua: str
    is_exported: bool
    drbd: ResourceState | None
    is_suspended: bool

    @property
    def is_absent(self) -> bool:
        """No part of the device is up here."""
        return self.gate == "absent" and self.alua == "absent" and self.drbd is None

    @property
    def serves(self) -> bool:
        """At least one part is in the state of a node that serves, or could at once."""
        return (
            self.alua == "Active/Optimized"
            or self.gate not in {"absent", "error"}
            or (self.drbd is not None and self.drbd.is_primary)
        )

    @property
    def is_active(self) -> bool:
        """Every part is in the state of a node that serves the device."""
        return (
            self.drbd is not None
            and self.drbd.is_primary
            and self.gate.startswith("drbd")
            and self.alua == "Active/Optimized"
            and self.is_exported
            and not self.is_suspended
        )

    @property
    def is_standby(self) -> bool:
        """Every part is in place, and none of them serves."""
        return (
            not self.serves
            and self.drbd is not None
            and self.gate == "error"
            and self.alua == "Standby"
            and self.is_exported
            and not self.is_suspended
        )


def observe(runner: Runner, device: Device) -> Health:
    """Read from the kernel which parts of the device are up here.

    Raises:
        CommandError: a part did not answer.
    """
    # First: a hold for a restore point is waited for, and what is read afterwards is of then.
    is_suspended = gate.stays_suspended(device.name)
    return Health(
        gate=gate.gate_table(device.name),
        alua=lio.alua_state(device.name, device.minor),
        is_exported=lio.is_exported(device.name),
        drbd=drbdsetup.observe(runner, device.name),
        is_suspended=is_suspended,
    )
