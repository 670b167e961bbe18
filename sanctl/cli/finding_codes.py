# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the SAN-DOC and SAN-HLT codes: what `sanctl doctor` and `sanctl status` find."""

from __future__ import annotations

CODES = {
    "SAN-DOC-001": "Corosync and Pacemaker must run on every node.",
    "SAN-DOC-002": "The service runs, but will not be started at the next boot: the node would "
    "stay away from the cluster, and its devices with one replica less.",
    "SAN-DOC-003": "target.service restores a stored target configuration at boot and clears the "
    "running one at shutdown. Both would remove sanctl's targets while hosts use them, so the "
    "service must be masked.",
    "SAN-DOC-004": "systemd did not answer, so the state of services is not known.",
    "SAN-DOC-005": "sanctl-drain.service and sanctl-replicas.service do nothing until the node "
    "stops. Then the first lets other nodes serve the node's devices before Pacemaker stops; the "
    "second, before the network goes down, takes down replicas that Pacemaker has left up. If a "
    "unit is not active, its part is not done.",
    "SAN-DOC-006": "sanctl-actions.service has what the agents and DRBD's handlers need imported, "
    "and forks a process for each action. While the service is not active, each action starts an "
    "interpreter of its own: nothing else changes, but a failover of many devices takes longer.",
    "SAN-DOC-007": "unattended-upgrades is switched on and may update Pacemaker, Corosync, libqb, "
    "DRBD's programs or the kernel: neither its list Package-Blacklist nor `apt-mark hold` "
    "excludes them. Such an update stops the node's replicas when it likes.",
    "SAN-DOC-010": "A storage node needs this kernel module; or a newer kernel is installed "
    "that has no module of the DRBD that runs, which shows after a boot otherwise.",
    "SAN-DOC-011": "DRBD keeps a bit in memory for each 4 KiB of each replica of this node, 32 MiB "
    "for each TiB, with DRBD 9 three times as much. That is more than a quarter of the node's "
    "memory, and buffers, sessions and the actions of a failover come on top.",
    "SAN-DOC-020": "The cluster's DRBD secret, from which each device's own secret is made, is "
    "missing on this storage node.",
    "SAN-DOC-021": "The cluster's DRBD secret must be readable by root only.",
    "SAN-DOC-022": "Pacemaker runs sanctl's resource agents from this path.",
    "SAN-DOC-024": "cluster.toml names nodes as 'uname -n' prints them; this machine is not in it.",
    "SAN-DOC-030": "No known time service synchronizes the clock. Nothing fails at once; but the "
    "logs of several nodes do not line up, and constraints with an expiry date expire by this "
    "clock.",
    "SAN-DOC-008": "The node is a host of its own cluster's devices, and a unit that logs it in "
    "and out in order does not run.",
    "SAN-DOC-012": "Swap lies on a device that this storage node has imported as a host. Writing "
    "to it needs memory on the same node: the thread of the target that allocates it may wait for "
    "that very write.",
    "SAN-DOC-040": "A pool is a directory on a mounted filesystem that contains the marker "
    ".sanctl-pool. If the marker is missing, the filesystem is not mounted, and sanctl writes "
    "nothing.",
    "SAN-DOC-041": "The marker of the pool contains another pool's uuid: the wrong filesystem is "
    "mounted there.",
    "SAN-DOC-050": "This storage node asked a second site as it would for a copy, and got no right "
    "answer. Copies are sent by whichever node serves the device or has a standby of it: that "
    "another node gets in does not help while it is this one's turn.",
    "SAN-DOC-051": "This storage node had borg list a repository of backup.toml, and borg failed; "
    "or backup.toml cannot be read. Backups are made by whichever node has a replica in sync.",
    "SAN-DOC-052": "This storage node connected to another one as it would for a restore point, on "
    "TCP port 7799 of the sync network, and nothing answered. The node that serves a device asks "
    "each node that has a replica in sync, and where one is silent no restore point is made. The "
    "connection is tried and the release, not the secret.",
    "SAN-DOC-053": "This storage node connected to another one as it would for a change of "
    "persistent reservations, on TCP port 7798 of the sync network, and nothing answered. Each "
    "change waits until the other replica's node has stored it, or is marked as outdated.",
    "SAN-HLT-001": "The cluster has no designated controller: the nodes have not elected one. "
    "That is normal for seconds after a start or a failure.",
    "SAN-HLT-002": "The nodes that this node sees are not a majority.",
    "SAN-HLT-003": "maintenance-mode is set: Pacemaker repairs and takes over nothing. No monitor "
    "runs, so the states of devices and replicas may be those from before.",
    "SAN-HLT-004": "A resource in the CIB uses sanctl's agent and is not a valid device.",
    "SAN-HLT-010": "stonith-enabled is off. Without fencing a node that does not answer cannot be "
    "told from a dead one, and a takeover may destroy data.",
    "SAN-HLT-011": "There is no fencing device in the CIB.",
    "SAN-HLT-012": "None of the fencing devices names this node in pcmk_host_list or "
    "pcmk_host_map.",
    "SAN-HLT-013": "The fencing device is configured, and its monitor runs on no node. Fencing "
    "may still work, but is likely not to.",
    "SAN-HLT-014": "no-quorum-policy lets resources run without quorum.",
    "SAN-HLT-015": "A fencing device can be used only by nodes that it is to fence, or by no node "
    "that is online.",
    "SAN-HLT-016": "The last attempt to fence this node failed. Pacemaker remembers that until "
    "the failure is cleaned up or fencing succeeds.",
    "SAN-HLT-017": "startup-fencing is off. A node that starts and does not see the others starts "
    "and promotes replicas without having fenced them.",
    "SAN-HLT-020": "A node is not in full service: offline, unclean (its state is unknown until "
    "it is fenced), in standby, shutting down, in maintenance, or joining.",
    "SAN-HLT-021": "The watch over the iscsi network reports that this node reaches none of the "
    "addresses configured for it. The node's devices move to a node that does reach one, if there "
    "is one.",
    "SAN-HLT-022": "A node is being shut down, or was drained by hand or by 'sanctl node fence'. "
    "Other nodes serve its devices; its replicas stay in sync until they stop. The drain ends when "
    "the node leaves the cluster: a node that has rebooted is in full service.",
    "SAN-HLT-030": "A device is stopped because its deletion has begun.",
    "SAN-HLT-166": "Pacemaker is told to stop the device (target-role=Stopped), and no deletion of "
    "it has begun: it was disabled by 'pcs resource disable' or crm_resource, or a restart of it "
    "by crm_resource was interrupted. Its data is untouched; hosts wait. A deletion that an "
    "earlier release has begun looks the same: 'sanctl device delete' finishes it.",
    "SAN-HLT-031": "Pacemaker reports a device as active on two nodes. This must never happen: "
    "treat it as an emergency.",
    "SAN-HLT-032": "No node serves the device. Hosts wait, and get errors when their own timeouts "
    "expire.",
    "SAN-HLT-033": "Pacemaker was configured not to manage this device: by is-managed or "
    "maintenance of its clone or primitive, or in the resource defaults, which all resources have.",
    "SAN-HLT-034": "The node with this replica is away; the state of the replica is not known.",
    "SAN-HLT-035": "A replica is not up to date, not connected, or has not reported.",
    "SAN-HLT-036": "A Primary that has lost its peer freezes all I/O until it is certain that the "
    "peer cannot serve: until the peer is fenced, marked as outdated, or back.",
    "SAN-HLT-037": "No replica may be served, and none will be without a decision: each is marked "
    "as outdated, knows that it is outdated, is out of reach, sees no majority of the replicas "
    "that it knows, or has not connected since its start to the replica that is out of reach. If "
    "the node that served last can be brought back, that is better than any decision; otherwise "
    "'sanctl device heal NAME'.",
    "SAN-HLT-038": "The replicas have diverged: each has writes of its own, and they refuse to "
    "connect. Nothing is discarded automatically: 'sanctl device heal NAME' shows what each "
    "replica has.",
    "SAN-HLT-039": "A verify of a device found blocks that differ between its replicas, and no "
    "later one has found them the same, or repaired them. Hosts read the replica that serves; "
    "after a failover they would read the other one. Find out the cause, a disk that alters data, "
    "or memory, and which replica is wrong: a repair takes the blocks of the one that serves. If "
    "that is the wrong one, 'sanctl device move' first.",
    "SAN-HLT-040": "Pacemaker remembers a failed action. The failure is over, but until it is "
    "cleaned up Pacemaker may keep the resource off that node.",
    "SAN-HLT-041": "A resource runs that is not in the configuration: it was removed while it ran.",
    "SAN-HLT-050": "A move sets a constraint that prefers a node, removes it afterwards, and lets "
    "it expire if the command dies. This constraint is still there.",
    "SAN-HLT-051": "A deleted device's data is still on a node. The node's pool agent removes it; "
    "a node that is away does so when it is back.",
    "SAN-HLT-052": "A replica missed writes while it was disconnected, or is new. It is kept from "
    "serving until its resync is complete.",
    "SAN-HLT-053": "An outdated mark names a device that no longer exists. It does no harm.",
    "SAN-HLT-054": "A replica is not in the cache mode that is wanted; mostly it is in a safer "
    "one. With one replica in sync no write may be in RAM alone, so a device with one replica is "
    "never in write-back.",
    "SAN-HLT-055": "When redundancy is lost, the remaining replica flushes its cache before it "
    "goes on, and hosts wait that long. A lower dirty limit makes the flush shorter.",
    "SAN-HLT-056": "A change of the device's replicas was begun and is not finished: there are "
    "fewer or more replicas than wanted, or one is still being filled. The message says how to "
    "finish the change and how to take it back.",
    "SAN-HLT-057": "A replica crashed with acknowledged writes in RAM, or in a resync whose blocks "
    "were not flushed yet, or could not flush them. "
    "It is filled again once another replica serves. If all replicas are suspect, as after a "
    "power cut of both nodes, 'sanctl device heal' asks which one to keep.",
    "SAN-HLT-058": "Reads of a device are to be cached in RAM on the node that serves it, and are "
    "not, or not yet.",
    "SAN-HLT-059": "A node lets at most a fifth of its RAM be dirty. The dirty limits of its "
    "devices in write-back add up to more.",
    "SAN-HLT-060": "The clone sanctl-pools is missing from the CIB.",
    "SAN-HLT-061": "A pool on a node that is online is not usable, or has not reported.",
    "SAN-HLT-062": "80 percent of a pool are in use. The day on which it will be full is foretold "
    "from its growth in the last 24 hours.",
    "SAN-HLT-063": "The devices of a pool may still write more than the pool has free: something "
    "else takes its room. A write that finds none takes the replica's disk away.",
    "SAN-HLT-064": "95 percent of a pool are in use. Blocks are reserved for device files, so that "
    "hosts write on; what they have unmapped needs room again.",
    "SAN-HLT-070": "cluster.toml and the CIB do not have the same nodes.",
    "SAN-HLT-071": "A device is in a pool that cluster.toml does not have.",
    "SAN-HLT-072": "A device has a replica on a node that is not in cluster.toml's list of nodes "
    "of the pool.",
    "SAN-HLT-080": "Not all storage nodes count votes as their strategy requires. Most likely a "
    "change of strategy was begun and not finished. Critical where two parts of the cluster may "
    "both have quorum: the rule of two nodes with more in the list, or ways that share no node.",
    "SAN-HLT-081": "The quorum device gives no vote. If one more node is lost, no majority is "
    "left.",
    "SAN-HLT-082": "The cluster.toml of a node states a strategy that differs from that of the "
    "other nodes.",
    "SAN-HLT-083": "The list of nodes in a node's corosync.conf is not that of its running "
    "Corosync, or not that of another node: a 'sanctl node remove' gave up after some nodes had "
    "followed, or a reload was lost or refused. Nodes that start with different lists may not find "
    "each other.",
    "SAN-HLT-084": "A node has an order of 'sanctl node remove' that it has not carried out.",
    "SAN-HLT-090": "A pool's flash is changing to the wanted mode.",
    "SAN-HLT-091": "A pool's flash has failed or is missing. The slow disk serves without it.",
    "SAN-HLT-092": "The flash alone holds so much data that the slow disk needs minutes to take "
    "it.",
    "SAN-HLT-093": "The mode of a pool's flash on a node is not known, and the last known mode "
    "was not the wanted one: the node is in standby, offline, or does not report. The flash alone "
    "may hold data of the pool.",
    "SAN-HLT-094": "A host logs in with CHAP, and its secret is missing on a node, or cannot be "
    "used there: the host has no path over that node. Without the secret it is not let in.",
    "SAN-HLT-129": "The nodes of a device have different CHAP secrets for its hosts: one was away "
    "when a secret was changed. It lets hosts in by the old one, and refuses the new one. While a "
    "playbook changes secrets, node by node, it is so for a moment.",
    "SAN-HLT-098": "A schedule of restore points has made none for more than two of its intervals. "
    "It tries once in each interval, every hour at least, on the node that serves the device; what "
    "it could not do is in the journal there. What nobody made is not made up for.",
    "SAN-HLT-095": "The entry of a host in the CIB cannot be read by this release, or by none.",
    "SAN-HLT-110": "A device goes back to a restore point. Hosts are kept out until it is what it "
    "was then: they would see parts of two states. It goes on by itself, also after the death of "
    "a process or of a node. Where a device was held, it waits for a node that has not said what "
    "it has noted of that; the finding says so then.",
    "SAN-HLT-167": "A device is held as a copy at a second site (replicate failback --hold). No "
    "host is let in, on whichever node serves it, so nothing but a later copy changes it. That "
    "comes as what has changed since; 'sanctl replicate failback --release' lets hosts in. The "
    "finding says whether the roles have turned: critical where they have, as the hosts of neither "
    "device have it then, where the turn has broken off, and where it was taken over again.",
    "SAN-HLT-168": "Monitors of a device have no answer in time on a node, and their client "
    "answers for them (SAN-AGENT-022): a failed one could end with the fencing of a node without "
    "which a device cannot be served. The node is starved, or a process or a disk hangs. Until a "
    "monitor comes to its end nobody looks at the replica: hung I/O is not seen, and nothing is "
    "put right.",
    "SAN-HLT-169": "A timer's backups of a device into a repository have stopped: the newest one "
    "is older than twice the longest time between two runs of the timer, and no run has told that "
    "it failed. The timers are off or gone from the nodes, all nodes were down, or each has left "
    "the backup to another one. Or the newest one is said to be of a moment that is yet to come, "
    "by a clock that was ahead: its age is not known. What was written since is in no backup. Of "
    "several timers of a device and a repository the shortest interval counts, until 'sanctl "
    "backup forget', or 'sanctl backup expect' with another one.",
    "SAN-HLT-171": "A timer is to back a device up, and no run has told of a success or a failure "
    "since it was set up or ran first, twice its longest time between two runs ago. The timers are "
    "off or gone from the nodes, the command fails before it can ask the cluster, each node has "
    "left the backup to another one, the first one was on a node that is away since, or it is "
    "still under way. The device has no backup in that repository.",
    "SAN-HLT-172": "The last prune of a device's backups in a repository failed; the finding has "
    "the code of the failure, and since when none succeeds. Backups beyond those to keep stay, "
    "until the repository has no room for the next one. A full repository is the usual cause: "
    "borg needs some room even to delete. It ends with the next prune that succeeds, on whatever "
    "node, or by 'sanctl backup forget'.",
    "SAN-HLT-170": "A node has noted beside a device's data that the device is held as a copy at a "
    "second site, or is being filled from one, and the CIB is older than that: it was brought back "
    "by a node that was not there then, or had lost its power before Pacemaker wrote it. No host "
    "is let in on that node, no order of that CIB is carried out, and no restore point or backup "
    "is made of it or pruned. It ends once a node with the newer CIB is back, or by an order that "
    "is given now: that one lets no host in before the device is a whole copy, and waits with "
    "hosts out where it gets no further; another one may take its place.",
    "SAN-HLT-175": "A node cannot note beside a device's data by which order the device is held as "
    "a copy at a second site, or that it is held no more: its pool is full, or its disk takes no "
    "writes. Where it comes back with an older CIB it would go by what that says. It tries again "
    "with each monitor, and an order to fill the device does not begin before.",
    "SAN-HLT-112": "The newest copy of a device at a second site is older than its schedule "
    "allows: more than two intervals, and one to make it in. The standby tries again in each "
    "interval.",
    "SAN-HLT-113": "A device is given to a host group and does not let a host of it in. Commands "
    "change both at once; one of a release without host groups changes the access list alone. The "
    "agents go by the list: the host is kept out until a command that names device and group lets "
    "it in.",
    "SAN-HLT-114": "Host groups in the CIB contradict one another: a device is given to a group "
    "that does not exist, or a group has a host that does not exist or is in another group, too. "
    "Commands leave none of these; who is let in does not change by them.",
    "SAN-HLT-115": "The entry of a host group in the CIB cannot be read by this release, or by "
    "none.",
    "SAN-HLT-116": "A second site says that another device, made from a copy of this one, has "
    "taken it over. A host that writes to both has two versions, of which one is given up. Hosts "
    "of this cluster are kept out by 'sanctl replicate set --hold-after-restart' alone, after a "
    "restart of the whole cluster. It ends by a takeover back or by 'sanctl replicate giveback', "
    "and shows until the site was asked again: every ten minutes. A site that has lost the "
    "takeover, as where its storage went back to an older state, ends nothing: who goes on is not "
    "known then.",
    "SAN-HLT-111": "A device that goes back to a restore point gets no further: the node that "
    "serves it does not have the restore point, or cannot copy it. Hosts are kept out. Let a node "
    "serve it that can, or go back to another restore point.",
    "SAN-HLT-120": "A device awaits what its second sites say (sanctl replicate set), as all its "
    "nodes were started anew. No host is let in before each of them has said that no other device "
    "has taken it over, or 'sanctl replicate release' lets hosts in. A site that does not answer "
    "is asked again all the time.",
    "SAN-HLT-121": "A device awaits what its second sites say after a restart of all its nodes "
    "(sanctl replicate set), and a node cannot do that: its release of sanctl lets hosts in "
    "without asking, or takes a takeover that a site has lost for ended; or it cannot tell one "
    "start of Pacemaker from another, and lets no host in again by itself.",
    "SAN-HLT-122": "Devices are copied to a second site together (sanctl replicate run --group), "
    "and the newest moment of which the site has copies of all of them is older than their "
    "schedule allows; or runs have been begun for an hour, and none has made one; or one of the "
    "devices is gone, or was taken over at the site while others go on here: then of these no copy "
    "is made together any more. The site keeps the newest complete moment.",
    "SAN-HLT-123": "A device lets an IQN in by itself that is a host's: it was allowed so before "
    "it was the host's, or by hand. Commands of this release take both from a host that is denied; "
    "those of an older one leave such an IQN in. CHAP of the host does not hold for it where the "
    "host itself is not on the list.",
    "SAN-HLT-124": "The file of a restore point is gone from a node that had one: its pool was "
    "emptied by an older release, its filesystem was repaired, or somebody removed the file. The "
    "node is taken off the restore point, so that nothing counts on it. Where no node has a file "
    "any more the restore point stays listed until it is deleted.",
    "SAN-HLT-125": "Hosts of a device wait for a request that gets no answer: DRBD has forgotten "
    "it, or the disk does not answer. The end of the node lets it go. The node reboots by itself "
    "once another one can serve the device, or once none of its requests is answered any more, but "
    "not while it alone serves other devices that are answered.",
    "SAN-HLT-126": "The file of a device has three quarters of the extents, or more, with which a "
    "restore point is still made. Writes after a restore point break the file into more of them "
    "where they are at random, hosts wait for each in the next one, and beyond the limit restore "
    "points are refused (SAN-SNAP-002). Deleting restore points joins none: a new file has few.",
    "SAN-HLT-127": "A node's release of sanctl does not know what a device needs (its parameter "
    "`needs`, written by a later release with the feature). The node keeps its copy in sync and "
    "does not take the device over; one that served it when its release was exchanged goes on, and "
    "does not look after what it does not know. It leaves the access list as it is: one that was "
    "closed, for a restore, stays so and lets no host in. Update sanctl on that node.",
    "SAN-HLT-128": "The nodes run different releases of sanctl, as their pool agents publish. It "
    "is so for a moment while the playbook updates them. It stays so where it was run with "
    "`--limit`, was broken off, or while a node was off.",
    "SAN-HLT-130": "Replicas of a device are smaller than the device is to be: after a resize a "
    "file could not grow, as its pool is full or its filesystem has a largest file "
    "(SAN-POOL-034), or not all replicas were there. Hosts go on with the size before. While "
    "replicas grow it is so for a moment.",
    "SAN-HLT-131": "SBD on a node does not run as the cluster's fencing counts on: with a "
    "`stonith-watchdog-timeout` the others wait for a node to reset itself, which SBD does without "
    "a disk alone; a fencing device of type fence_sbd writes to a disk, which SBD has to watch. A "
    "fencing would be confirmed of a node that goes on, and two would serve.",
    "SAN-HLT-132": "A location constraint that sanctl has not made keeps a device off a node of "
    "its replicas, or has it go back to one: 'crm_resource --ban', '--move' and 'pcs resource "
    "move' leave such a constraint, and it stays until it is removed. Failover to that node does "
    "not happen. One with an end counts until it is removed, too.",
    "SAN-HLT-142": "A colocation or an order that sanctl has not made lets a device depend on "
    "another resource. As pcs makes them they are mandatory: the device is demoted where that "
    "resource is stopped, and Pacemaker promotes replicas that have published no score. "
    "'sanctl device follow' makes one that is neither.",
    "SAN-HLT-143": "A device follows a guest that runs on a node without a replica of it.",
    "SAN-HLT-133": "stop-all-resources is set: Pacemaker stops everything, and starts nothing.",
    "SAN-HLT-136": "A device is verified by a schedule, and no verify has come to its end for two "
    "of its intervals: each was interrupted, by a move or a lost connection, or none began, as the "
    "replicas were not in sync in its hours or others had their turn.",
    "SAN-HLT-140": "Pacemaker does not write the CIB to the disk of a node any more: it gives that "
    "up after one write that failed (no room, an error of the disk, no process to write it), and "
    "only its log says so. Devices are served as before. What has changed since, marks of replicas "
    "that are behind among it, is in memory alone on that node: after a loss of power of all nodes "
    "that have not written it, old data may be served. See the night page.",
    "SAN-HLT-141": "The filesystem of `/var/lib` on a node has less than 5 % left (of a large "
    "one less than 10 GiB), or less than 500 MiB (of a small one a quarter). Once it is "
    "full Pacemaker stops writing the CIB (SAN-HLT-140), and sanctl's notes on pools and replicas "
    "cannot be written.",
    "SAN-HLT-145": "A link of Corosync from a node to another is down, and another link between "
    "them works, so the cluster goes on and nothing else says it. Should the other link go as "
    "well, the nodes lose sight of each other: one is fenced, or loses quorum. A node looks at its "
    "links every half minute, and says so of one that is down twice; a witness runs nothing that "
    "does, and the others say it of their links to it; 'sanctl doctor' looks itself.",
    "SAN-HLT-146": "A host is logged in to a device, and not through each node in service that "
    "has a replica of it. Should the device move there, or the others be lost, the host has no "
    "way to it. A replica that was started, moved or changed in the last five minutes is left "
    "out: hosts log in again meanwhile. Since when a host has lacked the path is not known, and "
    "of a node that does not say who is logged in nothing is said.",
    "SAN-HLT-147": "A device goes from three or four replicas to two, with DRBD 9, and the node "
    "that is to keep the other replica is lost and neither fenced nor marked yet. The change "
    "waits: until then the dropped replicas count towards the majority (SAN-AGENT-021).",
    "SAN-HLT-149": "Pacemaker records an applied change of a device as a start, and learns by the "
    "next monitor that the replica serves: for a moment it shows a standby. In a move or a "
    "failover it is what the replica has last published. The device is not known to be down.",
    "SAN-HLT-150": "crm_mon shows an instance of this device as unmanaged, though no maintenance "
    "and no meta attribute that sanctl reads is why: an action failed whose `on-fail` is `block`, "
    "or a rule in the resource defaults says so. Pacemaker does not act on it until that is ended.",
    "SAN-HLT-148": "On a node with a replica of a device with persistent reservations the service "
    "that keeps them does not listen. Each change of a reservation waits for it, also on other "
    "nodes, as none is answered before each replica has it or is marked; a promotion waits, too.",
    "SAN-HLT-154": "The pool agent does not run on a storage node that is in service: its clone is "
    "disabled, kept off the node by a constraint, or unmanaged, and the node was started since. "
    "What the agent published last stays, and grows old. It measures pools, has restore points and "
    "copies made by schedule, removes files of deleted devices, carries out changes of the "
    "strategy, and looks at the links.",
    "SAN-HLT-155": "The watch over the iscsi network (the clone sanctl-reach) does not run on a "
    "storage node that is in service. What it published last stays: devices do not leave a node "
    "that has lost that network.",
    "SAN-HLT-156": "A fencing device is disabled (`pcs stonith disable`: target-role=Stopped). "
    "Pacemaker's fencer leaves it out. Critical where no other one is for its nodes: none takes "
    "over what such a node served when it falls silent.",
    "SAN-HLT-160": "DRBD drops a disk at its first error, and the node attaches it again once it "
    "answers, at growing intervals, an hour at most: between two errors the device is as it "
    "should be. A node keeps for a day how often that was; a stop of the replica there, as before "
    "a disk is replaced, ends it. Once may have been a cable or a full pool, and is a note; twice "
    "and more is a warning.",
    "SAN-HLT-161": "The clocks of two nodes differ by five seconds or more, a "
    "warning from a minute on. Each storage node asks "
    "the kernels of the others once a minute, by ICMP timestamps, and says so after two looks; "
    "where a firewall keeps these back, or all addresses are of IPv6, nothing is known, and "
    "whole days are not seen. One node that differs from several others is named; of two it is not "
    "known which is wrong.",
    "SAN-HLT-162": "The filesystem of `/run` on a node, which is in memory, has little left, by "
    "the limits of SAN-HLT-141. Agents and DRBD's handlers keep their notes and locks there: once "
    "it is full no replica starts on the node, and a lost peer cannot be dealt with.",
    "SAN-HLT-163": "Storage nodes have different files /etc/sanctl/cluster.toml, comments aside: a "
    "playbook was run for some of them, or one file was changed by hand. Nodes publish a digest; a "
    "witness, which runs no agent, is not compared.",
    "SAN-HLT-164": "Storage nodes have different files /etc/sanctl/drbd.secret. What is connected "
    "stays so; the next connection of a replica is refused. The file that is in use is found by "
    "the secrets that DRBD has of devices; the playbook refuses nodes that differ. Nodes publish a "
    "few "
    "digits of a digest for which the secret is the key.",
    "SAN-HLT-165": "DRBD's bitmaps of the replicas on a node take more than a quarter of its "
    "memory: SAN-DOC-011, of any storage node.",
    "SAN-HLT-119": "The hook of a device's newest restore point failed: before it, and the point "
    "is crash-consistent; or after it, and the application may still be quiet.",
    "SAN-HLT-158": "The last backup of a device into a repository failed; the finding has the code "
    "of the failure, and since when none succeeds: since the first try, where there was never one. "
    "It ends with the next success. Of backups that are not begun any more SAN-HLT-169 tells, and "
    "SAN-HLT-171.",
}
