# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device find`: the device behind a host's or a kernel's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.plan.device.finding import find_devices

if TYPE_CHECKING:
    from sanctl.cli.documents import device as device_documents


@click.command(short_help="Find a device by WWID, serial, IQN or minor.")
@click.argument("word", metavar="WWID|SERIAL|IQN|MINOR|/dev/drbdN")
@output_option
def find(word: str, output: str) -> None:
    """Find the device that a host's multipath, or a node's kernel, names.

    A WWID as 'multipath -ll' shows it or below /dev/disk/by-id; a serial, or its first eight
    digits or more; the IQN of a target, or of a host: the devices that it may use.
    """
    env = environment()
    topology = env.topology()
    with env.session() as session:
        cluster = session.observe()
    data: list[device_documents.DeviceFound] = [
        {
            "name": device.name.value,
            "by": by,
            "wwid": device.wwid,
            "serial": device.serial,
            "minor": device.minor,
            "target": topology.target_iqn(device.name).value,
            "nodes": [node.value for node in device.nodes],
            "active_node": cluster.serving_node(device.name),
        }
        for device, by in find_devices(cluster, topology, word)
    ]

    def text() -> None:
        print_table(
            ("DEVICE", "WWID", "SERIAL", "MINOR", "ACTIVE", "NODES"),
            (
                (
                    each["name"],
                    each["wwid"],
                    each["serial"],
                    str(each["minor"]),
                    each["active_node"] or UNKNOWN,
                    ", ".join(each["nodes"]),
                )
                for each in data
            ),
        )

    finish(output, data=data, text=text)
