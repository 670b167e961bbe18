# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of what runs on a node: agents, fencing, kernel interfaces, caches.

SAN-AGENT, SAN-CACHE, SAN-DM, SAN-DRBD, SAN-FEN, SAN-LIO.
"""

from __future__ import annotations

CODES = {
    "SAN-AGENT-001": "A node that holds a replica of the device is not in this node's "
    "cluster.toml, so the connection to that replica cannot be set up.",
    "SAN-AGENT-002": "The loop device over a device's data file disappeared while the replica was "
    "being started.",
    "SAN-AGENT-003": "The cluster's DRBD secret is missing on this node. Replicas authenticate to "
    "each other with it.",
    "SAN-AGENT-004": "This node's cluster.toml does not contain the node itself, or the device's "
    "pool.",
    "SAN-AGENT-005": "An action that needs a started replica was requested on a node where the "
    "replica is not started.",
    "SAN-AGENT-006": "A stop ran out of time while parts of the device were still in the kernel. "
    "It is reported as failed, because an incomplete stop must never count as a stop; Pacemaker "
    "responds by fencing the node.",
    "SAN-AGENT-007": "A promotion did all its steps, and the kernel does not report the device as "
    "served by this node. It is reported as failed.",
    "SAN-AGENT-008": "A new device was to be activated while its replicas were not connected. The "
    "promotion is tried again when they are.",
    "SAN-AGENT-009": "A data file is shorter than its replica was: its end is lost. The replica "
    "is not started, because a file grown again with zeros would count as an up-to-date replica. "
    "Its peer goes on serving. Remove the file, and the replica is filled from the peer.",
    "SAN-AGENT-010": "A replica was dropped from the device, and DRBD on this node is still "
    "connected to it. The next monitor tries again; the device is served meanwhile.",
    "SAN-AGENT-011": "A node was to become Secondary while one of its DRBD handlers was marking "
    "the peer as outdated, and the handler did not end in time. The node stays Primary: a mark "
    "written after the demotion could keep the device from being served anywhere.",
    "SAN-AGENT-012": "The cluster's configuration has no such device or node, or no longer has "
    "it. A handler that was to mark a replica as outdated marks nothing, and reads the "
    "configuration again.",
    "SAN-AGENT-013": "A replica's disk came back while its connected peer had none, and the peer "
    "may have newer data: it is not promoted before the peer's disk is back and DRBD has compared "
    "the two.",
    "SAN-AGENT-014": "A DRBD handler marks the peer's replicas of several devices in one change "
    "of the cluster's configuration. The cluster did not answer, and no mark is certain. I/O "
    "stays frozen, or the promotion waits; the handler asks again at once. Or a monitor marks the "
    "replicas of its node whose disks were dropped: the next monitors ask again.",
    "SAN-AGENT-015": "An action was not begun, because one before it on the same resource had not "
    "ended after half of the action's time: its process was killed, and is still in a system call "
    "that does not return, mostly of a disk. A stop does not wait longer, and goes on without it. "
    "A start is tried again by itself once that process has ended, up to four times in a row.",
    "SAN-AGENT-016": "A device is going back to a restore point, and the kernel of the node that "
    "was to serve it still let hosts in: it is not served, as it may hold parts of two states. Or "
    "it awaits what its second site says, after the whole cluster was started anew.",
    "SAN-AGENT-017": "A start was waiting until fewer others run on its node, and a node left the "
    "cluster. The failover has to wait for all actions that were ordered before it, so this one "
    "ended without having begun; the pool agent has Pacemaker repeat it after a minute. It is not "
    "urgent: another node served the device.",
    "SAN-AGENT-018": "A parameter of the resource `sanctl-reached` in the cluster's configuration "
    "cannot be used: an address of the iscsi network that is no IP address, or a time or number "
    "out of range. The playbook writes them, and refuses such values itself.",
    "SAN-AGENT-020": "A device needs what the release of sanctl on this node does not know (its "
    "parameter `needs`, written by a later release with the feature): the node was off during an "
    "update, or went back to the release before. It keeps its replica in sync, has no promotion "
    "score and does not serve it, as it would do so wrongly. Update sanctl on the node.",
    "SAN-AGENT-021": "DRBD 9, and a device goes from three or four replicas to two: the node that "
    "serves has lost the peer that is to stay, and that one is not marked as outdated yet. The "
    "dropped replicas count towards the majority until it is, or is back; the next monitors try "
    "again.",
    "SAN-AGENT-022": "A monitor had no answer in time, on a busy node or one with a process that "
    "hangs, and no other node could serve a device that this one serves: the device is left as the "
    "kernel shows it, as a restart could end with the fencing of the last node that serves. Or a "
    "change of parameters had none, and the next monitor makes it. It ends by itself with what "
    "keeps the node busy; see what that is (top, dmesg).",
    "SAN-AGENT-019": "A node could not look whether it reaches the addresses on the iscsi network: "
    "the kernel refused a socket or a packet for a reason of the node itself, not of the network. "
    "Nothing is published by such a look, so no device moves by it. After two minutes without a "
    "look the resource fails, and Pacemaker starts it again; meanwhile the node has no value, and "
    "no penalty.",
    "SAN-CACHE-001": "Writes that were in RAM could not be written to the disk. They are lost on "
    "this replica, which counts as suspect from now on and is filled again from its peer.",
    "SAN-CACHE-002": "Write-through and write-back need a filesystem on which a file can be made "
    "synchronous, such as ext4 or XFS.",
    "SAN-CACHE-003": "A replica crashed with acknowledged writes in RAM, or could not flush them. "
    "DRBD would treat it as a good replica; sanctl keeps it from serving until another replica "
    "serves and fills it, or an operator decides.",
    "SAN-CACHE-004": "The release of sanctl on this node does not know a device's cache policy: a "
    "newer one has set it. The replica runs in write-through, and is stopped as one in write-back, "
    "until sanctl is updated on the node or the policy is changed.",
    "SAN-CACHE-005": "A dirty limit is possible with write-back only, and is at least 1 MiB.",
    "SAN-CACHE-006": "The device is too small for a flash cache.",
    "SAN-CACHE-007": "bcache, the kernel's flash cache, did not accept a device or did not "
    "release it. The kernel's log (dmesg) has the reason; another program may have the device "
    "open, or it is mounted: such a device is not stopped.",
    "SAN-CACHE-008": "The pool's disk is not used through its flash cache on this node.",
    "SAN-CACHE-009": "A flash device belongs to one pool, and its superblock names the pool. This "
    "one names another pool.",
    "SAN-CACHE-010": "The device below a read cache in RAM still offers discards. The read cache "
    "is not used, because it would return data that hosts have unmapped.",
    "SAN-CACHE-011": "A read cache in RAM is at least 4 MiB, and not larger than its device; "
    "'none' removes it.",
    "SAN-CACHE-012": "More was in RAM than an action of the cluster has time to write to the disk. "
    "Each write is stable from then on, so what is left becomes less, and the next monitor goes "
    "on; until all is on the disk the replica counts as one in write-back. A replica that is "
    "stopped meanwhile keeps its marker: the kernel writes the rest, and a loss of power before "
    "the next start has ended write-back makes the replica suspect.",
    "SAN-DM-001": "The kernel's device-mapper did not report which device lies below one of a "
    "replica's devices. sanctl concludes nothing from that; the kernel's log (dmesg) may have "
    "more.",
    "SAN-DM-002": "The kernel's device-mapper refused to create, change or remove a device, or did "
    "not answer in time: I/O in flight below the device does not end. The old table stays in force "
    "then. The kernel's log (dmesg) may have more.",
    "SAN-DRBD-001": "The DRBD module is not loaded, or is of a version that sanctl does not know.",
    "SAN-DRBD-002": "DRBD's metadata of a replica cannot be read, so the size of the replica is "
    "not known.",
    "SAN-DRBD-003": "A device with three or four replicas cannot be started on a node whose "
    "kernel has DRBD 8.4 loaded; the node where the device was created has DRBD 9.",
    "SAN-DRBD-004": "A replica's DRBD minor is used by another resource on this node, for example "
    "by one that was left up from a deleted device. The replica's disk was not attached.",
    "SAN-FEN-002": "This node asked a fencing device for its status and got no answer. Nothing "
    "was switched. If the device's node fails now, no other node can make sure that it is off.",
    "SAN-FEN-003": "Fencing was ordered and not confirmed. The node may or may not be off: other "
    "nodes take over none of its devices until that is certain.",
    "SAN-FEN-004": "The CIB contains no fencing device for this node, or each is disabled.",
    "SAN-FEN-005": "'node fence' was run on the node that it is to fence. The command would be cut "
    "off with it: run it on another node. A node that is to restart in order needs no fencing.",
    "SAN-FEN-007": "A node was to be confirmed as off and is on: it is this node, a member of "
    "Corosync's membership, answers a ping at one of its addresses, or Pacemaker does not show it "
    "as lost. Confirmed all the same, two nodes would serve. Switch it off first; if another "
    "machine has the address, take that off the network.",
    "SAN-FEN-008": "The cluster was told that a node is off, and the fencer has not taken that, or "
    "is not known to have. Nothing is switched by it; 'sanctl status' shows whether the node "
    "counts as fenced.",
    "SAN-FEN-006": "The cluster was set up by a release whose CIB has no constraint for drained "
    "nodes: setting the attribute moves nothing. The playbook makes the constraint.",
    "SAN-LIO-001": "The kernel's iSCSI target refused a setting; the message says which and why.",
    "SAN-LIO-002": "A target has no ALUA group of this node: sanctl did not set it up, or only in "
    "part.",
    "SAN-LIO-003": "The kernel did not bind a LUN to this node's ALUA group. Such a LUN would be "
    "reported as active on every node, so this counts as a failure.",
    "SAN-LIO-004": "This kernel cannot ask one host of a target for authentication and another "
    "not: the setting came with Linux 5.19. Hosts with CHAP do not get in here.",
}
