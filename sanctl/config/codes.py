# SPDX-License-Identifier: GPL-2.0-or-later
"""The meaning of each SAN-CONF code, for `sanctl explain`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, str] = MappingProxyType(
    {
        "SAN-CONF-001": "The file is not TOML, or cannot be decoded as UTF-8.",
        "SAN-CONF-002": "The file's schema is one this version of sanctl does not know.",
        "SAN-CONF-003": "A value without a default is missing.",
        "SAN-CONF-004": "There is a key sanctl does not know; it is refused, because a misspelt "
        "key that is silently ignored is a setting that silently does not hold.",
        "SAN-CONF-005": "A value is of the wrong kind (a number where a text belongs, ...).",
        "SAN-CONF-006": "A name does not follow the rules for names of its kind.",
        "SAN-CONF-007": "A network is not an address with a prefix length, or has host bits set.",
        "SAN-CONF-008": "Two networks overlap: Corosync's links, DRBD and iSCSI would share one "
        "wire, and losing it would look like losing the node.",
        "SAN-CONF-009": "An address is not an IP address; names are refused, because resolving "
        "them is one more thing that can fail during a failover.",
        "SAN-CONF-010": "An address is not a host address inside the network it belongs to.",
        "SAN-CONF-011": "The same address is given in two places.",
        "SAN-CONF-012": "A node's id is not 1 to 32, the range that Corosync, LIO's target port "
        "groups and ALUA share.",
        "SAN-CONF-013": "Two nodes have the same id.",
        "SAN-CONF-014": "A node's role is neither storage nor witness.",
        "SAN-CONF-015": "Portals do not fit the role: a storage node needs one at least, a witness "
        "serves nothing and has none.",
        "SAN-CONF-016": "A pool's path is missing or not usable: it must be absolute, without "
        "'..', of plain characters, and not '/'.",
        "SAN-CONF-017": "A pool's uuid is missing, malformed, or another pool's. It is what tells "
        "the pool's filesystem from an empty mount point.",
        "SAN-CONF-018": "A pool's nodes are not a list of known storage nodes, each named once.",
        "SAN-CONF-019": "The failover strategy is not one sanctl knows.",
        "SAN-CONF-020": "The number of nodes does not go with the strategy: two nodes have no "
        "majority once one is lost. Add a witness or a quorum device, or choose heartbeat.",
        "SAN-CONF-021": "Two pools lie in the same directory, or one inside the other.",
        "SAN-CONF-022": "There is no storage node, or more nodes than the 32 sanctl supports.",
        "SAN-CONF-030": "A node has only one heartbeat link. With one, a pulled cable is a dead "
        "node; Corosync needs an address in the heartbeat and one in the sync network.",
        "SAN-CONF-031": "A node has no fencing. Without it the other nodes cannot tell whether the "
        "node is dead or only not reachable, and none of them may take over.",
        "SAN-CONF-032": "Fencing is stated wrongly: an unknown form, a secret among the options, "
        "or an option that sanctl sets itself.",
        "SAN-CONF-033": "Two nodes have the same fencing options: one of them would be powered "
        "off in the other's place, while the other goes on writing.",
        "SAN-CONF-041": "SBD is stated wrongly: an unknown mode, disks without mode disk, mode "
        "disk without one or three disks, or a time that is none.",
        "SAN-CONF-042": "softdog is the kernel's own watchdog: it resets a node whose software "
        "hangs, and does nothing once the kernel itself does. Such a node may go on writing while "
        "another takes over. Use the server's watchdog, or accept this risk by its code.",
        "SAN-CONF-043": "Diskless SBD needs three nodes: a node that is alone is reset, and of two "
        "nodes either is alone when the other is lost.",
        "SAN-CONF-044": "The reach monitor of the iscsi network is stated wrongly: texts that are "
        "no addresses, portals of storage nodes, or addresses and an interface at once.",
        "SAN-CONF-048": "A pool's flash cache has a slow disk (origin) and a flash device "
        "(device), both by a path below /dev that stays the same, and a mode: none, "
        "write-through or write-back.",
        "SAN-CONF-047": "A node's `power` is `protected`, where a battery keeps its disks' own "
        "write caches over a power cut, or `plain`.",
        "SAN-CONF-034": "A server is in two groups that exclude each other. A node that logs in "
        "to its own cluster's devices hangs when it should fail over.",
        "SAN-CONF-036": "The strategy heartbeat is for exactly two storage nodes. Each is enough "
        "by itself there; with a third vote there could be two parts that both may serve.",
        "SAN-CONF-037": "A quorum device has one vote, which is to make an even number of nodes' "
        "votes an odd one. With an odd number of nodes it makes the votes even: a tie is possible.",
        "SAN-CONF-038": "A risk is accepted by its code, and this is not the code of one that can "
        "be accepted here.",
        "SAN-CONF-045": "The name of a site or rack has characters that are not allowed.",
        "SAN-CONF-046": "A site, or a rack, is given for some storage nodes and not for others. "
        "Replicas are placed on different sites and racks, so all of them must be known.",
        "SAN-CONF-035": "A setting of the whole cluster differs from host to host.",
    }
)
