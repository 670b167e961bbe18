# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of devices: their replicas, how they heal and sync, who may log in.

SAN-DEV, SAN-HEAL, SAN-HOST, SAN-REP, SAN-SYNC.
"""

from __future__ import annotations

CODES = {
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
    "SAN-DEV-014": "The device is stopped: its deletion has begun, or somebody has disabled it. "
    "Finish the deletion, or have the device started again, by removing the meta attribute "
    "target-role from its clone.",
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
    "Pacemaker, or a node that is needed for the change is. The change would be stored and not "
    "carried out. What is known of replicas may be from before, so nothing is discarded for it.",
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
    "SAN-SYNC-001": "A schedule of `sanctl device verify` is a day and an hour.",
    "SAN-SYNC-002": "The device's attribute `sync` in the CIB contains a key that this version of "
    "sanctl does not know. The agents use the defaults.",
    "SAN-SYNC-003": "A part of a sync policy has an invalid value. Nothing was changed.",
    "SAN-SYNC-004": "The highest rate of a resync is below its lowest.",
    "SAN-SYNC-005": "A repair is ordered after somebody has looked at the result of a verify, so "
    "it cannot be scheduled.",
    "SAN-SYNC-006": "A full resync above some percent is made with DRBD 8.4 only. DRBD 9 sends "
    "what differs. Nothing was changed.",
}
