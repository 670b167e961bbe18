# SPDX-License-Identifier: GPL-2.0-or-later
"""LIO iSCSI targets by configfs: LUN, given portals, access list, ALUA state.

Written against the kernel's interface (drivers/target/target_core_configfs.c) rather than through
rtslib: the failover path has to start quickly, and every order here matters. The rules:

* A LUN is in `default_tg_pt_gp`, which is Active/Optimized, from its creation until it is bound to
  a group. So the group exists, is Standby, and holds the LUN before the TPG is enabled; on the way
  out the TPG is disabled first.
* Access lists are explicit. `generate_node_acls` is 0: an empty list admits no initiator.
* Of a target's TPGs that of this node has the LUN. Those of other nodes (lio_listing.py) have none.
* Everything can be run again: a part that is there is left, a part that is missing is created.

The backstore, what hosts are told of the disk: lio_backstore.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from sanctl.drivers import configfs, lio_acl, lio_backstore
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations
from sanctl.system import state_files
from sanctl.system.files import exists, is_folder, is_link, read_text, read_text_or

_ROOT = "/sys/kernel/config/target"
# Names of targets that are being made or removed: without a LUN nothing else tells whose they are.
_TARGET = "target"
_PORTAL_FREE_S, _POLL_S = 5.0, 0.1

NO_CHAP: Mapping[str, lio_acl.Chap] = {}

ACTIVE_OPTIMIZED = 0
STANDBY = 2
_STATE_NAMES = {0: "Active/Optimized", 1: "Active/NonOptimized", 2: "Standby", 3: "Unavailable"}


class Target(NamedTuple):
    """One device's target on this node.

    Attributes:
        name: the device's name.
        minor: its DRBD minor, which numbers the backstore.
        iqn: the target's name.
        node_id: TPG tag, ALUA group id and relative target port id of this node (1-32).
        uuid: 32 hex digits; unit serial, and the source of the NAA identifier.
        portals: this node's portals as `address:port`, IPv6 addresses in brackets.
        initiators: the initiators that may log in.
        offers_unmap: the target reports to hosts that UNMAP is supported.
        chap: how initiators authenticate, for those that have to.
        reservations: what is in force from the first command on; None: the commands are refused.
    """

    name: str
    minor: int
    iqn: str
    node_id: int
    uuid: str
    portals: tuple[str, ...]
    initiators: tuple[str, ...]
    offers_unmap: bool = True
    chap: Mapping[str, lio_acl.Chap] = NO_CHAP
    reservations: Reservations | None = None


def find_targets(name: str) -> list[str]:
    """Return the configfs folders of targets of this device: normally one or none.

    A device's IQN ends in `.NAME`, and a name holds no dot. Others' targets may end so, too.
    """
    return [
        f"{_ROOT}/iscsi/{iqn}"
        for iqn in configfs.folders(f"{_ROOT}/iscsi")
        if iqn.rpartition(".")[2] == name and iqn.startswith("iqn.") and _is_ours(iqn, name)
    ]


def _is_ours(iqn: str, name: str) -> bool:
    """Whether every LUN of a target stands on this device's backstore.

    One without a LUN is half made, or half removed, and ours if `create` has noted its name.
    """
    folder = f"{_ROOT}/iscsi/{iqn}"
    entries = {
        entry
        for tpg in configfs.folders(folder)
        if tpg.startswith("tpgt_")
        for lun in configfs.folders(f"{folder}/{tpg}/lun")
        for entry in configfs.entries(f"{folder}/{tpg}/lun/{lun}")
        if is_link(f"{folder}/{tpg}/lun/{lun}/{entry}")
    }
    if entries:
        return entries == {f"sanctl-{name}"}
    return iqn in state_files.of_device(name, _TARGET).read().split()


def alua_group(name: str, minor: int) -> str | None:
    """Return the configfs folder of this node's ALUA group, None where there is none."""
    folder = f"{lio_backstore.folder(name, minor)}/alua"
    for entry in configfs.folders(folder):
        if entry.startswith("sanctl-"):
            return f"{folder}/{entry}"
    return None


def alua_state(name: str, minor: int) -> str:
    """Return the ALUA state of this node's group; `absent` where there is none."""
    group = alua_group(name, minor)
    if group is None:
        return "absent"
    text = read_text_or(f"{group}/alua_access_state", "").strip()
    return _STATE_NAMES.get(int(text), text) if text.isdigit() else "absent"


def set_alua_state(name: str, minor: int, state: int) -> None:
    """Set the ALUA state of this node's group, which hosts choose their path by.

    Raises:
        CommandError: there is no such group, or the kernel refused.
    """
    group = alua_group(name, minor)
    if group is None:
        raise CommandError(
            Problem("SAN-LIO-002", f"{name}: the target has no ALUA group of this node")
        )
    configfs.set_value(f"{group}/alua_access_state", str(state))


def is_exported(name: str) -> bool:
    """Whether a target of this device exists and is enabled."""
    return any(_is_enabled(tpg) for tpg in tpgs(find_targets(name)) if has_lun(tpg))


def _is_enabled(tpg: str) -> bool:
    return read_text_or(f"{tpg}/enable", "0").strip() == "1"


def exists_any(name: str, minor: int) -> bool:
    """Whether anything of the device is left in configfs."""
    return bool(find_targets(name)) or is_folder(lio_backstore.folder(name, minor))


def create(target: Target, block_device: str) -> list[str]:
    """Create backstore, target, LUN and access list, Standby, and enable the TPG last.

    Returns:
        Of which initiators with CHAP the kernel refused the entry, as `set_initiators` does.

    Raises:
        CommandError: the kernel refused a step; the parts created stay, and a new call goes on.
    """
    backstore = lio_backstore.create(
        target.name,
        target.minor,
        block_device,
        uuid=target.uuid,
        offers_unmap=target.offers_unmap,
        reservations=target.reservations,
    )
    group = f"{backstore}/alua/sanctl-{target.node_id}"
    os.makedirs(group, exist_ok=True)
    if read_text(f"{group}/tg_pt_gp_id").strip() != str(target.node_id):
        configfs.write(f"{group}/tg_pt_gp_id", str(target.node_id))
    # Implicit only: an explicit change by a host would not move DRBD.
    configfs.write(f"{group}/alua_access_type", "1")
    if not is_exported(target.name):
        configfs.write(f"{group}/alua_access_state", str(STANDBY))
    state_files.of_device(target.name, _TARGET).write(target.iqn)
    tpg = f"{_ROOT}/iscsi/{target.iqn}/tpgt_{target.node_id}"
    os.makedirs(tpg, exist_ok=True)
    if read_text(f"{tpg}/enable").strip() != "1":
        configfs.set_value(f"{tpg}/attrib/authentication", "0")
        configfs.set_value(f"{tpg}/attrib/generate_node_acls", "0")
        configfs.set_value(f"{tpg}/attrib/demo_mode_write_protect", "1")
        configfs.set_value(f"{tpg}/attrib/demo_mode_discovery", "0")
        _set_relative_port_id(tpg, target.minor, target.node_id)
    lun = f"{tpg}/lun/lun_0"
    os.makedirs(lun, exist_ok=True)
    if target.reservations is not None and not is_link(f"{lun}/sanctl-{target.name}"):
        from sanctl.drivers import lio_reservations  # noqa: PLC0415 - few devices have any

        lio_reservations.restore(backstore, tpg, target.reservations)
    configfs.link(backstore, f"{lun}/sanctl-{target.name}")
    bind_group(lun, f"sanctl-{target.node_id}")
    refused = set_initiators(target.name, target.initiators, target.chap)
    for portal in target.portals:
        for other in tpgs(find_targets(target.name)):
            # Another node's until cluster.toml changed: the kernel wants it in one TPG of a target.
            if other != tpg and is_folder(f"{other}/np/{portal}"):
                os.rmdir(f"{other}/np/{portal}")
        make_portal(f"{tpg}/np/{portal}")
    configfs.set_value(f"{tpg}/enable", "1")
    return refused


def make_portal(path: str, *, wait_s: float = _PORTAL_FREE_S) -> None:
    """Create a portal, also in the moment in which another device's stop removes its own.

    All targets with a portal share one listening socket. While a stop resets or closes the socket,
    the kernel does not find it and binds the address once more, which is still taken
    (iscsi_target.c, iscsit_get_np, iscsit_add_np and iscsit_del_np).

    Raises:
        OSError: the kernel refused; it did so for `wait_s` if the address was taken.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def _set_relative_port_id(tpg: str, minor: int, node_id: int) -> None:
    # Different on every node, as a device's ports have to be, and on one node for every device:
    # the kernel wants them unique among all its targets ("Can not set RTPI 0x2, it is already
    # busy", when the second target is enabled). 16 bits: enough for 2046 minors on 32 nodes.
    # Settable since Linux 6.4; before that the kernel counts them itself.
    for path in (f"{tpg}/rtpi", f"{tpg}/attrib/rtpi"):
        if exists(path):
            configfs.set_value(path, str(minor * 32 + node_id))
            return


def bind_group(lun: str, group: str) -> None:
    """Have a LUN in an ALUA group of its backstore.

    Raises:
        CommandError: the kernel refused.
    """
    path = f"{lun}/alua_tg_pt_gp"
    if f"Alias: {group}\n" not in read_text(path):
        configfs.write(path, group)
    # Read back: some writers have had this fail without an error.
    if group not in read_text(path):
        raise CommandError(
            Problem("SAN-LIO-003", f"the kernel did not bind {lun} to the ALUA group {group}")
        )


def tpgs(targets: Iterable[str]) -> list[str]:
    """Return the folders of all TPGs of these targets."""
    return [
        f"{folder}/{entry}"
        for folder in targets
        for entry in configfs.folders(folder)
        if entry.startswith("tpgt_")
    ]


def has_lun(tpg: str) -> bool:
    """Whether a TPG has a LUN: this node's has, also while it is disabled."""
    return bool(configfs.folders(f"{tpg}/lun"))


def access(name: str) -> tuple[str, ...]:
    """Return the entries of the access list in force, as text (sanctl/model/access.py)."""
    return tuple(map(lio_acl.read_word, _acls(name)))


def initiators(name: str) -> list[str]:
    """Return the initiators on the access list in force."""
    return [acl.rpartition("/")[2] for acl in _acls(name)]


def mapped_initiators(name: str) -> list[str]:
    """Return the initiators on the access list whose LUN is mapped.

    What one has registered goes with its mapping, before its entry (target_core_device.c,
    core_disable_device_list_for_node).
    """
    return [acl.rpartition("/")[2] for acl in _acls(name) if is_link(f"{acl}/lun_0/lun_0")]


def has_credentials(name: str, chap: Mapping[str, lio_acl.Chap]) -> bool:
    """Whether the entries of initiators ask for just these secrets."""
    return not chap or all(
        iqn not in chap or lio_acl.has_credentials(acl, chap[iqn])
        for acl in _acls(name)
        for iqn in (acl.rpartition("/")[2],)
    )


def asks_everyone(name: str) -> bool:
    """Whether a TPG asks those to authenticate, too, whose own entry does not.

    A process was killed while it made an entry (lio_acl.py). On older kernels hosts without CHAP
    are refused meanwhile.
    """
    return any(
        read_text_or(f"{tpg}/attrib/authentication", "0").strip() != "0"
        for tpg in tpgs(find_targets(name))
        if has_lun(tpg)
    )


def _acls(name: str) -> list[str]:
    return [
        f"{tpg}/acls/{entry}"
        for tpg in tpgs(find_targets(name))
        if has_lun(tpg)
        for entry in configfs.folders(f"{tpg}/acls")
    ]


def set_initiators(
    name: str, wanted: Iterable[str], chap: Mapping[str, lio_acl.Chap] = NO_CHAP
) -> list[str]:
    """Make the access list exactly these initiators: first remove, then add.

    A removed initiator's session ends at once. Those in `chap` have to authenticate. One of them
    that the kernel refuses keeps out itself and nobody else.

    Returns:
        What the kernel refused, as text.

    Raises:
        CommandError: the kernel refused an initiator without CHAP.
        OSError: the same.
    """
    refused = []
    keep = set(wanted)
    remove_initiators(name, keep=keep)
    for tpg in filter(has_lun, tpgs(find_targets(name))):
        for initiator in lio_acl.without_chap_first(keep, chap):
            try:
                lio_acl.allow(tpg, initiator, chap.get(initiator))
            except (CommandError, OSError) as error:
                if initiator not in chap:
                    raise
                refused.append(f"{initiator}: {error}")
        lio_acl.let_others_in(tpg, chap)
    return refused


def remove_initiators(name: str, *, keep: Container[str]) -> None:
    """Take all other initiators off the access list; their sessions end at once.

    Raises:
        CommandError: the kernel refused.
        OSError: the same.
    """
    for acl in _acls(name):
        if acl.rpartition("/")[2] not in keep:
            lio_acl.end_sessions(acl)
            lio_acl.remove(acl)


def remove_tpg(tpg: str) -> None:
    """Remove a disabled TPG with all that is in it."""
    for portal in configfs.folders(f"{tpg}/np"):
        os.rmdir(f"{tpg}/np/{portal}")
    for acl in configfs.folders(f"{tpg}/acls"):
        lio_acl.remove(f"{tpg}/acls/{acl}")
    for lun in configfs.folders(f"{tpg}/lun"):
        configfs.remove_links(f"{tpg}/lun/{lun}")
        os.rmdir(f"{tpg}/lun/{lun}")
    os.rmdir(tpg)


def remove(name: str, minor: int) -> None:
    """Remove the target and its backstore, whatever parts of them exist.

    The TPG is disabled first: until the LUN is gone no host may see it in the default group.
    """
    targets = find_targets(name)
    # They are without a LUN in between, and those of an older release were not noted when made.
    # Without room for it a stop goes on: what is left if it dies half way is a target without LUN.
    note, names = state_files.of_device(name, _TARGET), " ".join(map(os.path.basename, targets))
    with contextlib.suppress(OSError):
        if note.read() != names:
            note.write(names)
    # The enabled one first: no host may wait for what other nodes' portals take.
    for tpg in sorted(tpgs(targets), key=_is_enabled, reverse=True):
        if _is_enabled(tpg):
            configfs.write(f"{tpg}/enable", "0")
        remove_tpg(tpg)
    for folder in targets:
        os.rmdir(folder)
    state_files.of_device(name, _TARGET).remove()
    lio_backstore.remove(name, minor)
