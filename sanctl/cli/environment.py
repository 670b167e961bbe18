# SPDX-License-Identifier: GPL-2.0-or-later
"""What a command works with (Pacemaker, cluster.toml, clock, journal); tests put fakes there."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sanctl.cli.progress import make_reporter
from sanctl.drivers.node_facts import NodeFacts, NodeFactsPort
from sanctl.drivers.pacemaker import Pacemaker, PacemakerPort
from sanctl.drivers.stonith import Stonith, StonithPort
from sanctl.errors import ConfigError, Problem, SanctlError
from sanctl.model.site import Site
from sanctl.model.topology import Address, Topology
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import DEFAULT_IPC_BUFFER_BYTES
from sanctl.system import journal
from sanctl.system.clock import Clock, SystemClock
from sanctl.system.files import read_text
from sanctl.system.runner import LocalRunner, Runner

if TYPE_CHECKING:
    from sanctl.drivers.remote_services import RemoteServicesPort
    from sanctl.drivers.site_link import SiteLink

CLUSTER_TOML = "/etc/sanctl/cluster.toml"
_DRBD_VERSION = "/sys/module/drbd/version"


class Environment:
    """The cluster, the machine and the clock."""

    def __init__(self) -> None:
        runner = LocalRunner()
        self.runner: Runner = runner
        self.pacemaker: PacemakerPort = Pacemaker(runner)
        self.host: NodeFactsPort = NodeFacts(runner)
        self.stonith: StonithPort = Stonith(runner)
        self.clock: Clock = SystemClock()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session whose progress goes to standard error."""
        with make_reporter() as reporter:
            yield Session(self.pacemaker, self.clock, reporter)

    def topology(self) -> Topology:
        """Read cluster.toml.

        Raises:
            ConfigError: it is missing, cannot be read, or is wrong.
        """
        from sanctl.config import parse  # noqa: PLC0415 - not every command needs it

        try:
            text = read_text(CLUSTER_TOML)
        except OSError as error:
            raise ConfigError(
                Problem(
                    "SAN-CLI-003",
                    f"{CLUSTER_TOML} cannot be read: {error.strerror}",
                    "the rollout writes the file on every node; run sanctl on a node, as root",
                )
            ) from error
        return parse(text, source=CLUSTER_TOML)

    def drbd_version(self) -> str | None:
        """Return the version of the DRBD module that is loaded here."""
        text = self.host.text(_DRBD_VERSION)
        return text.strip() if text else None

    def ipc_buffer_bytes(self) -> int:
        """Return the IPC buffer of the Pacemaker that runs here; its default where none runs."""
        return self.host.ipc_buffer_bytes() or DEFAULT_IPC_BUFFER_BYTES

    def new_uuid(self) -> str:
        """Return 32 hex digits that no other device has.

        The kernel's random numbers alone are not enough: machines booted from one image, or
        virtual ones without a seed, have been seen to draw the same early numbers.
        """
        import hashlib  # noqa: PLC0415 - loads OpenSSL, and only one command needs it

        seed = b"".join(
            (
                os.urandom(32),
                self.host.node_name().encode(),
                str(time.time_ns()).encode(),
                str(time.monotonic_ns()).encode(),
                str(os.getpid()).encode(),
            )
        )
        return hashlib.sha256(seed).hexdigest()[:32]

    def site_link(self, site: Site) -> SiteLink:
        """Return a connection to a second site; one without a key takes any.

        Raises:
            Refused: this node does not have the private key for it.
        """
        from sanctl.drivers.site_link import SiteLink  # noqa: PLC0415 - few commands need it

        return SiteLink.by_ssh(site)

    def remote_services(self) -> RemoteServicesPort:
        """Return what asks other nodes, second sites and repositories from here."""
        from sanctl.drivers.remote_services import RemoteServices  # noqa: PLC0415 - as above

        return RemoteServices(self.runner)

    def ping(self, addresses: Collection[Address]) -> frozenset[Address]:
        """Return which addresses answer a ping from this node, asked for up to three seconds.

        One that could not be asked, for want of memory or permission, is not among them.
        """
        from sanctl.drivers import icmp_echo  # noqa: PLC0415 - one command needs it
        from sanctl.plan.failover.reach import Watch  # noqa: PLC0415

        watch = Watch(tuple(addresses), attempts=3, timeout_s=1.0, dampening="")
        return icmp_echo.look(watch).answered

    @contextmanager
    def logged(self, action: str, *, device: str = "", command_line: str = "") -> Iterator[None]:
        """Log a command to the journal: its begin, and its end with duration and result."""
        begin = time.monotonic()
        journal.write(
            f"sanctl {command_line or action}", device=device, action=action, step="begin"
        )
        result, priority = "done", journal.INFO
        try:
            yield
        except SanctlError as error:
            result, priority = str(error), journal.WARNING
            raise
        except BaseException as error:
            result, priority = f"interrupted ({type(error).__name__})", journal.WARNING
            raise
        finally:
            journal.write(
                f"sanctl {command_line or action}: {result}",
                priority=priority,
                device=device,
                action=action,
                step="end",
                duration_ms=int((time.monotonic() - begin) * 1000),
            )


def environment() -> Environment:
    """Return this machine's environment."""
    return Environment()


def topology_or_none(env: Environment) -> Topology | None:
    """Return the topology for a result that is useful without it; None: it cannot be read."""
    try:
        return env.topology()
    except ConfigError:
        return None
