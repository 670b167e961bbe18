# SPDX-License-Identifier: GPL-2.0-or-later
"""The meta-data XML of ocf:sanctl:pool: its actions and timeouts (OCF API 1.1)."""

METADATA = """\
<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="pool" version="0.1.0">
<version>1.1</version>
<longdesc lang="en">
Watches the pools of a storage node: publishes their free space as node attributes, removes the
files of deleted devices, and applies the wanted vote mode. Runs as a clone, made by the playbook.
</longdesc>
<shortdesc lang="en">sanctl pools of a node</shortdesc>
<parameters/>
<actions>
<action name="start" timeout="20s"/>
<action name="stop" timeout="20s"/>
<action name="monitor" interval="10s" timeout="30s" depth="0"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
"""
