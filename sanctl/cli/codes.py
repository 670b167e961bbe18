# SPDX-License-Identifier: GPL-2.0-or-later
"""What every code means. `sanctl explain` and docs/reference/errors.md are made from this."""

from __future__ import annotations

from collections.abc import Mapping

_CODES = {
    "SAN-AGENT-001": "A node that holds a replica of the device is not in this node's "
    "cluster.toml, so the replica's connection cannot be set up.",
    "SAN-AGENT-002": "The loop device over a device's data file went away while the replica was "
    "being started.",
    "SAN-AGENT-003": "The cluster's DRBD secret is missing on this node. Replicas prove with it "
    "who they are.",
    "SAN-AGENT-004": "This node's cluster.toml does not know the node itself, or the pool the "
    "device lies in.",
    "SAN-AGENT-005": "An action that needs a started replica was asked of a node where it is not "
    "started.",
    "SAN-AGENT-006": "A stop ran out of time with something of the device left in the kernel. It "
    "is reported as failed, because a stop that is not complete must never pass for one; "
    "Pacemaker answers by fencing the node.",
    "SAN-AGENT-007": "A promotion did all its steps, and the kernel does not say that the node "
    "serves. It is reported as failed.",
    "SAN-AGENT-008": "A new device was to be activated while its replicas did not see each other. "
    "It is tried again when they do.",
    "SAN-AGENT-009": "A data file is shorter than its replica was: its end is lost. The replica "
    "is not started, for a file grown back with zeros would pass for an up-to-date one. Its peer "
    "goes on serving. Once the file is removed, the replica is filled from there.",
    "SAN-AGENT-010": "A replica was dropped from the device, and DRBD here is still connected to "
    "it. The next monitor tries again; the device is served meanwhile.",
    "SAN-AGENT-011": "A node was to become a standby while one of its DRBD handlers was marking "
    "the peer as outdated, and that did not end in time. The node stays Primary: a mark that came "
    "later could keep the device from being served anywhere.",
    "SAN-AGENT-012": "The cluster's configuration has no such device or node, or no more. A "
    "handler that was to mark a replica as outdated marks nothing, and asks again.",
    "SAN-BENCH-001": "A program that was to be measured failed, so there is nothing to compare.",
    "SAN-BUG-001": "sanctl met a condition its authors did not expect. The lines printed before "
    "it say where. What the command had changed until then is in the journal (journalctl "
    "SYSLOG_IDENTIFIER=sanctl).",
    "SAN-CACHE-001": "Writes that were in RAM could not be brought to the disk. They are lost on "
    "this replica, which counts as suspect from now on and is filled anew from its peer.",
    "SAN-CACHE-002": "Write-through and write-back need a filesystem on which a file can be made "
    "synchronous, such as ext4 and XFS.",
    "SAN-CACHE-003": "A replica crashed with acknowledged writes in RAM, or could not flush them. "
    "DRBD would take it for a good one; sanctl keeps it from serving until another one serves and "
    "fills it, or an operator decides.",
    "SAN-CACHE-004": "A device's cache policy in the CIB does not read.",
    "SAN-CACHE-005": "A limit for what may be dirty goes with write-back only, and is 1 MiB at "
    "least.",
    "SAN-CHAOS-001": "After a fault of the bench was undone the cluster did not become whole again "
    "by itself. The message lists what every node's kernel still had to complain about.",
    "SAN-CHAOS-002": "The fault bench had asked for a move of its device, and the command did not "
    "come to an end, neither well nor badly.",
    "SAN-CHAOS-003": "The fault bench had asked for an agent to die in a move of its device, and "
    "none did: nothing was broken.",
    "SAN-CIB-001": "What cibadmin printed does not read as a CIB. Another program of that name "
    "may be in the way, or the tools and the daemons are of different versions.",
    "SAN-CIB-002": "What crm_mon printed does not read as a cluster status.",
    "SAN-CACHE-006": "The device is too small to be a flash cache.",
    "SAN-CACHE-007": "bcache, the kernel's flash cache, did not take a device or did not let go of "
    "it. The kernel's log (dmesg) has the reason; another program may have it open.",
    "SAN-CACHE-008": "The pool's disk is not in use through its flash cache on this node.",
    "SAN-CACHE-009": "A flash device belongs to one pool, and says which. This one is another's.",
    "SAN-CACHE-010": "The device below a read cache in RAM still offers discards. It is not used: "
    "reads would not see what hosts have unmapped.",
    "SAN-CACHE-011": "A read cache in RAM has 4 MiB at least, and is no larger than its device; "
    "'none' takes it away.",
    "SAN-CLI-001": "The command line does not read: an unknown command or option, or one that is "
    "missing. Nothing was done.",
    "SAN-CLI-002": "A question was answered with no. Nothing was changed.",
    "SAN-CLI-003": "/etc/sanctl/cluster.toml cannot be read. Every node has the same file, put "
    "there by the rollout; sanctl runs on the nodes of the cluster, as root.",
    "SAN-CLI-004": "There is no such code.",
    "SAN-CLI-005": "The command was stopped by its user. What it had asked of the cluster until "
    "then stays and goes on by itself; the same command, run again, goes on from there.",
    "SAN-CLU-001": "This part of the cluster has no quorum. It cannot know what the other part "
    "does, so it changes nothing. Run the command where the majority is, or bring nodes back.",
    "SAN-CLU-002": "Pacemaker does not answer on this node: it does not run, is just being "
    "started, or this machine is no node of a cluster.",
    "SAN-CLU-003": "Pacemaker answers only root and members of the group haclient.",
    "SAN-CLU-004": "Every change is planned on one version of the CIB and taken only for that "
    "version. Others changed the CIB each time in between, so nothing was changed. Try again.",
    "SAN-CLU-005": "Pacemaker did not take a change. Nothing was changed. The message is "
    "Pacemaker's own.",
    "SAN-CMD-001": "A program that sanctl needs is not installed on this machine.",
    "SAN-CMD-002": "A program did not end within its time and was killed.",
    "SAN-CMD-003": "A program failed; the line holds what it said.",
    "SAN-DEMO-001": "The demonstration waited for something that did not come to be.",
    "SAN-DEMO-002": "The demonstration needs its device active on exactly one node.",
    "SAN-DEMO-003": "The demonstration could not read how far the resync was.",
    "SAN-DEMO-004": "Writing did not go on, or did not end, as the demonstration expected.",
    "SAN-DEMO-005": "Not everything the demonstration is there to show held.",
    "SAN-DEV-001": "A device of that name exists. Names are unique in a cluster.",
    "SAN-DEV-002": "There is no device of that name. 'sanctl device list' shows all.",
    "SAN-DEV-003": "A device has one to four replicas.",
    "SAN-DEV-004": "Three and four replicas need DRBD 9, which is not part of the Linux kernel: "
    "DRBD 8.4, which is, connects two nodes. Install its module and tools on every storage node.",
    "SAN-DEV-005": "Each replica is on a node of its own, and the pool is on fewer nodes than "
    "replicas were asked for.",
    "SAN-DEV-006": "As many nodes must be named as there are replicas.",
    "SAN-DEV-007": "A node holds at most one replica of a device.",
    "SAN-DEV-008": "Only a node with a replica can serve a device.",
    "SAN-DEV-009": "A device's name becomes part of ids in the CIB, which are unique in it. "
    "Something else, such as another resource or a constraint, has one of these ids.",
    "SAN-DEV-010": "A deleted device of that name has left data on a node that has not removed "
    "it yet, in most cases because it is away. A new device of that name would hide that note.",
    "SAN-DEV-011": "Each device has a DRBD minor number; all are in use.",
    "SAN-DEV-012": "A device cannot shrink: what hosts keep at its end would be cut off.",
    "SAN-DEV-013": "A device grows only with all its replicas there, connected and up to date. "
    "Growing one alone would leave replicas of two sizes.",
    "SAN-DEV-014": "The device's deletion has begun: it is stopped. Finish the deletion, or take "
    "it back by removing the meta attribute target-role from its clone.",
    "SAN-DEV-015": "A device can move only to a node that has a replica of it.",
    "SAN-DEV-016": "The node cannot serve the device now: it is away, in standby, or the device "
    "does not run on it.",
    "SAN-DEV-017": "The node's replica is not known to be up to date. Serving it would lose "
    "writes, so it has to be in sync first.",
    "SAN-DEV-018": "Pacemaker was told to leave the device, or everything, alone (unmanaged, or "
    "maintenance). A change would be stored and not carried out.",
    "SAN-DEV-019": "A resource in the CIB is of sanctl's kind and does not read as a device: a "
    "parameter is missing or was changed by hand.",
    "SAN-DEV-020": "The device's agent failed on a node; the line holds its own reason. "
    "Pacemaker remembers the failure until it is cleaned up, and may keep the device from the "
    "node until then.",
    "SAN-DM-001": "The kernel's device-mapper did not say what one of a replica's devices leads "
    "onto. Nothing is concluded from that; the kernel's log (dmesg) may have more.",
    "SAN-DOC-001": "Corosync and Pacemaker must run on every node.",
    "SAN-DOC-002": "The service runs and would not be started at the next boot.",
    "SAN-DOC-003": "target.service restores a stored target configuration at boot and clears the "
    "running one at shutdown. Both would pull sanctl's targets from under the hosts: it must be "
    "masked.",
    "SAN-DOC-004": "systemd did not answer, so the state of services is not known.",
    "SAN-DOC-005": "sanctl-drain.service and sanctl-replicas.service do nothing until the node "
    "stops. Then the first lets other nodes serve its devices before Pacemaker stops, the second "
    "takes down before the network goes what Pacemaker has left up. Not active, they do neither.",
    "SAN-DOC-010": "A storage node needs this kernel module.",
    "SAN-DOC-020": "The cluster's DRBD secret, from which each device's own is made, is missing "
    "on this storage node.",
    "SAN-DOC-021": "The cluster's DRBD secret must be readable by root only.",
    "SAN-DOC-022": "Pacemaker runs sanctl's resource agents from this path.",
    "SAN-DOC-024": "cluster.toml names nodes as 'uname -n' prints them; this machine is not in it.",
    "SAN-DOC-030": "No time service is known to keep the clock. Nothing breaks by it at once; "
    "logs do not line up, and expiring rules are read off the clock.",
    "SAN-DOC-040": "A pool is a directory on a mounted file system that holds the marker "
    ".sanctl-pool. Without the marker the file system is not mounted, and nothing is written.",
    "SAN-DOC-041": "The marker of the pool holds another pool's uuid: a wrong file system is "
    "mounted there.",
    "SAN-DRBD-001": "The DRBD module is not loaded, or is of a version sanctl does not know.",
    "SAN-DRBD-002": "DRBD's metadata of a replica cannot be read, so its size is not known.",
    "SAN-DRBD-003": "A device with three or four replicas cannot be started on a node whose kernel "
    "has DRBD 8.4 loaded; another node, from which it was created, has DRBD 9.",
    "SAN-DRBD-004": "A replica's DRBD minor is another resource's on this node, such as one that "
    "was left up of a deleted device. Its disk was not attached.",
    "SAN-FEN-001": "stonith_admin printed something else than its XML.",
    "SAN-FEN-002": "A fencing device was asked for its status from this node and did not answer. "
    "Nothing was switched. If its node fails now, nobody can make sure that it is off.",
    "SAN-FEN-003": "Fencing was asked for and not confirmed. The node may or may not be off: "
    "nothing it served is taken over until that is certain.",
    "SAN-FEN-004": "Nothing in the CIB says how this node's power is cut.",
    "SAN-HEAL-001": "'device heal' is for replicas that have diverged, or of which none may be "
    "served. What is only out of contact finds together by itself.",
    "SAN-HEAL-002": "That copy cannot be kept: its node is away, what it holds is not known or not "
    "whole, or the other copy has all of it and more.",
    "SAN-HEAL-003": "A node that is silent may still be serving. It has to be fenced, or come "
    "back, before its copy can be given up.",
    "SAN-HEAL-004": "Hosts use the copy that is to be discarded. Kept mounted, their file systems "
    "would mix what they remember with other data and be destroyed. '--accept SAN-HEAL-004' says "
    "that no host uses the device.",
    "SAN-HEAL-005": "Between the question and the answer the replicas became others than those "
    "that were shown. Nothing was done.",
    "SAN-HEAL-006": "The agents have not told yet which generation of the data each replica holds, "
    "so what a choice would lose cannot be said.",
    "SAN-HEAL-007": "What giving up a copy would lose is told for two copies. With three and four "
    "it has to be found out, and done, with DRBD's own tools.",
    "SAN-HLT-001": "No designated controller: the nodes have not elected the one that decides. "
    "Normal for seconds after a start or a failure.",
    "SAN-HLT-002": "The nodes this one sees are not a majority.",
    "SAN-HLT-003": "maintenance-mode is set: nothing is repaired or taken over.",
    "SAN-HLT-004": "A resource of sanctl's kind does not read as a device.",
    "SAN-HLT-010": "stonith-enabled is off. Without fencing a silent node cannot be told from a "
    "dead one, and a takeover may destroy data.",
    "SAN-HLT-011": "There is no fencing device in the CIB.",
    "SAN-HLT-012": "None of the fencing devices names this node in pcmk_host_list or "
    "pcmk_host_map.",
    "SAN-HLT-013": "The fencing device is configured and its monitor runs nowhere. Fencing may "
    "still work, and is likely not to.",
    "SAN-HLT-014": "no-quorum-policy lets resources run on without quorum.",
    "SAN-HLT-015": "A fencing device can be used only by nodes that it is to fence, or by "
    "none that is there.",
    "SAN-HLT-016": "The last time this node was to be fenced that failed. Pacemaker remembers it "
    "until it is cleaned up or succeeds.",
    "SAN-HLT-021": "The watch over the iscsi network says that this node reaches none of the "
    "addresses given to it. Its devices move to a node that does, if there is one.",
    "SAN-HLT-036": "A Primary that has lost its peer holds all I/O until it is certain that the "
    "peer cannot serve: it is fenced, or marked, or back.",
    "SAN-HLT-020": "A node is not in full service: offline, unclean (its state is unknown until "
    "it is fenced), in standby, in maintenance, or joining.",
    "SAN-HLT-022": "A node is being shut down, or was drained by hand. What it served is served by "
    "others; its replicas stay in step until they stop. It ends when the node leaves the cluster: "
    "a node that has rebooted is in full service.",
    "SAN-HLT-030": "A device is stopped because its deletion has begun.",
    "SAN-HLT-031": "Pacemaker shows a device as active on two nodes. This must never be: treat "
    "it as an emergency.",
    "SAN-HLT-032": "No node serves the device. Hosts wait, and get errors when their own "
    "timeouts end.",
    "SAN-HLT-033": "Pacemaker was told to leave this device alone.",
    "SAN-HLT-034": "The node with this replica is away; what its replica holds is not known.",
    "SAN-HLT-035": "A replica is not up to date, not connected, or has not reported.",
    "SAN-HLT-056": "A change of the device's copies was begun and is not finished: it has fewer or "
    "more than are wanted, or one is still being filled. The message says how to go on and how to "
    "take it back.",
    "SAN-HLT-038": "The replicas went on apart, each with writes of its own, and refuse each "
    "other. Nothing is thrown away by itself: 'sanctl device heal NAME' shows what each has.",
    "SAN-HLT-037": "No replica may be served, and none will be without a decision: each is marked "
    "as behind, knows itself to be behind, is out of reach, or has not met the one that is since "
    "it was started. If the node that served last can be brought back, that is better than any "
    "decision: 'sanctl device heal NAME' otherwise.",
    "SAN-HLT-039": "The latest verify of a device has found blocks that differ between its copies, "
    "and nobody has had them repaired. Hosts read the copy that serves; a failover would show them "
    "the other one. Find out why: a disk that alters data, or memory.",
    "SAN-HLT-058": "Reads of a device are to be cached in RAM on the node that serves it, and are "
    "not, or not yet.",
    "SAN-HLT-057": "A replica crashed with acknowledged writes in RAM, or could not flush them. It "
    "is filled anew once another one serves. If all are so, as after a power cut of both nodes, "
    "'sanctl device heal' asks which one to keep.",
    "SAN-HLT-054": "A replica is not in the cache mode that is wanted; mostly in a safer one. With "
    "one copy in sync nothing may be in RAM alone, so a device of one copy is never in write-back.",
    "SAN-HLT-059": "A node lets a fifth of its RAM be dirty at most. The limits of its devices in "
    "write-back add up to more.",
    "SAN-HLT-055": "When redundancy is lost the survivor flushes before it goes on, and hosts wait "
    "that long. A lower limit for what is dirty makes it shorter.",
    "SAN-HLT-040": "Pacemaker remembers a failed action. It is history until it is cleaned up, "
    "but it may keep the resource from that node.",
    "SAN-HLT-041": "A resource runs that is in no configuration: it was removed while it ran.",
    "SAN-HLT-050": "A move sets a constraint that pulls the device to a node, removes it when "
    "done, and lets it expire if the command dies. This one is still there.",
    "SAN-HLT-051": "A deleted device's data is still on a node. The node's pool agent removes "
    "it; a node that is away does so when it is back.",
    "SAN-HLT-052": "A replica missed writes while it was out of contact. It is kept from serving "
    "until it has caught up.",
    "SAN-HLT-053": "A note that a replica is behind names a device that is no more. It does no "
    "harm.",
    "SAN-HLT-060": "The clone sanctl-pools is missing from the CIB.",
    "SAN-HLT-061": "A pool on a node that is online is not usable, or has not reported.",
    "SAN-HLT-062": "A pool is nearly full. Device files are sparse and grow as hosts write.",
    "SAN-HLT-070": "cluster.toml and the CIB do not have the same nodes.",
    "SAN-HLT-071": "A device lies in a pool that cluster.toml does not have.",
    "SAN-HLT-072": "A device has a replica on a node that cluster.toml does not count to its pool.",
    "SAN-HLT-080": "The storage nodes do not all count votes in the way that their strategy asks "
    "for. Most likely a change of strategy was begun and not finished.",
    "SAN-HLT-081": "The quorum device gives no vote. Losing one more node leaves no majority.",
    "SAN-HLT-082": "The cluster.toml of a node states another strategy than the others'.",
    "SAN-HLT-090": "A pool's flash is on its way to the mode that is wanted.",
    "SAN-HLT-091": "A pool's flash has failed or is not there. The slow disk serves without it.",
    "SAN-HLT-092": "So much is on flash alone that the slow disk needs minutes for it.",
    "SAN-HLT-093": "What a pool's flash is in on a node is not known, and it was not left as is "
    "wanted: the node is in standby, offline, or does not tell. Its data may be on that flash "
    "alone.",
    "SAN-LAB-001": "A number, a size or a name given for the laboratory does not read, or is out "
    "of range.",
    "SAN-LAB-002": "The laboratory has no node of that name.",
    "SAN-LAB-003": "There is no laboratory of that name on this machine.",
    "SAN-LAB-004": "The laboratory, or its node, is off.",
    "SAN-LAB-005": "What was asked of a network cable does not go together.",
    "SAN-LAB-006": "A laboratory of that name exists with other nodes, sizes or another release. "
    "It keeps its shape for life.",
    "SAN-LAB-007": "What was to be broken is not there, or a partition's sides do not go together.",
    "SAN-LAB-008": "The packet filters that cut nodes off from each other could not be set. They "
    "are classic BPF programs at the taps; this machine's kernel needs sch_ingress and cls_bpf.",
    "SAN-LAB-009": "A fault could not be undone, because its node does not answer.",
    "SAN-LAB-010": "A program the laboratory needs is not installed on the host.",
    "SAN-LAB-011": "A program did not end within its time.",
    "SAN-LAB-012": "A program failed while the laboratory was being built; the end of its log is "
    "shown.",
    "SAN-LAB-013": "Processes of a node did not end when they were killed.",
    "SAN-LAB-014": "A node went off while it booted; the end of its console is shown.",
    "SAN-LAB-015": "A node did not finish booting in time.",
    "SAN-LAB-016": "Ending the laboratory left a process, a namespace or a network device behind.",
    "SAN-LAB-020": "The host's own apt configuration has no mirror for the nodes' Debian release.",
    "SAN-LAB-021": "A kernel given with --kernel is missing, or its modules are.",
    "SAN-LAB-030": "The host lacks something the laboratory needs: a package, memory, disk "
    "space, root's rights, or it is of another distribution.",
    "SAN-LAB-040": "The rollout to the laboratory failed. Its last lines are shown.",
    "SAN-LAB-041": "Something of the source tree is needed, and this is an installed package.",
    "SAN-LAB-042": "The rollout needs Ansible, which 'make setup' installs.",
    "SAN-LAB-043": "A kernel configuration was not found.",
    "SAN-LAB-044": "A fragment of kernel-configs/ was not found.",
    "SAN-LIO-001": "The kernel's target refused a setting; the line says which and why.",
    "SAN-LIO-002": "A target has no ALUA group of this node: it was not set up by sanctl, or "
    "only in part.",
    "SAN-LIO-003": "The kernel did not bind a LUN to this node's ALUA group. Served like that it "
    "would count as active on every node, so it is taken for a failure.",
    "SAN-NAME-001": "A device's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-002": "The name is one that sanctl, Pacemaker or DRBD uses for something else: "
    "sanctl..., pool..., all, minor-..., delete-..., outdated-..., fence-..., or one that ends in "
    "-meta, -params, -replicas, -outdated, -reach, -prefer, -move or '-'.",
    "SAN-NAME-003": "A node's name is what 'uname -n' prints on it, in lower case.",
    "SAN-NAME-004": "A pool's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-005": "An iSCSI name is iqn.YYYY-MM.reversed.domain, in most cases with :name "
    "after it, of a-z, 0-9, '.', '-' and ':' and at most 223 bytes; or eui. and 16 hex digits. On "
    "a Linux host it is in /etc/iscsi/initiatorname.iscsi.",
    "SAN-NAME-006": "A size is a number and a unit (K, M, G, T, P: binary), and comes to a "
    "positive multiple of 4 KiB.",
    "SAN-NODE-001": "There is no node of that name in the cluster.",
    "SAN-NODE-002": "A witness votes and holds no data.",
    "SAN-NODE-003": "The node is not in service, so nothing can be made on it now.",
    "SAN-NODE-004": "The node serves a device of which no other node has an up-to-date replica. "
    "In standby the device would stop. '--accept SAN-NODE-004' goes on despite that.",
    "SAN-POOL-001": "The pool's marker is missing: its file system is not mounted. An empty "
    "folder is never taken for an empty pool.",
    "SAN-POOL-002": "The pool's marker names another pool: another file system is mounted there.",
    "SAN-POOL-003": "The pool's file system cannot be read.",
    "SAN-POOL-011": "There is no pool of that name in cluster.toml.",
    "SAN-POOL-012": "The pool has too little room on that node. Room is what is free less what "
    "devices there may still write, for their files are sparse, and less DRBD's metadata.",
    "SAN-POOL-013": "The pool on that node is not usable, or has not reported.",
    "SAN-POOL-014": "That node is not among the pool's nodes.",
    "SAN-POOL-015": "The cluster has none or several pools, so one must be named.",
    "SAN-POOL-016": "Data of the pool is on flash that is not here or has failed. The slow disk "
    "alone is old, so it is not used. Bring the flash back, or fill the pool anew from its peers: "
    "docs/howto/pool-cache.md.",
    "SAN-POOL-017": "The disk that the inventory names for a cached pool holds something else.",
    "SAN-POOL-018": "The pool has no flash cache in cluster.toml.",
    "SAN-POOL-019": "A device that is to become part of a pool holds something: blkid finds it, or "
    "its first MiB is not zero. Nothing is overwritten that sanctl does not know.",
    "SAN-POOL-020": "Making a pool anew throws its copies away, so each of its devices has to be "
    "good on another node.",
    "SAN-POOL-021": "The pool's files are in use on this node. A node in standby uses none.",
    "SAN-POOL-022": "A device that the inventory names for a cached pool is not there.",
    "SAN-POOL-023": "The pool's filesystem has shut itself down after an error of its disk and "
    "takes no writes. It is mounted anew when the disk answers and nothing uses it, and the copies "
    "in it are filled from their peers.",
    "SAN-POOL-024": "The mode of a pool's flash is stored. A node of the pool is in standby or "
    "away and has not been seen to follow; its data may be on that flash alone, so leave it in "
    "until the same command ends with exit status 0.",
    "SAN-POOL-025": "A loop device could not be taken off its file; the line says why.",
    "SAN-POOL-026": "New metadata were to be written to a loop device that something has in use. "
    "Nothing was written.",
    "SAN-POOL-027": "A device of a cached pool cannot be read. That is none that is blank: "
    "nothing was written to it.",
    "SAN-POOL-028": "'sanctl pool prepare NAME --anew' was interrupted on this node: what is on "
    "the slow disk is part of what was there. It is not used until the same command has ended.",
    "SAN-POOL-029": "The pool was made on this node before, and now its slow disk or its "
    "filesystem is blank, or another's, or its marker is gone. The disk may have been replaced, or "
    "read wrongly. It is never made anew by itself: 'sanctl pool prepare NAME --anew' does that, "
    "and the replicas are filled from their peers.",
    "SAN-POOL-030": "Preparing a pool does not get on. What it had done stays, and it may be run "
    "again.",
    "SAN-QUO-001": "Corosync refused to read its configuration again. It goes on with the one it "
    "has; the nodes' files are already those of the next step, which is safe.",
    "SAN-QUO-002": "A strategy is changed only with every storage node there. One that is away "
    "would come back counting votes in the old way.",
    "SAN-QUO-003": "A node did not follow a change of strategy in time, or a quorum device has not "
    "given its vote. Between the steps every storage node is needed for quorum: nothing can be "
    "served twice, and nothing is served if a node is lost now.",
    "SAN-REP-001": "The copy to be dropped is the last one that is known to be up to date. Known "
    "means: a node of this cluster serves from it now, or it is in sync with that one. There is no "
    "override: let another copy get in sync, or delete the device.",
    "SAN-REP-002": "Which copy of the device is the newest is not known: no node serves it, or the "
    "one that does has no good copy of its own or its I/O is frozen. Copies are not added or "
    "dropped then.",
    "SAN-REP-003": "A node whose copy is to be dropped has fallen silent and is not fenced: it may "
    "still serve. Silence is not absence.",
    "SAN-REP-004": "The node still has the data of an earlier copy of this device, which its pool "
    "agent is to remove. A new copy begins with new metadata: an old bitmap would say what to copy "
    "of other data.",
    "SAN-REP-005": "A resize of the device is under way. A new copy gets the size that the device "
    "has; wait until all is grown.",
    "SAN-REP-006": "What was asked for contradicts itself: a node is named twice, or more nodes "
    "than there shall be copies.",
    "SAN-REP-007": "The device would have copies of which no majority is in sync, and DRBD 9 "
    "counts them: its I/O would freeze until another one is connected. Bring nodes back, or drop "
    "the copies of nodes that are gone first.",
    "SAN-REP-008": "A step was refused after others had been done (exit status 8): the line says "
    "which were done, the lines before it why the next one was refused.",
    "SAN-RISK-001": "The strategy heartbeat without fencing. With all links lost each node takes "
    "the other as gone, and both serve: what hosts write from then on exists twice, in two "
    "versions, of which one will be thrown away. Can be accepted by this code (accept_risks).",
    "SAN-RISK-004": "Fewer good copies than wanted while a copy moves: DRBD 8.4 connects two "
    "nodes, so the old copy is dropped before the new one is filled. If the copy that is left "
    "fails meanwhile, the device is lost. Can be accepted by this code (--accept).",
    "SAN-SYNC-001": "A schedule of `sanctl device verify` is a day and an hour.",
    "SAN-SYNC-002": "The device's attribute `sync` in the CIB holds a word that this version of "
    "sanctl does not know. Agents go on with the defaults.",
    "SAN-SYNC-003": "A part of a sync policy has a value without meaning. Nothing was changed.",
    "SAN-SYNC-004": "The ceiling of a resync's rate is below its floor.",
    "SAN-SYNC-005": "A repair goes with a verify that somebody looks at, not with a schedule.",
    "SAN-WAIT-001": "The change was made, and its effect was not seen before the deadline. In "
    "most cases it goes on by itself; the line says what was seen last.",
}


def all_codes() -> Mapping[str, str]:
    """Return every code with its meaning."""
    from sanctl.config.codes import CODES as CONFIG_CODES  # noqa: PLC0415 - only when asked for

    return dict(sorted({**_CODES, **CONFIG_CODES}.items()))
