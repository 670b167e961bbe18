# SPDX-License-Identifier: GPL-2.0-or-later
"""A Pacemaker cluster in memory: applies patchsets to a CIB, plays scheduler and device agents.

It refuses what a real cluster punishes: removing a resource that still runs (its stop would fail
and fence the node) is an AssertionError here.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from sanctl.drivers.pacemaker import StaleCib
from sanctl.errors import Problem, Unreachable
from sanctl.model.access import access_word
from sanctl.model.cache_policy import CacheMode, parse_cache_policy
from sanctl.model.cib_change import SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.device import access_digest
from sanctl.model.device_restore import REPORT_PREFIX, RestoreOrder, RestoreReport, closes
from sanctl.model.host import parse_hosts
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.model.packed_states import STATES_ATTRIBUTE, pack
from sanctl.model.point_hook import HookResult
from sanctl.model.published_reservations import (
    CLEAR_PARAMETER,
    ON,
    PARAMETER,
    RESERVATIONS_PREFIX,
    PublishedReservations,
    format_published,
)
from sanctl.model.reservation import Reservations, Version
from sanctl.model.restore_point import (
    FAILED_PREFIX,
    SIZES_ATTRIBUTE,
    PointFailure,
    PointOrder,
    RestorePoint,
)
from sanctl.model.verify_result import DIFFERS, REPAIRED, SAME, VerifyRequest, VerifyResult
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.device import restore_changes, restoring
from sanctl.plan.device.restore_points import plan_file_removed
from sanctl.plan.site.restored import plan_restored
from sanctl.render.cib import render_patchset

GOLDEN = Path(__file__).parent.parent / "golden" / "pacemaker"
NODES = ("n1", "n2", "n3")
STORAGE = ("n1", "n2")


class FakeClock:
    """A clock that moves in `sleep`; the cluster acts meanwhile."""

    def __init__(self, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.now = 1_800_000_000.0
        self.on_sleep = on_sleep

    def monotonic_s(self) -> float:
        return self.now

    def wall_s(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s
        self.on_sleep()


class FakeReporter:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, text: str) -> None:
        self.lines.append(text)


class FakePacemaker:
    """The port of the drivers onto a cluster in memory, and the steps that the cluster takes."""

    def __init__(self, version: str = "3.0.0", golden: str = "empty") -> None:
        self.cleaned_up: list[str] = []
        self.root = ET.fromstring((GOLDEN / version / f"{golden}.cib.xml").read_text())
        self.states = dict.fromkeys(NODES, "online")
        self.roles: dict[tuple[str, str], Role] = {
            ("sanctl-pool", n): Role.STARTED for n in STORAGE
        }
        self.roles |= {(f"fence-{n}", n): Role.STARTED for n in NODES}
        # Nodes whose Pacemaker stops, and nodes that a failed action has put into standby.
        self.shutting_down: set[str] = set()
        self.standby_on_fail: set[str] = set()
        self.failures: list[dict[str, str]] = []
        # Resource and node: what has failed last, and Pacemaker has not recovered yet.
        self.failed_instances: set[tuple[str, str]] = set()
        # Nodes whose fencing is under way.
        self.fencing: list[str] = []
        self.patches: list[str] = []
        # By node and name, as `attrd_updater --private` sets them.
        self.private_attributes: dict[tuple[str, str], str] = {
            (node, SESSIONS_ATTRIBUTE): "" for node in STORAGE
        }
        self.starts = 0
        self.held: dict[str, str] = {}
        self.knows_runs = True
        # What a verify finds: the ranges.
        self.differences: tuple[str, ...] = ()
        self.on_patch: list[Callable[[], None]] = []
        # Code and text with which the active node refuses to make a restore point.
        self.point_failure: tuple[str, str] | None = None
        self.hook_codes = ("", "")
        self.ignores_points = False
        self.tried_point = ""
        # By device: what the node that serves it publishes of its reservations.
        self.reservations: dict[str, PublishedReservations] = {}
        self.ignores_clearing = False
        # Nothing copies: a restore stays as it is.
        self.ignores_restores = False
        #: The size of the restore points that are made; 0: that of their device.
        self.point_bytes = 0
        # No Primary clears the mark of a replica that is in sync.
        self.keeps_marks = False
        self.is_frozen = False
        # Device and node: what a constraint of the operator's keeps off.
        self.banned: set[tuple[str, str]] = set()
        self.has_quorum = True
        self.has_dc = True
        self.is_down = False
        # Nodes and devices of which Pacemaker's history was cleaned, and is not yet found again.
        self.being_probed: set[tuple[str, str]] = set()
        self.has_no_ram = False
        self.failing_starts: set[str] = set()
        # Words that disconnected replicas publish in addition, by node, for every device.
        self.disconnected: dict[str, str] = {}
        self.disks: dict[str, str] = {}
        # The same of replicas that are connected.
        self.in_contact: dict[str, str] = {}
        # Nodes whose replicas say that what a resync wrote is not stable yet.
        self.settling: set[str] = set()
        self.storage = list(STORAGE)
        # Called after each patch that was taken: a test kills its command there.
        self.after_patch: Callable[[], None] = lambda: None

    # The port ------------------------------------------------------------------------------

    def query(self) -> str:
        if self.is_down:
            raise Unreachable(Problem("SAN-CLU-002", "it does not answer"))
        self._keep_history()
        return ET.tostring(self.root, encoding="unicode")

    def monitor(self) -> str:
        if self.is_down:
            raise Unreachable(Problem("SAN-CLU-002", "it does not answer"))
        mon = ET.Element("pacemaker-result")
        summary = ET.SubElement(mon, "summary")
        if self.has_dc:
            quorum = str(self.has_quorum).lower()
            ET.SubElement(summary, "current_dc", present="true", with_quorum=quorum)
        else:
            ET.SubElement(summary, "current_dc", present="false")
        nodes = ET.SubElement(mon, "nodes")
        for name, state in self.states.items():
            away = state in {"offline", "unclean"}
            ET.SubElement(
                nodes,
                "node",
                name=name,
                online=str(not away).lower(),
                standby=str(state == "standby").lower(),
                standby_onfail=str(name in self.standby_on_fail).lower(),
                shutdown=str(name in self.shutting_down).lower(),
                unclean=str(state == "unclean").lower(),
                pending=str(state == "pending").lower(),
                maintenance=str(state == "maintenance").lower(),
                type="member",
            )
        resources = ET.SubElement(mon, "resources")
        for (resource, node), role in sorted(self.roles.items()):
            failed = str((resource, node) in self.failed_instances).lower()
            element = ET.SubElement(
                resources, "resource", id=resource, role=role.value, failed=failed
            )
            ET.SubElement(element, "node", name=node)
        failures = ET.SubElement(mon, "failures")
        for failure in self.failures:
            ET.SubElement(failures, "failure", failure)
        history = ET.SubElement(mon, "fence_history")
        for node in self.fencing:
            ET.SubElement(history, "fence_event", target=node, status="pending")
        return ET.tostring(mon, encoding="unicode")

    def set_transient_attribute(self, node: str, attribute: str, value: str | None) -> None:
        self.attribute(node, attribute, value)

    def publish_private(self, node: str, attribute: str, value: str) -> None:
        self.private_attributes[node, attribute] = value

    def transient_attributes(self, attribute: str) -> dict[str, str]:
        if attribute == STATES_ATTRIBUTE:
            return self._states()
        private = {
            n: text for (n, name), text in self.private_attributes.items() if name == attribute
        }
        return private | {
            state.get("uname", ""): pair.get("value", "")
            for state in self.root.findall("status/node_state")
            for pair in state.findall("transient_attributes/instance_attributes/nvpair")
            if pair.get("name") == attribute
        }

    def _states(self) -> dict[str, str]:
        """The states of replicas, packed as a node's agents publish them.

        They are in this CIB, too, where tests of decisions look for them.
        """
        found: dict[str, dict[str, str]] = {}
        for state in self.root.findall("status/node_state"):
            for pair in state.findall("transient_attributes/instance_attributes/nvpair"):
                if pair.get("value", "").startswith("disk="):
                    name = pair.get("name", "").removeprefix("sanctl-")
                    found.setdefault(state.get("uname", ""), {})[name] = pair.get("value", "")
        packed = {node: pack(states) for node, states in found.items()}
        return packed | {
            n: text
            for (n, name), text in self.private_attributes.items()
            if name == STATES_ATTRIBUTE
        }

    def remove_node(self, node: str) -> None:
        assert self.states.pop(node) == "offline", "Pacemaker has it fenced"
        nodes = self.root.find("configuration/nodes")
        assert nodes is not None
        nodes.remove(*nodes.findall(f"node[@uname='{node}']"))
        self.touch()

    def clean_up_failures(self, resource: str) -> None:
        self.cleaned_up.append(resource)
        self.failures = [one for one in self.failures if f"{resource}_" not in one["op_key"]]

    def patch(self, patchset: str) -> None:
        for hook in list(self.on_patch):
            hook()
        # Without quorum, too: the CIB manager asks for none (sanctl/ops/session.py does).
        diff = ET.fromstring(patchset)
        source = diff.find("version/source")
        assert source is not None
        for key, value in source.attrib.items():
            if self.root.get(key) != value:
                raise StaleCib(Problem("SAN-CLU-004", f"{key} is {self.root.get(key)}"))
        for change in diff.findall("change"):
            self._apply(change)
        ids = [element.get("id") for element in self._configuration().iter() if element.get("id")]
        assert len(ids) == len(set(ids)), "the schema refuses an id that is there twice"
        target = diff.find("version/target")
        assert target is not None
        self.root.attrib.update(target.attrib)
        self.patches.append(patchset)
        self.after_patch()

    def _apply(self, change: ET.Element) -> None:
        path = change.get("path", "").removeprefix("/cib/")
        operation = change.get("operation")
        found = self.root.find(path)
        assert found is not None, f"{operation} of {path}, which is not there"
        if operation == "create":
            position = int(change.get("position", ""))
            assert position <= len(found), f"position {position} of {len(found)} in {path}"
            found.insert(position, change[0])
        elif operation == "delete":
            if found.tag == "clone":
                name = found.get("id", "").removeprefix("sanctl-")
                running = [key for key in self.roles if key[0] == name]
                assert not running, f"{running} would fail to stop and be fenced"
            parent = self.root.find(path.rpartition("/")[0])
            assert parent is not None
            parent.remove(found)
        else:
            assert operation == "modify"
            result = change.find("change-result")
            assert result is not None
            found.attrib.clear()
            found.attrib.update(result[0].attrib)

    # The state -----------------------------------------------------------------------------

    def touch(self) -> None:
        """Somebody else changes the configuration."""
        self.root.set("epoch", str(int(self.root.get("epoch", "0")) + 1))

    def attribute(self, node: str, name: str, value: str | None) -> None:
        """Publish, or withdraw, a transient attribute."""
        state = self.root.find(f"status/node_state[@uname='{node}']")
        assert state is not None
        group = state.find("transient_attributes/instance_attributes")
        if group is None:
            transient = ET.SubElement(state, "transient_attributes", id=state.get("id", ""))
            group = ET.SubElement(transient, "instance_attributes", id=f"status-{node}")
        for pair in group.findall("nvpair"):
            if pair.get("name") == name:
                group.remove(pair)
        if value is not None:
            ET.SubElement(group, "nvpair", id=f"status-{node}-{name}", name=name, value=value)

    def history(self, node: str, device: str) -> ET.Element:
        """What Pacemaker's history has of a device on a node; it is made where it is missing."""
        resources = self.root.find(f"status/node_state[@uname='{node}']/lrm/lrm_resources")
        assert resources is not None
        found = resources.find(f"lrm_resource[@id='{device}']")
        return ET.SubElement(resources, "lrm_resource", id=device) if found is None else found

    def _keep_history(self) -> None:
        """Give each device that has none on a node the history of a start."""
        for resources in self.root.findall("status/node_state/lrm/lrm_resources"):
            for gone in resources.findall("lrm_resource"):
                if gone.get("class") is None and gone.get("id") not in self.devices():
                    resources.remove(gone)
        for state in self.root.findall("status/node_state"):
            for name in self.devices() if state.find("lrm/lrm_resources") is not None else ():
                history = self.history(state.get("uname", ""), name)
                if len(history) == 0 and (state.get("uname"), name) not in self.being_probed:
                    ET.SubElement(
                        history,
                        "lrm_rsc_op",
                        {
                            "id": f"{name}_last_0",
                            "operation": "start",
                            "call-id": "1",
                            "rc-code": "0",
                            "op-status": "0",
                            "interval": "0",
                            "op-restart-digest": "abc",
                        },
                    )

    def make_storage(self, node: str) -> None:
        """Give a node the pool and its agent."""
        self.storage.append(node)
        self.roles["sanctl-pool", node] = Role.STARTED
        usage = next(
            pair.get("value")
            for pair in self.root.findall("status//nvpair")
            if pair.get("name") == "sanctl-pool-main"
        )
        self.attribute(node, "sanctl-pool-main", usage)
        self.private_attributes[node, SESSIONS_ATTRIBUTE] = ""

    def keep_reservations(self, *, sessions: str | None = "") -> None:
        """Give storage nodes a release that keeps reservations; and the sessions they publish."""
        for node in self.storage:
            state = self.root.find(f"status/node_state[@uname='{node}']")
            assert state is not None
            usage = next(p for p in state.iter("nvpair") if p.get("name") == "sanctl-pool-main")
            usage.set("value", f"{usage.get('value')} reservations=1")
            if sessions is not None:
                self.private_attributes[node, SESSIONS_ATTRIBUTE] = sessions

    def register(self, name: str, keys: dict[str, int], *, kind: int = 5) -> None:
        """Let hosts register, by their IQNs; the first one holds a reservation of that type."""
        before = self.reservations[name]
        epoch, generation = before.version
        self.reservations[name] = before._replace(
            version=Version(epoch, generation + 1),
            reservations=Reservations(tuple(sorted(keys.items())), next(iter(keys)), kind),
        )
        self.tick()

    def set_permanent(self, node: str, name: str, value: str) -> None:
        """Give a node a permanent attribute, as crm_attribute would."""
        found = self.root.find(f"configuration/nodes/node[@uname='{node}']")
        assert found is not None
        group = found.find("instance_attributes")
        if group is None:
            group = ET.SubElement(found, "instance_attributes", id=f"nodes-{found.get('id')}")
        ET.SubElement(group, "nvpair", id=f"nodes-{node}-{name}", name=name, value=value)
        self.touch()

    def permanent(self, node: str, name: str) -> str | None:
        pair = self.root.find(f"configuration/nodes/node[@uname='{node}']//nvpair[@name='{name}']")
        return None if pair is None else pair.get("value")

    def transient(self, node: str, name: str) -> str | None:
        state = self.root.find(f"status/node_state[@uname='{node}']")
        pair = None if state is None else state.find(f".//nvpair[@name='{name}']")
        return None if pair is None else pair.get("value")

    def devices(self) -> dict[str, dict[str, str]]:
        """Names and parameters of the devices in the configuration."""
        return {
            primitive.get("id", ""): {
                pair.get("name", ""): pair.get("value", "")
                for pair in primitive.findall("instance_attributes/nvpair")
            }
            for primitive in self.root.findall("configuration/resources/clone/primitive")
            if primitive.get("type") == "device"
        }

    def active(self, device: str) -> list[str]:
        return [n for (d, n), role in self.roles.items() if d == device and role is Role.PROMOTED]

    def crash(self, node: str) -> None:
        """The node is gone, and fenced."""
        self.states[node] = "offline"
        self._leave(node)

    def start_anew(self, why: str = "asking") -> None:
        """Devices that await sites are held, since all nodes were without power."""
        self.starts += 1
        self.held = {name: why for name, found in self.devices().items() if "awaits" in found}
        self.tick()

    def _admission(self, name: str, node: str, parameters: dict[str, str]) -> str:
        if "awaits" not in parameters:
            return ""
        run = f"{node}-{self.starts}" if self.knows_runs else "?"
        if run in parameters.get("released", "").split():
            self.held.pop(name, None)
        return f" held={run}:{self.held[name]}" if name in self.held else f" let-in={run}"

    def _leave(self, node: str) -> None:
        for key in [key for key in self.roles if key[1] == node]:
            del self.roles[key]
        state = self.root.find(f"status/node_state[@uname='{node}']")
        transient = None if state is None else state.find("transient_attributes")
        if state is not None and transient is not None:
            state.remove(transient)

    def _configuration(self) -> ET.Element:
        found = self.root.find("configuration")
        assert found is not None
        return found

    # Scheduler and agents ------------------------------------------------------------------

    def tick(self) -> None:
        """Let the cluster do one step towards its configuration."""
        if self.is_frozen:
            return
        for node in NODES:
            wants = self.permanent(node, "standby") or self.transient(node, "standby")
            if wants == "on" and self.states[node] == "online":
                self.states[node] = "standby"
            elif wants is None and self.states[node] == "standby":
                self.states[node] = "online"
            if self.states[node] == "standby":
                for key in [k for k in self.roles if k[1] == node and not k[0].startswith("fence")]:
                    del self.roles[key]
            elif self.states[node] == "online" and node in self.storage:
                self.roles.setdefault(("sanctl-pool", node), Role.STARTED)
        for name, parameters in self.devices().items():
            self._device_step(name, parameters)
        self._clear_tombstones()
        self._remove_points()

    def _device_step(self, name: str, parameters: dict[str, str]) -> None:
        nodes = [n for n in parameters["nodes"].split() if self.states[n] == "online"]
        role = self.root.find(
            f"configuration/resources/clone[@id='sanctl-{name}']/meta_attributes"
            "/nvpair[@name='target-role']"
        )
        if role is not None and role.get("value") == "Stopped":
            for node in nodes:
                if self.roles.get((name, node)) is Role.PROMOTED:
                    self.roles[name, node] = Role.UNPROMOTED
                else:
                    self.roles.pop((name, node), None)
                    self.attribute(node, f"sanctl-{name}", None)
            return
        for node in NODES:
            if (name, node) in self.roles and node not in parameters["nodes"].split():
                assert self.roles[name, node] is not Role.PROMOTED, "it serves: it is not dropped"
                del self.roles[name, node]
                self.attribute(node, f"sanctl-{name}", None)
        for node in nodes:
            if (name, node) in self.roles:
                continue
            if node in self.failing_starts:
                self.failures.append(
                    {
                        "op_key": f"{name}_start_0",
                        "node": node,
                        "exitstatus": "error",
                        "exitreason": "no space left in the pool",
                        "call": "7",
                    }
                )
                return
            self.roles[name, node] = Role.UNPROMOTED
        self._heal(name, nodes)
        self._promote(name, nodes, parameters["uuid"])
        if self.active(name):
            self._forget_new(name)
        self._unmark(name, nodes)
        self._verify(name, nodes, parameters.get("verify", ""))
        self._reserve(name, parameters)
        if not self.ignores_points:
            self._make_point(name, nodes, parameters)
        for node in nodes:
            linked = len(nodes) > 1 and not self.disconnected
            alone = "None" if len(parameters["nodes"].split()) == 1 else "StandAlone"
            disk = self.disks.get(node, "UpToDate")
            drbd = "Primary" if self.active(name) == [node] else "Secondary"
            admission = self._admission(name, node, parameters)
            access = access_digest(
                set()
                if closes(parameters.get("restore", "")) or "held=" in admission
                else {
                    *parameters.get("initiators", "").split(),
                    *(
                        access_word(iqn.value, host.chap_user, is_mutual=host.is_mutual)
                        for host in parse_hosts(parameters.get("hosts", ""))
                        for iqn in host.iqns
                    ),
                }
            )
            policy = parameters.get("sync", "").replace(" ", "+") or "default"
            self.attribute(
                node,
                f"sanctl-{name}",
                f"disk={disk} connection={'Connected' if linked else alone} "
                f"replication={'Established' if linked else 'Off'} "
                f"peer-disk={'UpToDate' if linked else 'DUnknown'} out-of-sync=0 "
                f"role={drbd} size={parameters['size']} acl={access} policy={policy}{admission}"
                f"{(self.in_contact if linked else self.disconnected).get(node, '')}"
                f"{' unflushed=1' if node in self.settling else ''}"
                f"{self._cache(parameters.get('cache', ''), is_linked=linked)}"
                f"{self._read_cache(parameters.get('cache', ''), drbd)}",
            )
        self._restore(name, RestoreOrder.parse(parameters.get("restore", "")))

    def _forget_new(self, name: str) -> None:
        """Do as the first promotion does: the CIB ceases to call the device new."""
        primitive = self.root.find(f".//primitive[@id='{name}']")
        meta = None if primitive is None else primitive.find("meta_attributes")
        pair = None if meta is None else meta.find("nvpair[@name='sanctl-new']")
        if meta is not None and pair is not None:
            meta.remove(pair)

    def _cache(self, policy: str, *, is_linked: bool) -> str:
        """The words that an agent publishes of its replica's cache."""
        mode, limit_bytes, _ = parse_cache_policy(policy)
        if mode is not CacheMode.WRITE_BACK:
            return f" cache={mode.value}"
        if not is_linked:
            return " cache=write-through cache-why=one-copy"
        return f" cache=write-back limit={limit_bytes} dirty=4194304 flush-s=1"

    def _read_cache(self, policy: str, role: str) -> str:
        wanted = parse_cache_policy(policy).read_bytes
        if not wanted or role != "Primary":
            return ""
        if self.has_no_ram:
            return " read=0 read-why=no-ram"
        return f" read={wanted} read-held={wanted // 2} read-hit=90"

    def _verify(self, name: str, nodes: list[str], asked: str) -> None:
        """Do as the agents do with an order to compare the replicas."""
        order = VerifyRequest.parse(asked)
        if order is None or len(nodes) < 2 or not self.active(name):
            return
        found = 4 * len(self.differences)
        result = DIFFERS if found else SAME
        found_result = VerifyResult(order.number, result, 1, 2, found, self.differences)
        self.attribute(self.active(name)[0], f"sanctl.verify.{name}", found_result.published)
        if order.is_repair and found:
            standby = next(n for n in nodes if n not in self.active(name))
            repaired = found_result._replace(result=REPAIRED, ranges=())
            self.attribute(standby, f"sanctl.verify.{name}", repaired.published)

    def _make_point(self, name: str, nodes: list[str], parameters: dict[str, str]) -> None:
        """Do as the active node does with an order for a restore point."""
        order = PointOrder.parse(parameters.get("point", ""))
        points = parse_cib(self.root).points
        if (
            order is None
            or order.token in {self.tried_point, *(p.token for p in points)}
            or not self.active(name)
        ):
            return
        self.tried_point = order.token
        if self.point_failure:
            failure = PointFailure(order.token, *self.point_failure)
            self.attribute(self.active(name)[0], f"{FAILED_PREFIX}{name}", str(failure))
            return
        size = self.point_bytes or int(parameters["size"])
        uuid, pool = parameters["uuid"], parameters["pool"]
        point = RestorePoint(
            name,
            order.name,
            order.token,
            uuid,
            pool,
            order.given_s,
            size,
            40,
            tuple(sorted(nodes)),
            hook=HookResult(order.hook.name, *self.hook_codes) if order.hook else None,
        )
        self.patch(render_patchset(self.root, (SetPoint(point=point),)))
        self.attribute(nodes[0], SIZES_ATTRIBUTE, f"{order.token}=1048576")

    def _restore(self, name: str, order: RestoreOrder | None) -> None:
        """Do as the active node does with an order to go back to a restore point."""
        active = self.active(name)
        if order is None or not active or self.ignores_restores:
            return
        cluster = Cluster.seen(parse_cib(self.root), parse_crm_mon(self.monitor()))
        step = restoring.next_step(
            cluster,
            name,
            active[0],
            is_closed_here=True,
            now_s=order.given_s + 5.0,
            waited_s=5.0,
        )
        match step:
            case restoring.Begin():
                changes = restore_changes.plan_begun(cluster, name, order)
            case restoring.Copy() | restoring.CopyBackup() | restoring.CopyFromSite():
                changes = (
                    *restore_changes.plan_done(cluster, name, order, active[0]),
                    *plan_restored(cluster, name, order, order.given_s + 5.0),
                )
            case restoring.GiveUp(problem=problem) | restoring.Stuck(problem=problem):
                report = RestoreReport(order.token, problem.code, problem.text)
                self.attribute(active[0], f"{REPORT_PREFIX}{name}", str(report))
                changes = ()
                if isinstance(step, restoring.GiveUp):
                    changes = restore_changes.plan_given_up(cluster, name, order)
            case _:
                return
        if changes:
            self.patch(render_patchset(self.root, changes))

    def _remove_points(self) -> None:
        """Do as the pool agents do with restore points that are being deleted."""
        for node in self.storage:
            if self.states.get(node) != "online":
                continue
            for point in parse_cib(self.root).points:
                cluster = Cluster.seen(parse_cib(self.root), parse_crm_mon(self.monitor()))
                if changes := plan_file_removed(cluster, point, node):
                    self.patch(render_patchset(self.root, changes))

    def _reserve(self, name: str, parameters: dict[str, str]) -> None:
        """Publish a device's reservations as the node that serves it does; clear them once."""
        attribute = f"{RESERVATIONS_PREFIX}{name}"
        if parameters.get(PARAMETER) != ON:
            self.reservations.pop(name, None)
            for node in NODES:
                self.private_attributes.pop((node, attribute), None)
            return
        none = PublishedReservations(Version(1, 0), Reservations())
        found = self.reservations.setdefault(name, none)
        order = parameters.get(CLEAR_PARAMETER, "")
        if order not in {"", found.cleared} and not self.ignores_clearing:
            version = Version(found.version.epoch, found.version.generation + 1)
            found = PublishedReservations(version, Reservations(), order)
            self.reservations[name] = found
        for node in self.active(name):
            self.private_attributes[node, attribute] = format_published(found)

    def _heal(self, name: str, nodes: list[str]) -> None:
        """Do as the agents do with an order to discard or to revive."""
        for node in nodes:
            for kind in ("discard", "revive"):
                attribute = f"sanctl-{kind}-{name}"
                if self.permanent(node, attribute) is not None and name not in self.active(node):
                    self.disks.pop(node, None)
                    if kind == "discard":
                        self.disconnected.clear()
                    elif node in self.disconnected:
                        said = self.disconnected[node]
                        self.disconnected[node] = said.replace(" withheld=1", "")
                    self.remove_attribute(node, attribute)

    def remove_attribute(self, node: str, attribute: str) -> None:
        for group in self.root.findall(
            f"configuration/nodes/node[@uname='{node}']/instance_attributes"
        ):
            for pair in group.findall("nvpair"):
                if pair.get("name") == attribute:
                    group.remove(pair)
                    self.touch()

    def is_marked(self, name: str, node: str) -> bool:
        """Whether a constraint marks the device's replica on a node as outdated."""
        marks = self.root.findall(f"configuration/constraints/rsc_location[@node='{node}']")
        return any(m.get("id", "").startswith(f"sanctl-outdated-{name}.") for m in marks)

    def _unmark(self, name: str, nodes: list[str]) -> None:
        """Do as the Primary does: it clears the marks of replicas that are in sync with it."""
        constraints = self.root.find("configuration/constraints")
        if constraints is None or not self.active(name) or self.disconnected or self.keeps_marks:
            return
        good = {node for node in nodes if self.disks.get(node, "UpToDate") == "UpToDate"}
        for mark in list(constraints):
            is_mark = mark.get("id", "").startswith(f"sanctl-outdated-{name}.")
            if is_mark and mark.get("node") in good - set(self.active(name)):
                constraints.remove(mark)
                self.touch()

    def _drained(self, node: str) -> bool:
        pairs = self.root.findall(f"status/node_state[@uname='{node}']//nvpair")
        return any((p.get("name"), p.get("value")) == ("sanctl.drained", "true") for p in pairs)

    def _promote(self, name: str, nodes: list[str], uuid: str) -> None:
        nodes = [
            node
            for node in nodes
            if not self._drained(node)
            and (name, node) not in self.banned
            and self.permanent(node, f"sanctl-outdated-{name}") != uuid
            and not self.is_marked(name, node)
            and self.disks.get(node, "UpToDate") == "UpToDate"
            and "withheld=1" not in self.disconnected.get(node, "")
        ]
        for node in self.active(name):
            if node not in nodes:
                # Promoted elsewhere in the next step, as a real demotion takes its time.
                self.roles[name, node] = Role.UNPROMOTED
                return
        move = self.root.find(
            f"configuration/constraints/rsc_location[@id='sanctl-{name}-move']/rule/expression"
        )
        prefer = self.root.find(
            f"configuration/constraints/rsc_location[@id='sanctl-{name}-prefer']"
        )
        active = self.active(name)
        if move is not None and move.get("value") in nodes:
            wanted = move.get("value", "")
        elif active:
            wanted = active[0]
        elif prefer is not None and prefer.get("node") in nodes:
            wanted = prefer.get("node", "")
        elif nodes:
            wanted = nodes[0]
        else:
            return
        for node in active:
            if node != wanted:
                self.roles[name, node] = Role.UNPROMOTED
        if not self.active(name):
            self.roles[name, wanted] = Role.PROMOTED

    def _clear_tombstones(self) -> None:
        for node in self.storage:
            if self.roles.get(("sanctl-pool", node)) is not Role.STARTED:
                continue
            for group in self.root.findall(
                f"configuration/nodes/node[@uname='{node}']/instance_attributes"
            ):
                for pair in group.findall("nvpair"):
                    if pair.get("name", "").startswith("sanctl-delete-"):
                        group.remove(pair)
                        self.touch()
