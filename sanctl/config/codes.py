# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the SAN-CONF codes (cluster.toml and inventory), for `sanctl explain`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, str] = MappingProxyType(
    {
        "SAN-CONF-001": "The file is not TOML, or is not encoded in UTF-8.",
        "SAN-CONF-002": "This version of sanctl does not know the file's schema.",
        "SAN-CONF-003": "A value that has no sensible default is missing.",
        "SAN-CONF-004": "The file has a key that sanctl does not know. It is refused, because a "
        "misspelt key that is ignored is a setting that has no effect. The agents on the nodes "
        "alone pass over it, and log it once: a newer release may have written it.",
        "SAN-CONF-005": "A value is of the wrong type (a number in place of a text, ...).",
        "SAN-CONF-006": "A name does not follow the rules for names of its kind.",
        "SAN-CONF-007": "A network is not an address with a prefix length, or has host bits set.",
        "SAN-CONF-008": "Two networks overlap: Corosync's links, DRBD and iSCSI would share one "
        "wire, and losing it would look like losing the node.",
        "SAN-CONF-009": "An address is not an IP address. Host names are refused, because "
        "resolving them is one more thing that can fail during a failover.",
        "SAN-CONF-010": "An address is not a host address inside the network it belongs to, or no "
        "other host reaches it: 0.0.0.0, ::, loopback, link-local, multicast.",
        "SAN-CONF-011": "The same address is given in two places.",
        "SAN-CONF-012": "A node's id is not 1 to 32, the range that Corosync, LIO's target port "
        "groups and ALUA share.",
        "SAN-CONF-013": "Two nodes have the same id.",
        "SAN-CONF-014": "A node's role is neither storage nor witness.",
        "SAN-CONF-015": "Portals do not match the role: a storage node needs at least one, a "
        "witness serves nothing and has none.",
        "SAN-CONF-016": "A pool's path is missing or invalid: it must be absolute, without '..', "
        "of plain characters, no part of it with a leading '-', not '/', and not below /dev, "
        "/proc, /run or /sys.",
        "SAN-CONF-017": "A pool's uuid is missing, malformed, or that of another pool. By the "
        "uuid the pool's filesystem is told from an empty mount point.",
        "SAN-CONF-018": "A pool's nodes are not a list of known storage nodes, each named once.",
        "SAN-CONF-019": "sanctl does not know the failover strategy.",
        "SAN-CONF-020": "The number of nodes does not match the strategy: two nodes have no "
        "majority once one is lost. Add a witness or a quorum device, or choose heartbeat.",
        "SAN-CONF-021": "Two pools have the same directory, or the directory of one is inside "
        "that of the other.",
        "SAN-CONF-022": "There is no storage node, or more nodes than the 32 sanctl supports.",
        "SAN-CONF-030": "A node has only one heartbeat link. With one link, a pulled cable looks "
        "like a dead node; Corosync needs an address in the heartbeat network and one in the sync "
        "network.",
        "SAN-CONF-031": "A node has no fencing. Without fencing a dead node cannot be told from "
        "one that does not answer, and no other node may take over.",
        "SAN-CONF-032": "The fencing of a node is invalid: an unknown form, a secret among the "
        "options, or an option that sanctl sets itself.",
        "SAN-CONF-033": "Two nodes have the same fencing options: the wrong node would be powered "
        "off, while the other goes on writing.",
        "SAN-CONF-034": "A server is in two groups that exclude each other. A storage node that "
        "logs in to its own cluster's devices needs limits for memory and an order for its end: "
        "it is a host, too, only where sanctl_nodes_are_hosts is true.",
        "SAN-CONF-035": "A setting of the whole cluster has different values for different hosts.",
        "SAN-CONF-036": "The strategy heartbeat is for exactly two storage nodes, each of which "
        "may go on alone. With a third vote two parts could both serve.",
        "SAN-CONF-037": "A quorum device has one vote, which makes an even number of votes odd. "
        "With an odd number of nodes it would make the number even, and a tie possible.",
        "SAN-CONF-038": "A risk is accepted by its code, and this is not the code of a risk that "
        "can be accepted here.",
        "SAN-CONF-041": "The SBD settings are invalid: an unknown mode, disks without mode disk, "
        "mode disk without one or three disks, or an invalid time.",
        "SAN-CONF-042": "softdog is the kernel's own watchdog: it resets a node whose software "
        "hangs, and does nothing once the kernel itself hangs. Such a node may go on writing "
        "while another takes over. Use the server's hardware watchdog, or accept this risk by its "
        "code.",
        "SAN-CONF-043": "Diskless SBD needs three nodes: a node that is alone is reset, and of "
        "two nodes each is alone when the other is lost.",
        "SAN-CONF-044": "The watch over the iscsi network is invalid: values that are not "
        "addresses, addresses of storage nodes themselves, or addresses and an interface at once.",
        "SAN-CONF-045": "The name of a site or rack contains characters other than plain ones.",
        "SAN-CONF-046": "A site, or a rack, is given for some storage nodes and not for others. "
        "Replicas go to different sites and racks, which requires it for all of them.",
        "SAN-CONF-047": "The power of a node is either protected, by a battery that keeps the "
        "data in its disks' own write caches, or plain.",
        "SAN-CONF-048": "A pool's flash cache has a slow disk (origin) and a flash device "
        "(device), both by a path below /dev that stays the same, and a mode: none, write-through "
        "or write-back. A filesystem may be named that is made on the empty disk: xfs or ext4.",
        "SAN-CONF-049": "A repository for backups is an absolute path, or an address of another "
        "server as ssh://USER@HOST:PORT/PATH, in which /./ begins a path below the user's home.",
        "SAN-CONF-050": "A second site in the inventory has no name, user, address or directory as "
        "'sanctl site add' takes them, or the name of another one.",
        "SAN-CONF-051": "Corosync's times in the inventory are no milliseconds, or the consensus "
        "is less than 1.2 times the token (with what is added for each node beyond two). Then "
        "healthy nodes are left out of a new membership, and fenced.",
        "SAN-CONF-052": "sanctl_nodes_are_hosts is neither true nor false, or is true while no "
        "storage node is in the group sanctl_hosts.",
    }
)
