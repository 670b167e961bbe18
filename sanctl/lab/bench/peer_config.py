# SPDX-License-Identifier: GPL-2.0-or-later
"""Configuration of the stock stack that `sanctl bench peers` measures beside sanctl. Pure.

DRBD, its Pacemaker agent and the resource agents for an iSCSI target behind a floating address, as
their documentation puts them together: the agents' own metadata (intervals), the DRBD User's Guide
(`resource-and-stonith`, crm-fence-peer.sh, a promotable clone with notifications), LINBIT's
templates for iSCSI on Pacemaker (port closed, address, target, logical unit, port open).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from sanctl.lab.bench import drbd_by_hand
from sanctl.lab.machines.spec import Network, NodeSpec

PREFIX = "bench-peers"
#: The folder of the backing files: on the pool's filesystem, as those of sanctl's devices.
FOLDER = f"/srv/sanctl/main/{PREFIX}"
TICKLE_FOLDER = f"/var/lib/{PREFIX}/tickle"
SYNC_SCRIPT = f"/usr/local/sbin/{PREFIX}-tickle-sync"
#: Before /usr/sbin in the agents' PATH.
IPTABLES = "/usr/local/sbin/iptables"
LOOP_UNIT = f"{PREFIX}-loop.service"
_FIRST_MINOR = 700
_FIRST_PORT = 7700
_FIRST_ADDRESS = 151
#: Longer than the 40 s of LINBIT's templates: a process costs so much more in a laboratory that an
#: action which takes 2 s on a server would time out, and the node would be fenced for it.
ACTION_TIMEOUT_S = 180
#: How long DRBD's handler waits until Pacemaker calls the peer dead; its default is 90 s. That of
#: drbd-utils 9.22 does not read the node states of Pacemaker 3, and waits that long at each crash.
#: Longer than detection and fencing take, as its comments ask for.
FENCE_TIMEOUT_S = 15

#: What portblock calls. The UML kernel of Debian has neither ip_tables nor nf_tables for IPv4.
IPTABLES_SCRIPT = r"""#!/bin/sh
# iptables for portblock. This kernel has no IPv4 tables: the same packets are dropped by tc.
nic=iscsi0
case " $* " in
*" -V "*) echo "iptables v1.8.11 (tc)"; exit ;;
*" -L INPUT "*)
    tc filter show dev $nic ingress 2>/dev/null | awk '$1 == "dst_ip" {
        print "DROP       6    --  0.0.0.0/0            " $2 "          multiport dports 3260"}'
    exit ;;
esac
address=${*#* -d }
address=${address%% *}
case " $* " in
*" -I INPUT "*)
    tc qdisc add dev $nic clsact 2>/dev/null
    tc filter add dev $nic ingress pref "${address##*.}" protocol ip flower ip_proto tcp \
        dst_ip "$address" dst_port 3260 action drop ;;
*" -D INPUT "*) tc filter del dev $nic ingress pref "${address##*.}" ;;
*) echo "iptables: not known here: $*" >&2; exit 2 ;;
esac
"""

#: What the stock stack is given beyond its documentation, and what differs of necessity.
FAIRNESS = (
    "same nodes, kernel, Corosync timers, fencing devices, backing file system, loop with direct "
    "I/O, and the same ledger",
    "DRBD: sanctl's timers (ping-int, ping-timeout, timeout, connect-int) in place of the longer "
    "defaults; initial resync skipped",
    f"DRBD's fence-peer handler waits {FENCE_TIMEOUT_S} s instead of 90 s for a node state that "
    "Pacemaker 3 no longer writes",
    f"actions may take {ACTION_TIMEOUT_S} s instead of 10 to 40 s; monitor intervals as the "
    "agents' metadata advises",
    "portblock closes the port until the logical unit is there; its tickle ACKs tell the host at "
    "once that its connection is gone (state file pushed to the other node at each monitor); the "
    "laboratory's kernel has no IPv4 tables, so its iptables is a script that drops by tc",
    "host: sanctl's ping and login timeouts; one session without multipath, hence a long "
    "replacement_timeout, so that no request fails",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockDevice:
    """One replicated device of the stock stack: every name and number follows from its number."""

    number: int

    @property
    def name(self) -> str:
        """The DRBD resource, and the group that exports it."""
        return f"{PREFIX}{self.number}"

    @property
    def clone(self) -> str:
        """The promotable clone of its DRBD agent."""
        return f"{self.name}-drbd-clone"

    @property
    def last_member(self) -> str:
        """The member of the group that is started last: running, it means served."""
        return f"{self.name}-portunblock"

    @property
    def minor(self) -> int:
        """The DRBD minor."""
        return _FIRST_MINOR + self.number

    @property
    def loop(self) -> str:
        """The loop device under DRBD."""
        return f"/dev/loop{self.minor}"

    @property
    def backing_file(self) -> str:
        """The file under the loop device."""
        return f"{FOLDER}/{self.name}"

    @property
    def address(self) -> str:
        """The floating address."""
        return f"{Network.ISCSI.subnet}.{_FIRST_ADDRESS + self.number}"

    @property
    def iqn(self) -> str:
        """The target's name."""
        return f"iqn.2026-11.net.example:{self.name}"


def resource_file(device: StockDevice, nodes: Sequence[NodeSpec]) -> str:
    """Return the DRBD resource file."""
    handlers = f"""\
  handlers {{
    fence-peer "/usr/lib/drbd/crm-fence-peer.sh --timeout {FENCE_TIMEOUT_S}";
    after-resync-target "/usr/lib/drbd/crm-unfence-peer.sh";
  }}
"""
    return drbd_by_hand.resource_file(
        device.name,
        nodes,
        minor=device.minor,
        disk=device.loop,
        port=_FIRST_PORT + device.number,
        disk_options="    fencing resource-and-stonith;\n",
        handlers=handlers,
    )


def loop_unit(devices: Sequence[StockDevice]) -> str:
    """Return the systemd unit that sets the loop devices up before Pacemaker."""
    starts = "\n".join(
        f"ExecStart=/usr/sbin/losetup --direct-io=on {device.loop} {device.backing_file}"
        for device in devices
    )
    return f"""\
[Unit]
Description=Loop devices of the stock stack (sanctl bench peers)
RequiresMountsFor=/srv/sanctl/main
Before=pacemaker.service

[Service]
Type=oneshot
RemainAfterExit=yes
{starts}

[Install]
WantedBy=multi-user.target
"""


def sync_script(peer_address: str) -> str:
    """Return portblock's `sync_script`: it copies one state file to the other node."""
    options = "-o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=2"
    return f'#!/bin/sh\nexec scp -q {options} "$1" "{peer_address}:$1"\n'


def _nvpairs(owner: str, pairs: dict[str, str]) -> str:
    return "".join(
        f"<nvpair id={quoteattr(f'{owner}-{name}')} name={quoteattr(name)}"
        f" value={quoteattr(value)}/>"
        for name, value in pairs.items()
    )


def _operations(owner: str, monitors: Sequence[tuple[int, str]], actions: Sequence[str]) -> str:
    text = "".join(
        f'<op id="{owner}-{name}" name="{name}" interval="0s" timeout="{ACTION_TIMEOUT_S}s"/>'
        for name in actions
    )
    for interval_s, role in monitors:
        shown = f' role="{role}"' if role else ""
        text += (
            f'<op id="{owner}-monitor-{interval_s}" name="monitor" interval="{interval_s}s"'
            f' timeout="{ACTION_TIMEOUT_S}s"{shown}/>'
        )
    return f"<operations>{text}</operations>"


def parameters(device: StockDevice, host_iqn: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return each member of the device's group in its order: name, agent and parameters."""
    port = {"ip": device.address, "portno": "3260", "protocol": "tcp"}
    members = {
        "portblock": ("portblock", port | {"action": "block"}),
        "ip": ("IPaddr2", {"ip": device.address, "cidr_netmask": "24"}),
        "target": (
            "iSCSITarget",
            {
                "implementation": "lio-t",
                "iqn": device.iqn,
                "portals": f"{device.address}:3260",
                "allowed_initiators": host_iqn,
            },
        ),
        "lu": (
            "iSCSILogicalUnit",
            {
                "implementation": "lio-t",
                "target_iqn": device.iqn,
                "lun": "0",
                "path": f"/dev/drbd{device.minor}",
                "scsi_sn": f"{device.number + 1:08x}",
            },
        ),
        "portunblock": (
            "portblock",
            port
            | {
                "action": "unblock",
                "tickle_dir": TICKLE_FOLDER,
                "sync_script": SYNC_SCRIPT,
            },
        ),
    }
    return {f"{device.name}-{member}": found for member, found in members.items()}


def _member(name: str, agent: str, pairs: dict[str, str]) -> str:
    monitors = [] if pairs.get("action") == "block" else [(10, "")]
    return (
        f'<primitive id="{name}" class="ocf" provider="heartbeat" type="{agent}">'
        f'<instance_attributes id="{name}-params">{_nvpairs(name, pairs)}</instance_attributes>'
        f"{_operations(name, monitors, ('start', 'stop'))}</primitive>"
    )


def cib_elements(
    devices: Sequence[StockDevice], host_iqn: str, outsiders: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the resources and the constraints, each as an element of the CIB.

    Args:
        devices: the devices.
        host_iqn: the initiator name of the host that may log in.
        outsiders: the cluster's nodes that hold no replica.
    """
    resources, constraints = [], []
    for device in devices:
        name, clone = device.name, device.clone
        drbd = f"{name}-drbd"
        meta = {
            "promotable": "true",
            "promoted-max": "1",
            "promoted-node-max": "1",
            "clone-max": "2",
            "clone-node-max": "1",
            "notify": "true",
        }
        operations = _operations(
            drbd,
            [(20, "Unpromoted"), (10, "Promoted")],
            ("start", "promote", "demote", "notify", "stop"),
        )
        resources += [
            f'<clone id="{clone}">'
            f'<meta_attributes id="{clone}-meta">{_nvpairs(f"{clone}-meta", meta)}'
            "</meta_attributes>"
            f'<primitive id="{drbd}" class="ocf" provider="linbit" type="drbd">'
            f'<instance_attributes id="{drbd}-params">'
            f"{_nvpairs(drbd, {'drbd_resource': name})}</instance_attributes>{operations}"
            "</primitive></clone>",
            f'<group id="{name}"><meta_attributes id="{name}-meta">'
            f"{_nvpairs(f'{name}-meta', {'resource-stickiness': '100'})}</meta_attributes>"
            + "".join(
                _member(member, agent, pairs)
                for member, (agent, pairs) in parameters(device, host_iqn).items()
            )
            + "</group>",
        ]
        constraints += [
            f'<rsc_colocation id="{name}-with-drbd" score="INFINITY" rsc="{name}"'
            f' with-rsc="{clone}" with-rsc-role="Promoted"/>',
            f'<rsc_order id="{name}-after-drbd" kind="Mandatory" first="{clone}"'
            f' first-action="promote" then="{name}" then-action="start"/>',
        ]
        constraints += [
            f'<rsc_location id="{rsc}-not-on-{node}" rsc="{rsc}" node="{node}"'
            ' score="-INFINITY" resource-discovery="never"/>'
            for rsc in (clone, name)
            for node in outsiders
        ]
    return resources, constraints
