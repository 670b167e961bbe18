# SPDX-License-Identifier: GPL-2.0-or-later
"""The meta-data XML of ocf:sanctl:device: its parameters, actions and timeouts (OCF API 1.1)."""

METADATA = """\
<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="device" version="0.1.0">
<version>1.1</version>
<longdesc lang="en">
One replica of a sanctl device: a device file under DRBD, a device-mapper gate, and a LIO iSCSI
target that is Standby until this node is promoted. Made and changed by the sanctl command.
</longdesc>
<shortdesc lang="en">replicated iSCSI device</shortdesc>
<parameters>
<parameter name="uuid" unique-group="uuid" required="1">
<longdesc lang="en">32 hex digits that identify the device and name its files.</longdesc>
<shortdesc lang="en">identity</shortdesc>
<content type="string"/>
</parameter>
<parameter name="size" required="1" reloadable="1">
<longdesc lang="en">Size in bytes, a multiple of 4096. It can grow, never shrink.</longdesc>
<shortdesc lang="en">size in bytes</shortdesc>
<content type="integer"/>
</parameter>
<parameter name="pool" required="1">
<longdesc lang="en">Pool that holds the replicas, as named in /etc/sanctl/cluster.toml.</longdesc>
<shortdesc lang="en">pool</shortdesc>
<content type="string"/>
</parameter>
<parameter name="replicas" required="1" reloadable="1">
<longdesc lang="en">How many replicas the device is to have. While a change is under way it has
others: those in `nodes`.</longdesc>
<shortdesc lang="en">number of replicas</shortdesc>
<content type="integer"/>
</parameter>
<parameter name="nodes" required="1" reloadable="1">
<longdesc lang="en">The replica nodes, separated by spaces. A location rule keeps the device from
all others; both are changed together.</longdesc>
<shortdesc lang="en">replica nodes</shortdesc>
<content type="string"/>
</parameter>
<parameter name="minor" unique-group="minor" required="1">
<longdesc lang="en">DRBD minor; the replicas talk on TCP port 7800 + minor.</longdesc>
<shortdesc lang="en">DRBD minor</shortdesc>
<content type="integer"/>
</parameter>
<parameter name="initiators" required="0" reloadable="1">
<longdesc lang="en">Initiators that may log in, separated by spaces. Empty: nobody.</longdesc>
<shortdesc lang="en">access list</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="hosts" required="0" reloadable="1">
<longdesc lang="en">Hosts that may log in, separated by spaces, each as
NAME=IQN,.../chap=USER/mutual; the last two with CHAP. Secrets are in /etc/sanctl/hosts.</longdesc>
<shortdesc lang="en">hosts</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="sync" required="0" reloadable="1">
<longdesc lang="en">How the replicas are resynced, as words key=value: full-above,
csums, rate-min, rate-max, window, priority, verify. Empty: the defaults.</longdesc>
<shortdesc lang="en">sync policy</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="verify" required="0" reloadable="1">
<longdesc lang="en">The latest order to verify the replicas, by sanctl device verify.</longdesc>
<shortdesc lang="en">order to verify</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="point" required="0" reloadable="1">
<longdesc lang="en">The latest order to make a restore point, by sanctl snapshot create.</longdesc>
<shortdesc lang="en">order to make a restore point</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="restore" required="0" reloadable="1">
<longdesc lang="en">The latest order to go back to a restore point, by sanctl device restore. Until
its last word is done or given-up no host is let in.</longdesc>
<shortdesc lang="en">order to go back to a restore point</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="awaits" required="0" reloadable="1">
<longdesc lang="en">The second sites, separated by spaces, that have to say that the device was not
taken over there, after the whole cluster was started anew: until then no host is let in. Empty:
none, and hosts are let in at once.</longdesc>
<shortdesc lang="en">sites to await after a restart</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="released" required="0" reloadable="1">
<longdesc lang="en">The runs of the cluster software in which hosts are let in, as all sites have
said so or an administrator has.</longdesc>
<shortdesc lang="en">order to let hosts in</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="reservations" required="0" reloadable="1">
<longdesc lang="en">Whether hosts may make persistent reservations (SPC-4), which are kept over a
failover: on or off. Any other word is on. Changed while no host is logged in.</longdesc>
<shortdesc lang="en">persistent reservations</shortdesc>
<content type="string" default="off"/>
</parameter>
<parameter name="clear-reservations" required="0" reloadable="1">
<longdesc lang="en">The latest order to clear the reservations, by sanctl target reservations: a
token. The node that serves carries each out once.</longdesc>
<shortdesc lang="en">order to clear reservations</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="needs" required="0" reloadable="1">
<longdesc lang="en">What a release of sanctl has to know to serve the device, words separated by
spaces, written with the features that need it. A node whose release does not know one of them keeps
its replica in sync, and is not promoted.</longdesc>
<shortdesc lang="en">what a release has to know</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="origin" required="0">
<longdesc lang="en">The restore point that the device was made from, as the words DEVICE POINT TOKEN
UUID BYTES NODE,NODE; the nodes are those whose files are copies of it. Never changed.</longdesc>
<shortdesc lang="en">restore point that it was made from</shortdesc>
<content type="string" default=""/>
</parameter>
<parameter name="cache" required="0" reloadable="1">
<longdesc lang="en">Where an acknowledged write may be: none, write-through, or write-back, the
last with ",dirty=BYTES" for how much may be in RAM alone on one node.</longdesc>
<shortdesc lang="en">cache policy</shortdesc>
<content type="string" default="none"/>
</parameter>
</parameters>
<actions>
<action name="start" timeout="180s"/>
<action name="promote" timeout="90s"/>
<action name="demote" timeout="120s"/>
<action name="stop" timeout="120s"/>
<action name="monitor" role="Promoted" interval="10s" timeout="120s" depth="0"/>
<action name="monitor" role="Unpromoted" interval="11s" timeout="120s" depth="0"/>
<action name="reload-agent" timeout="120s"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
"""
