# SPDX-License-Identifier: GPL-2.0-or-later
"""Session of one command: reads the cluster, patches the CIB by compare-and-swap, waits."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from sanctl.drivers.pacemaker import PacemakerPort, StaleCib
from sanctl.errors import Busy, CommandError, NotConverged, Problem, Unreachable
from sanctl.model.cib_change import Change, RemoveFailureExpiry
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure, Mon
from sanctl.model.device import SYNCING_CONNECTIONS, ReplicaState
from sanctl.model.host_session import SESSIONS_ATTRIBUTE, HostSession, parse_sessions
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.packed_states import STATES_ATTRIBUTE
from sanctl.model.resync_record import RUNNING_ATTRIBUTE, RunningSync, parse_running
from sanctl.ops.probe_records import changed_devices, forget_probes, would_restart
from sanctl.parse.change_times import change_times
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.cib_version import HEAD_BYTES, parse_cib_version
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.parse.published_state import parse_replicas
from sanctl.plan.cluster.convergence import Progress, failure_problem, failures_since
from sanctl.plan.cluster.preconditions import refuse_without_quorum
from sanctl.render.cib import render_patchset
from sanctl.system.clock import Clock

# In each round at least one of the colliding writers gets through, so this many commands would
# have to be started at one moment for one of them to give up.
_CHANGE_ATTEMPTS = 30
_POLL_S = 0.5
#: A question, or an observation, takes no more than one part in so many of the time of a wait: it
#: runs on the same processors as what is waited for.
_POLL_SHARE, _ANYWAY_SHARE = 3, 8
_ANYWAY_S = 4.0
# While a node takes over or a DC is elected Pacemaker may not answer for some seconds.
_SILENCE_TOLERATED_S = 30.0


def _has_quorum(root: ET.Element, mon: Mon) -> bool:
    """Whether this part has quorum, as the DC has found; while none is elected, as the last one."""
    return mon.has_quorum if mon.has_dc else root.get("have-quorum") == "1"


class Reporter(Protocol):
    """Where progress goes."""

    def update(self, text: str) -> None:
        """Show what is being waited for, or seen."""
        ...


class Session:
    """Observes and changes the cluster for one command."""

    def __init__(self, pacemaker: PacemakerPort, clock: Clock, reporter: Reporter) -> None:
        self._pacemaker = pacemaker
        self.clock = clock
        self.reporter = reporter
        self._cib_text = ""

    def observe(self) -> Cluster:
        """Return the cluster as it is now.

        Where pacemaker-attrd gives no answer no replica's state is known, and the rest is.

        Raises:
            Unreachable: Pacemaker does not answer here.
        """
        self._cib_text = self._pacemaker.query()
        root = parse_document(self._cib_text)
        states: Mapping[str, str] = {}
        with contextlib.suppress(CommandError):
            states = self._states()
        return Cluster.seen(parse_cib(root, states), parse_crm_mon(self._pacemaker.monitor()))

    def _states(self) -> Mapping[str, str]:
        """Return what the nodes have published of their replicas.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        return self._pacemaker.transient_attributes(STATES_ATTRIBUTE)

    def cib_version(self) -> tuple[int, int] | None:
        """Return `admin_epoch` and `epoch` of the CIB that was read last; None: it says neither."""
        return parse_cib_version(self._cib_text[:HEAD_BYTES])

    def change_times(self) -> dict[tuple[str, str], int]:
        """Return when each device was started or changed last on a node, by the CIB read last."""
        return change_times(parse_document(self._cib_text))

    def compressed_cib_bytes(self, added: str = "") -> int:
        """Return the size of the CIB that was read last, compressed as Pacemaker compresses it.

        `added` is text that is to come into it.
        """
        import bz2  # noqa: PLC0415 - few commands ask

        return len(bz2.compress((self._cib_text + added).encode()))

    def clean_up_failures(self, name: DeviceName) -> None:
        """Make Pacemaker forget a device's failures.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        self._pacemaker.clean_up_failures(name.value)

    def remove_node(self, node: NodeName) -> None:
        """Make Pacemaker forget a node that Corosync has forgotten.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        self._pacemaker.remove_node(node.value)

    def set_transient_attribute(self, node: NodeName, attribute: str, value: str | None) -> None:
        """Set a transient attribute of a node, or take it away; it ends with its membership.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        self._pacemaker.set_transient_attribute(node.value, attribute, value)

    def publish_private(self, node: str, attribute: str, value: str) -> None:
        """Set a private transient attribute of a node; it ends with its membership.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        self._pacemaker.publish_private(node, attribute, value)

    def published(self, attribute: str) -> Mapping[str, str]:
        """Return a transient attribute by node, also a private one.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        return self._pacemaker.transient_attributes(attribute)

    def running(self) -> tuple[tuple[str, RunningSync], ...]:
        """Return the resyncs and verifies that nodes report as running, with the node's name.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        values = self._pacemaker.transient_attributes(RUNNING_ATTRIBUTE)
        return tuple(
            (node, each) for node in sorted(values) for each in parse_running(values[node])
        )

    def published_replicas(self, name: DeviceName) -> dict[str, ReplicaState]:
        """Return the states of a device's replicas by node, without the whole CIB.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        replicas = parse_replicas(self._states())
        return {node: state for (device, node), state in replicas.items() if device == name.value}

    def host_sessions(self) -> dict[str, tuple[HostSession, ...]]:
        """Return the sessions of hosts by node; nodes that do not say are left out.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        values = self._pacemaker.transient_attributes(SESSIONS_ATTRIBUTE)
        return {
            node: found
            for node, text in values.items()
            if (found := parse_sessions(text)) is not None
        }

    def change(
        self,
        decide: Callable[[Cluster], tuple[Change, ...]],
        *,
        reads_replicas: bool = True,
        can_wait: bool = True,
    ) -> tuple[Change, ...]:
        """Make the change that `decide` asks for, planned again each time the CIB has changed.

        The CIB compares and swaps. What the nodes publish of their replicas is read after it, so
        never older than it, and may change until the patch is applied, as all of the CIB's status.

        Pacemaker takes changes also in a part without quorum. At the join they are lost, or come
        over what the majority has changed since, by a higher epoch: an order that has ended there
        would stand again. So nothing is changed from such a part.

        Args:
            decide: returns the changes for the cluster as observed.
            reads_replicas: whether it looks at replicas' states; else none is known to it, and
                nobody is asked for them.
            can_wait: whether it may come some tens of seconds later, so that Pacemaker reloads the
                devices rather than restarts replicas after a cleanup (ops/probe_records.py).

        Returns:
            The changes made; empty when nothing was to do.

        Raises:
            Busy: others changed the CIB each time between reading and writing.
            CommandError: the states of replicas could not be asked for; nothing was changed.
            Refused: there was something to change, and there is no quorum.
            SanctlError: what `decide` raises.
        """
        for attempt in range(_CHANGE_ATTEMPTS):
            self._cib_text = self._pacemaker.query()
            root = parse_document(self._cib_text)
            states = self._states() if reads_replicas else {}
            mon = parse_crm_mon(self._pacemaker.monitor())
            cluster = Cluster.seen(parse_cib(root, states), mon)
            changes = decide(cluster)
            if not changes:
                return ()
            if not _has_quorum(root, mon):
                refuse_without_quorum(cluster)
            names = changed_devices(changes)
            if can_wait and would_restart(root, names):
                can_wait = False  # Once: where it was in vain, the change is made all the same.
                forget_probes(self._pacemaker, self.clock, self.reporter.update, names)
                continue
            expiries = (RemoveFailureExpiry(name=name) for name in names)
            try:
                self._pacemaker.patch(render_patchset(root, (*changes, *expiries)))
            except StaleCib:
                self.clock.sleep(min(0.05 * attempt, 0.5))
                continue
            return changes
        raise Busy(
            Problem(
                "SAN-CLU-004",
                f"the CIB was changed by others during each of {_CHANGE_ATTEMPTS} attempts to "
                "change it",
                "run the command again; 'journalctl -u pacemaker' shows which program keeps "
                "changing the CIB",
            )
        )

    def forget_probes(self, names: Sequence[DeviceName]) -> bool:
        """Have Pacemaker reload these devices at their next change, where it would restart them.

        `change` does it, too; this is for what would grow old meanwhile. It may take some tens of
        seconds.

        Returns:
            Whether there was anything to do.

        Raises:
            Refused: no quorum.
            Unreachable: Pacemaker does not answer here.
        """
        root = parse_document(self._pacemaker.query())
        if not would_restart(root, names):
            return False
        mon = parse_crm_mon(self._pacemaker.monitor())
        if not _has_quorum(root, mon):
            refuse_without_quorum(Cluster.seen(parse_cib(root, {}), mon))
        forget_probes(self._pacemaker, self.clock, self.reporter.update, names)
        return True

    def _resync_progress(self, cluster: Cluster, resources: Collection[str]) -> str:
        """Return the progress of resyncs of some devices; queried only while one seems to run."""
        if not any(
            name in resources and replica.link in SYNCING_CONNECTIONS
            for (name, _), replica in cluster.cib.replicas.items()
        ):
            return ""
        try:
            running = [each for _, each in self.running() if each.device in resources]
        except CommandError:
            return ""  # The progress is only shown, nothing is decided by it.
        return "".join(f"; {each.brief}" for each in running)

    def wait(
        self,
        goal: Callable[[Cluster], Progress],
        *,
        waiting_for: str,
        timeout_s: float,
        resources: Collection[str] = (),
        known_failures: Collection[Failure] = (),
        ends_wait: Callable[[Failure], bool] = lambda _: True,
        look: str = "",
        may_be_done: Callable[[], bool] | None = None,
    ) -> Cluster:
        """Observe until the goal is reached.

        Where `may_be_done` is given and says no, the cluster is observed seldom, and not at once:
        an observation has Pacemaker hand its whole CIB over, which takes time from what is waited
        for.

        A failed action of one of `resources` ends the wait at once, unless it is one of
        `known_failures`, or `ends_wait` says that it does not stand in the way. When time runs out,
        the message says where to `look`.

        Raises:
            NotConverged: time ran out; says what was seen last.
            CommandError: an action failed.
            Unreachable: Pacemaker has not answered for 30 s.
        """
        deadline = self.clock.monotonic_s() + timeout_s
        last_answer_s = self.clock.monotonic_s()
        seen, cost_s = "nothing yet", 0.0
        while True:
            if may_be_done is not None:
                anyway_s = max(_ANYWAY_S, _ANYWAY_SHARE * cost_s)
                self._await(may_be_done, min(deadline, self.clock.monotonic_s() + anyway_s))
            began_s = self.clock.monotonic_s()
            try:
                cluster = self.observe()
            except Unreachable:
                now = self.clock.monotonic_s()
                if now - last_answer_s >= _SILENCE_TOLERATED_S or now >= deadline:
                    raise
                self.clock.sleep(_POLL_S)
                continue
            last_answer_s = self.clock.monotonic_s()
            found = failures_since(cluster, resources, known_failures)
            failures = [failure for failure in found if ends_wait(failure)]
            if failures:
                raise CommandError(*(failure_problem(failure) for failure in failures))
            progress = goal(cluster)
            if progress.is_done:
                return cluster
            seen = progress.seen
            self.reporter.update(
                f"waiting for {waiting_for}: {seen}{self._resync_progress(cluster, resources)}"
            )
            if self.clock.monotonic_s() >= deadline:
                raise NotConverged(
                    Problem(
                        "SAN-WAIT-001",
                        f"{waiting_for}: not reached within {timeout_s:g} s; last seen: {seen}",
                        look or "'sanctl status' shows the state of the cluster",
                    )
                )
            cost_s = self.clock.monotonic_s() - began_s
            # What is waited for runs on the same processors as the answers to these questions.
            self.clock.sleep(max(_POLL_S, cost_s))

    def _await(self, may_be_done: Callable[[], bool], until_s: float) -> None:
        """Ask until the answer is yes, or that time on the monotonic clock has come."""
        while True:
            began_s = self.clock.monotonic_s()
            if may_be_done():
                return
            now_s = self.clock.monotonic_s()
            if now_s >= until_s:
                return
            self.clock.sleep(max(_POLL_S, _POLL_SHARE * (now_s - began_s)))
