# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the SAN-... codes of commands and agents, and all codes, for `sanctl explain`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from sanctl.cli.finding_codes import CODES as FINDING_CODES
from sanctl.cli.point_codes import CODES as POINT_CODES
from sanctl.cli.reservation_codes import CODES as RESERVATION_CODES

_CODES = {
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
    "SAN-AGENT-019": "A node could not look whether it reaches the addresses on the iscsi network: "
    "the kernel refused a socket or a packet for a reason of the node itself, not of the network. "
    "Nothing is published by such a look, so no device moves by it. After two minutes without a "
    "look the resource fails, and Pacemaker starts it again; meanwhile the node has no value, and "
    "no penalty.",
    "SAN-BUG-001": "sanctl met a condition that its authors did not expect. The lines printed "
    "before the error say where. Changes that the command had made by then are in the journal "
    "(journalctl SYSLOG_IDENTIFIER=sanctl).",
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
    "SAN-CIB-001": "The output of cibadmin is not a CIB. Another program of that name may come "
    "first in PATH, or the tools and the daemons are of different versions.",
    "SAN-CIB-002": "The output of crm_mon is not a cluster status.",
    "SAN-CLI-001": "The command line is wrong: an unknown command or option, or a missing one. "
    "Nothing was done.",
    "SAN-CLI-002": "A question was answered with no. Nothing was changed.",
    "SAN-CLI-003": "/etc/sanctl/cluster.toml cannot be read. The rollout writes the same file on "
    "every node; sanctl runs on the nodes of the cluster, as root.",
    "SAN-CLI-004": "There is no such code.",
    "SAN-CLI-005": "The command was ended by its user, by the end of its terminal, as where a "
    "connection of ssh is lost, or by SIGTERM. What it had ordered by then goes on: the cluster "
    "carries it out. Of a command of several steps, such as 'node replace', 'node remove', 'device "
    "replicas' or 'cluster strategy set', those that were not ordered yet wait for the same "
    "command, run again.",
    "SAN-CLU-001": "This part of the cluster has no quorum. It cannot know what the other part "
    "does, so it changes nothing. Run the command where the majority is, or bring nodes back.",
    "SAN-CLU-002": "Pacemaker does not answer on this node: it is not running, is just being "
    "started, or this machine is not a node of a cluster.",
    "SAN-CLU-003": "Pacemaker answers only root and members of the group haclient.",
    "SAN-CLU-004": "Every change is planned on one version of the CIB and accepted for that "
    "version only. Other programs or operators changed the CIB in between, each time, so nothing "
    "was changed. Run the command again.",
    "SAN-CLU-005": "Pacemaker refused a change. Nothing was changed. The message is Pacemaker's "
    "own.",
    "SAN-CLU-006": "Pacemaker hands the whole CIB, compressed, as one message to all that ask for "
    "it. A CIB that exceeds the IPC buffer reaches nobody: no scheduler runs, nothing fails over. "
    "The buffer is sized by sanctl_corosync_devices of the inventory, and read when Pacemaker "
    "starts. More devices than that are accepted while the compressed CIB has room; hosts and "
    "restore points take room, too.",
    "SAN-CMD-001": "A program that sanctl needs is not installed on this machine.",
    "SAN-CMD-002": "A program did not end within its time limit and was killed.",
    "SAN-CMD-004": "A program could not be started: the node had no memory, no process or no file "
    "handle left at that moment.",
    "SAN-CMD-005": "A program ended without an error, and what it printed is not XML: it was "
    "killed half-way, or the node has no memory left.",
    "SAN-CMD-003": "A program failed; the message contains its output.",
    "SAN-DEV-001": "A device of that name exists. Names are unique in a cluster.",
    "SAN-DEV-002": "There is no device of that name. 'sanctl device list' shows all devices.",
    "SAN-DEV-003": "A device has one to four replicas.",
    "SAN-DEV-004": "Three and four replicas need DRBD 9, which is not part of the Linux kernel; "
    "the kernel's own DRBD 8.4 connects two nodes. Install the module and tools of DRBD 9 on "
    "every storage node.",
    "SAN-DEV-005": "Each replica needs a node of its own, and the pool is on fewer nodes than "
    "replicas were requested.",
    "SAN-DEV-006": "The number of named nodes must be the number of replicas.",
    "SAN-DEV-007": "A node holds at most one replica of a device.",
    "SAN-DEV-008": "Only a node with a replica can serve a device.",
    "SAN-DEV-009": "A device's name becomes part of ids in the CIB, which are unique there. "
    "Another element, such as another resource or a constraint, has one of these ids.",
    "SAN-DEV-010": "A deleted device of that name has left data on a node that has not removed it "
    "yet, in most cases because the node is away. A new device of that name would hide the note "
    "to remove it.",
    "SAN-DEV-011": "Each device has a DRBD minor number; all are in use.",
    "SAN-DEV-012": "A device cannot shrink: the data that hosts keep at its end would be cut off. "
    "A growth that could not begin is taken back by 'sanctl device resize' to the size before, "
    "while every replica, on a node that is online, says that it has that size and that its file "
    "has not grown.",
    "SAN-DEV-013": "A device grows only with all its replicas present, connected and up to date. "
    "Growing one replica alone would leave replicas of two sizes.",
    "SAN-DEV-014": "The deletion of the device has begun: the device is stopped. Finish the "
    "deletion, or take it back by removing the meta attribute target-role from the device's clone.",
    "SAN-DEV-015": "A device can move only to a node that has a replica of it.",
    "SAN-DEV-016": "The node cannot serve the device now: the node is away or in standby, the "
    "replica is not started there, or a location constraint keeps the device off it.",
    "SAN-DEV-017": "The node's replica is not known to be up to date. Serving from it would lose "
    "writes: wait until it is in sync.",
    "SAN-DEV-026": "A device follows a resource of Pacemaker that runs on one node at a time: a "
    "primitive or a group that is not sanctl's.",
    "SAN-DEV-027": "The device follows a guest that runs on another node, and would go back there "
    "by itself.",
    "SAN-DEV-028": "A node with a replica runs a release of sanctl that is older than devices that "
    "follow guests, is down, or has an error of its pool. Such a release gives a replica that is "
    "disconnected a score at which Pacemaker may try to promote it where the guest runs.",
    "SAN-DEV-018": "The device, or the whole cluster, is unmanaged or in maintenance mode in "
    "Pacemaker. A change would be stored and not carried out. What is known of replicas may be "
    "from before, so nothing is discarded for it, also where a node alone is in maintenance.",
    "SAN-DEV-019": "A resource in the CIB uses sanctl's agent and is not a valid device: a "
    "parameter is missing or was changed by hand, or a later release than this node's wrote it. "
    "Where the device may be is not known, so nothing is done that could cost its last replica.",
    "SAN-DEV-022": "A device was deleted and created anew under its name while the command ran or "
    "waited for an answer. The new one holds other data, and is left alone.",
    "SAN-DEV-024": "No device of this cluster has that WWID, serial, IQN or minor. What a host "
    "sees may be another cluster's, or one that was deleted and is still known to its multipath.",
    "SAN-DEV-025": "A device is found by a WWID as multipath shows it, a serial or its first eight "
    "digits or more, an IQN, a minor or /dev/drbdMINOR.",
    "SAN-DEV-023": "Hosts are logged in to a device that is to be deleted, or a node with a "
    "replica does not say which are. A host whose multipath queues gets no error: it keeps what it "
    "writes, and would write it to a new device of the same name. Sessions are published about "
    "every ten seconds.",
    "SAN-DEV-021": "Each new device needs a name of its own; nothing was created.",
    "SAN-DEV-020": "The device's agent failed on a node; the message contains the agent's reason. "
    "Pacemaker remembers the failure until it is cleaned up, and may keep the device off the node "
    "until then.",
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
    "SAN-FEN-004": "The CIB contains no fencing device for this node.",
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
    "SAN-HEAL-001": "'device heal' is for replicas that have diverged, or of which none may be "
    "served. Replicas that are only disconnected resync by themselves.",
    "SAN-HEAL-002": "That replica cannot be kept: its node is away, its data is not known or not "
    "complete, or the other replica has all of its data and more.",
    "SAN-HEAL-003": "A node that does not answer may still be serving. Before its replica can be "
    "discarded, the node has to be fenced or to come back.",
    "SAN-HEAL-004": "Hosts use the replica that is to be discarded. If they keep it mounted, "
    "their filesystems would mix cached data with other data and be destroyed. '--accept "
    "SAN-HEAL-004' states that no host uses the device.",
    "SAN-HEAL-005": "Between the question and the answer the replicas changed from what was "
    "shown. Nothing was done.",
    "SAN-HEAL-006": "The agents have not yet published which data generation each replica has, so "
    "the loss of a choice cannot be computed.",
    "SAN-HEAL-007": "Of three and four replicas some have diverged. The message says what keeping "
    "that replica would lose; discarding the others is done with DRBD's own tools.",
    "SAN-HEAL-008": "No node serves the device, and no operator can decide which replica to keep: "
    "a replica may still be promoted, a node has to be fenced or to come back, or an agent has not "
    "published yet which data its replica holds. The message says what is waited for.",
    "SAN-HOST-001": "There is no host of that name; 'sanctl host list' shows those there are. A "
    "device may also let an initiator in by its IQN alone: such a host has no name.",
    "SAN-HOST-002": "A host of that name exists already.",
    "SAN-HOST-003": "The IQN belongs to another host. Each IQN belongs to one host, so that one "
    "place says what an initiator may use, and how it logs in.",
    "SAN-HOST-004": "The host may still use devices. It is taken off them first, so that no "
    "session ends by surprise.",
    "SAN-HOST-005": "A device lets one of the host's IQNs in by itself, without authentication. "
    "CHAP would not hold there.",
    "SAN-HOST-006": "A host has at least one IQN, by which its initiator logs in.",
    "SAN-HOST-007": "A CHAP user name has letters, digits and . _ : @ -, begins with a letter or "
    "digit, has at most 223 characters, and does not begin with NULL, which the kernel takes for "
    "none.",
    "SAN-HOST-008": "In mutual CHAP the target authenticates to the host after the host has: there "
    "is none without CHAP.",
    "SAN-HOST-009": "An entry of the CIB should be a host and cannot be read as one.",
    "SAN-HOST-010": "The IQN is one of a host, and hosts are allowed and denied as a whole: with "
    "--host.",
    "SAN-HOST-011": "The secret of a host with CHAP is missing on this node, others than root can "
    "read it, or hosts could not use it. The host does not get in on this node until the playbook "
    "has put it there (sanctl_host_secrets); sessions that it has go on.",
    "SAN-HOST-012": "An entry of the CIB that is a host, or a device, cannot be read by this "
    "release. Until it can, no IQN is given to a host or a device, and no host is changed: the IQN "
    "could be one that logs in as another host, with CHAP. What is served goes on.",
    "SAN-HOST-013": "There is no host group of that name; 'sanctl host group list' shows those "
    "there are.",
    "SAN-HOST-014": "A host group of that name exists already with other hosts, or a device names "
    "one of that name.",
    "SAN-HOST-015": "The host is in a host group. It can be in one at most, so that one place says "
    "which devices it shares with others.",
    "SAN-HOST-016": "The host has the device through its host group, of which all hosts may use "
    "the same devices: it is neither allowed nor denied by itself there. Take it out of the group, "
    "or the device from the group.",
    "SAN-HOST-017": "Devices are given to the host group. They are taken from it first, so that no "
    "session ends by surprise.",
    "SAN-HOST-018": "An entry of the CIB that is a host group cannot be read by this release: it "
    "may have any host. Until it can, no host comes into a group, and none is renamed or deleted. "
    "A host can be taken off a device by itself.",
    "SAN-HOST-019": "The host is in a host group. It is taken out first, so that no session ends "
    "by surprise.",
    "SAN-HOST-020": "The device was to be taken from a host group that it is not given to, and it "
    "lets a host of the group in by itself. What was given to a host by itself is taken from it by "
    "its name.",
    "SAN-HOST-021": "Hosts tried to log in to a target of this node without the CHAP that they "
    "have to use, or with a wrong secret. The line says how many logins that were since the last "
    "such line, at most one a minute for each target, and the initiator and address of the last "
    "login with it that failed, for whatever reason.",
    "SAN-LIO-001": "The kernel's iSCSI target refused a setting; the message says which and why.",
    "SAN-LIO-002": "A target has no ALUA group of this node: sanctl did not set it up, or only in "
    "part.",
    "SAN-LIO-003": "The kernel did not bind a LUN to this node's ALUA group. Such a LUN would be "
    "reported as active on every node, so this counts as a failure.",
    "SAN-LIO-004": "This kernel cannot ask one host of a target for authentication and another "
    "not: the setting came with Linux 5.19. Hosts with CHAP do not get in here.",
    "SAN-NAME-001": "A device's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-002": "The name is one that sanctl, Pacemaker or DRBD uses for something else: "
    "sanctl..., pool..., reach..., all, votes, minor-..., delete-..., outdated-..., fence..., "
    "nodes..., status..., drained-..., or one that ends as an id of another device does: in -meta, "
    "-params, -replicas, -outdated, -reach, -prefer, -move, -start-0s, ... or '-'.",
    "SAN-NAME-003": "A node's name is what 'uname -n' prints on it, in lower case.",
    "SAN-NAME-004": "A pool's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-005": "An iSCSI name is iqn.YYYY-MM.reversed.domain, in most cases with :name after "
    "it, of a-z, 0-9, '.', '-' and ':' and at most 223 bytes; or eui. and 16 hex digits. On a "
    "Linux host it is in /etc/iscsi/initiatorname.iscsi.",
    "SAN-NAME-006": "A size is a number and a unit (K, M, G, T, P: binary), and comes to a "
    "positive multiple of 4 KiB.",
    "SAN-NAME-007": "A host's name is 1 to 63 of a-z, 0-9, '-' and '.', and begins and ends with a "
    "letter or digit.",
    "SAN-NAME-010": "A host group's name is 1 to 63 of a-z, 0-9, '-' and '.', and begins and ends "
    "with a letter or digit.",
    "SAN-NAME-009": "A repository's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-008": "A restore point's name is 1 to 40 of a-z, 0-9 and '-', and begins and ends "
    "with a letter or digit; for-backup and for-backup-XXXXXXXX are those of backups.",
    "SAN-NODE-001": "There is no node of that name in the cluster.",
    "SAN-NODE-002": "A witness votes and holds no data.",
    "SAN-NODE-003": "The node is not in service, so nothing can be created on it now.",
    "SAN-NODE-004": "The node serves a device, or is about to, that no other node could take over: "
    "no other replica is up to date, the other nodes leave or are away, or Pacemaker is told to "
    "leave the device alone. In standby the device would stop. '--accept SAN-NODE-004' goes on "
    "despite that.",
    "SAN-NODE-005": "The node holds replicas, so it cannot be taken out of the cluster. "
    "'sanctl node replace' moves all of them to another node.",
    "SAN-NODE-006": "The node was away when devices were deleted or replicas dropped, and still "
    "has their data. Taken out of the cluster it would not be told to remove that; if it ever "
    "joined again, an old replica could be taken for a new one. '--accept SAN-NODE-006' goes on "
    "despite that, where its disks are gone or will be emptied.",
    "SAN-NODE-007": "Only a node that has stopped can be taken out of the cluster: the others "
    "would fence one that runs. A node whose state is not known has to be fenced first.",
    "SAN-NODE-008": "A node that stays does not run, or too few would stay. Every node reads its "
    "own corosync.conf when it starts, so all that stay have to change theirs.",
    "SAN-NODE-009": "The nodes count the vote of a quorum device, or each of two is enough by "
    "itself. While a member is taken out, two parts that share no node could both have quorum.",
    "SAN-NODE-010": "A witness node runs no agent that changes its corosync.conf. The command "
    "does that where it runs.",
    "SAN-NODE-011": "A node's corosync.conf lacks a member that its running Corosync has, as after "
    "a 'sanctl node remove' that gave up. All nodes load their files at once: that member would be "
    "lost to those nodes, and be fenced. The files have to agree first.",
    "SAN-NODE-012": "DRBD keeps a bit in memory for each 4 KiB of each replica of a node, 32 MiB "
    "for each TiB, with DRBD 9 three times as much. A node gets no new replica, and none of its "
    "replicas grows, where that would come to more than half of its memory: it would run out of "
    "memory when many devices start or fail over, and be fenced. A replica that a device has lost "
    "is worth that risk: 'sanctl device replicas' and 'sanctl node replace' take --accept "
    "SAN-NODE-012, up to three quarters of the memory. Of a node whose release of sanctl does not "
    "publish its memory nothing is refused.",
    "SAN-NODE-013": "This storage node is a host itself, and something on it has the disk of a "
    "device open: its sessions stay. Where that is so at the end of a stop, what was not written "
    "yet is lost, unless another node serves the device.",
    "SAN-POOL-001": "The pool's marker is missing: its filesystem is not mounted. An empty "
    "directory never counts as an empty pool.",
    "SAN-POOL-002": "The pool's marker names another pool: another filesystem is mounted there.",
    "SAN-POOL-003": "The pool's filesystem cannot be read.",
    "SAN-POOL-011": "There is no pool of that name in cluster.toml.",
    "SAN-POOL-012": "The pool has too little room on that node. Room is the free space less what "
    "the pool's devices may still come to occupy, and less a reserve of one percent.",
    "SAN-POOL-013": "The pool on that node is not usable, or has not reported.",
    "SAN-POOL-014": "That node is not one of the pool's nodes.",
    "SAN-POOL-015": "The cluster has none or several pools, so one must be named.",
    "SAN-POOL-016": "Data of the pool is on flash that is missing or has failed. The slow disk "
    "alone has old data, so it is not used. Bring the flash back, or fill the pool again from its "
    "peers: docs/howto/pool-cache.md.",
    "SAN-POOL-017": "The disk that the inventory names for a cached pool holds other data, or "
    "what is mounted as the pool is on another one, and its data may be on flash alone.",
    "SAN-POOL-018": "The pool has no flash cache in cluster.toml.",
    "SAN-POOL-019": "A device that is to become part of a pool holds data: blkid finds a "
    "signature, or the first MiB is not zero. sanctl does not overwrite data that it does not "
    "know.",
    "SAN-POOL-020": "Preparing a pool with --anew discards its replicas on this node, so each of "
    "its devices must have a good replica on another node, and so must one whose dropped replica's "
    "files are still on this node. One that was just filled is good once "
    "what the resync wrote was flushed, within seconds as a rule: 'journalctl -u sanctl-resync' on "
    "its node.",
    "SAN-POOL-021": "The pool's files are in use on this node. A node in standby uses none.",
    "SAN-POOL-022": "A device that the inventory names for a cached pool does not exist. The pool "
    "may be in use with another one all the same, and its data be on flash alone.",
    "SAN-POOL-023": "The pool's filesystem has shut itself down after an error of its disk and "
    "takes no writes. It is mounted again when the disk answers and nothing uses it, and the "
    "replicas in it are filled from their peers. With flash, both are put together before.",
    "SAN-POOL-024": "The mode of a pool's flash is stored. A node of the pool is in standby or "
    "away and has not been seen in that mode; its data may be on that flash alone, so leave the "
    "flash in until the same command ends with exit status 0.",
    "SAN-POOL-025": "A loop device could not be attached to its file, detached from it or changed; "
    "the message says why.",
    "SAN-POOL-026": "New metadata was to be written to a loop device that is in use, or under a "
    "disk that is attached. Nothing was written.",
    "SAN-POOL-027": "A device of a cached pool cannot be read. An unreadable device does not "
    "count as blank: nothing was written to it.",
    "SAN-POOL-028": "'sanctl pool prepare NAME --anew' was interrupted on this node: the slow "
    "disk holds parts of the old data. It is not used until the same command has ended.",
    "SAN-POOL-029": "The pool was made on this node before, and now its slow disk or its "
    "filesystem is blank or another's, or its marker is gone. The disk may have been replaced, or "
    "read wrongly. The pool is never made again automatically: 'sanctl pool prepare NAME --anew' "
    "does that, and the replicas are filled from their peers.",
    "SAN-POOL-036": "The pool's filesystem is mounted read-only: mount(8) does so by itself, and "
    "calls it a success, where the disk was write-protected at that moment. No replica is started "
    "or created in it. Once it is mounted read-write the starts that failed are tried again.",
    "SAN-POOL-035": "The folder of the node's notes of its pools is missing, as where /var is a "
    "filesystem of its own that is not mounted. A missing note would permit to empty flash that "
    "may have the only copy of acknowledged writes, so the pool is not put together.",
    "SAN-POOL-034": "The filesystem of the pool has a largest file, and the device would be "
    "larger: ext4 with blocks of 4 KiB ends at 16 TiB. Of a node whose release of sanctl does not "
    "publish it nothing is refused.",
    "SAN-POOL-033": "A pool has an id on each node but where it began with a release that gave "
    "none: in its filesystem and in a note on the node's own disk. "
    "They differ, or one of both is missing: another filesystem of the pool is mounted, such as "
    "the one that it had before, whose replicas are old. Nothing of it is used. --accept "
    "SAN-POOL-033 makes it the pool's again; its replicas are then filled whole from the one that "
    "serves.",
    "SAN-POOL-032": "What is mounted at the path of a pool without flash is no new and empty "
    "filesystem, or nothing is mounted: 'sanctl pool prepare NAME --anew' marks nothing else, and "
    "formats nothing.",
    "SAN-POOL-031": "'sanctl pool prepare NAME --anew' found, with the pool out of use and just "
    "before it would have discarded anything, that a replica here may be needed: another one was "
    "lost after the first check, or the cluster does not answer any more. Nothing was discarded; "
    "the same command without --anew mounts the pool again. The CIB may name the node no more for "
    "the restore points in the message: with the pool mounted its agent adds it again.",
    "SAN-POOL-030": "A step of preparing a pool had no effect. The steps before it stay, and the "
    "command may be run again.",
    "SAN-QUO-001": "Corosync refused to read its configuration again. It goes on with the one it "
    "has; the nodes' files are already those of the next step, which is safe.",
    "SAN-QUO-002": "A strategy is changed only with every storage node online. A node that is "
    "away would come back with the old way of counting votes.",
    "SAN-QUO-003": "A node did not follow a change of strategy in time, or a quorum device has "
    "not given its vote. Between the steps every storage node is needed for quorum: no device can "
    "be served twice, and no device is served if a node is lost now.",
    "SAN-QUO-004": "The cluster counts votes as the strategy asks, and its quorum device gives no "
    "vote: its host is away, or cannot be reached. The command changed nothing. A run of the "
    "playbook with --limit says so and goes on.",
    "SAN-REP-001": "The replica to be dropped is the last one that is known to be up to date. "
    "Known means: a node of this cluster serves from it now, or it is in sync with that one. "
    "One that was just filled counts once what the resync wrote was flushed, within seconds as a "
    "rule: 'journalctl -u sanctl-resync' on its node. There is no override: let another replica "
    "get in sync, or delete the device.",
    "SAN-REP-002": "Which replica of the device is the newest is not known: no node serves the "
    "device, or the serving node has no good replica of its own, or its I/O is frozen. Replicas "
    "are not added or dropped in that state.",
    "SAN-REP-003": "A node whose replica is to be dropped does not answer and is not fenced: it "
    "may still serve.",
    "SAN-REP-004": "The node still has the data of an earlier replica of this device, which its "
    "pool agent is to remove: once another node serves the device from a good replica, as these "
    "files may be the best there is until then (docs/howto/replicas.md). A new replica begins with "
    "new metadata, because the old bitmap does not describe the new data.",
    "SAN-REP-005": "A resize of the device is under way. A new replica gets the size that the "
    "device has: wait until all replicas have grown.",
    "SAN-REP-006": "The request contradicts itself: a node is named twice, or more nodes are "
    "named than there are to be replicas.",
    "SAN-REP-007": "No majority of the device's replicas would be in sync, and DRBD 9 counts "
    "them: its I/O would freeze until another replica is connected. Bring nodes back, or first "
    "drop the replicas of nodes that are gone.",
    "SAN-REP-008": "A step was refused after others had been done (exit status 8): the line says "
    "which were done, the lines before it why the next one was refused.",
    "SAN-REP-009": "The command ended before the replicas of the device were as asked: the line "
    "says what is left as it is now, and how to go on with it or take it back.",
    "SAN-REP-010": "After the drop one good replica would be left, and acknowledged writes may be "
    "in its node's RAM alone: it is in write-back, or does not say that it is not. A loss of power "
    "before they are flushed would lose them, as the files of the other replica are removed at "
    "once. Change the cache policy first: the command for that returns after the flush.",
    "SAN-RISK-001": "The strategy heartbeat without fencing. If all links are lost, each node "
    "takes the other for dead, and both serve: from then on what hosts write exists in two "
    "versions, of which one will be discarded. This risk can be accepted by its code "
    "(accept_risks).",
    "SAN-RISK-004": "Fewer good replicas than wanted while a replica moves: DRBD 8.4 connects two "
    "nodes, so the old replica is dropped before the new one is filled. If the remaining replica "
    "fails meanwhile, the device is lost. This risk can be accepted by its code (--accept).",
    "SAN-SYNC-001": "A schedule of `sanctl device verify` is a day and an hour.",
    "SAN-SYNC-002": "The device's attribute `sync` in the CIB contains a key that this version of "
    "sanctl does not know. The agents use the defaults.",
    "SAN-SYNC-003": "A part of a sync policy has an invalid value. Nothing was changed.",
    "SAN-SYNC-004": "The highest rate of a resync is below its lowest.",
    "SAN-SYNC-005": "A repair is ordered after somebody has looked at the result of a verify, so "
    "it cannot be scheduled.",
    "SAN-SYNC-006": "A full resync above some percent is made with DRBD 8.4 only. DRBD 9 sends "
    "what differs. Nothing was changed.",
    "SAN-WAIT-001": "The change was made, and its effect was not seen before the deadline. In "
    "most cases the cluster goes on by itself; the message says what was seen last.",
}


def all_codes() -> Mapping[str, str]:
    """Return every code with its meaning; those of the laboratory only where it is installed."""
    from sanctl.config.codes import CODES as CONFIG_CODES  # noqa: PLC0415 - only when asked for

    laboratory: Mapping[str, str] = {}
    if importlib.util.find_spec("sanctl.lab") is not None:
        laboratory = importlib.import_module("sanctl.lab.codes").CODES
    found = {
        **_CODES,
        **POINT_CODES,
        **RESERVATION_CODES,
        **FINDING_CODES,
        **CONFIG_CODES,
        **laboratory,
    }
    return dict(sorted(found.items()))
