# SPDX-License-Identifier: GPL-2.0-or-later
"""One entry of a LIO target's access list: mapped LUN, CHAP names and secrets.

Whether a login has to authenticate is the ACL's `attrib/authentication` (Linux 5.19 and later;
iscsi_target_nego.c, iscsi_conn_auth_required); -1, with which it begins, is the TPG's. The TPG's is
0. So between the folder and its attribute an ACL of a host with CHAP would let the host in unasked.
For that moment the TPG's is 1. The ACL of a host without CHAP has 0 of its own: newer kernels let
it log in during that moment, too (iscsi_target_login.c, iscsi_login_zero_tsih_s2); an older one
offers no host to log in without while the TPG's is 1.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

from sanctl.drivers import configfs
from sanctl.errors import CommandError, Problem
from sanctl.model.access import access_word
from sanctl.system.files import exists, is_folder, is_link, read_text, read_text_or

_NONE = "NULL"  # The kernel's word for no name and no secret.
_NOBODY = "?"  # No user of CHAP is called so.
# LIO's default (iscsi_target_core.h, TA_DEFAULT_CMDSN_DEPTH), and another that is as good: it stays
# where a process is killed before the entry goes.
_WINDOWS = ("64", "63")


class Chap(NamedTuple):
    """How an initiator logs in with CHAP.

    Attributes:
        user: its user name.
        secret: its secret; empty: not known here.
        is_mutual: the target authenticates, too, by the same user name.
        mutual: the target's secret.
    """

    user: str
    secret: str = ""
    is_mutual: bool = False
    mutual: str = ""

    def __repr__(self) -> str:
        return f"Chap({self.user}, …)"  # Neither in a log nor in a traceback.


def read_word(acl: str) -> str:
    """Return an entry as text (sanctl/model/access.py), as it is in force."""
    iqn = acl.rpartition("/")[2]
    if not is_link(f"{acl}/lun_0/lun_0"):
        # A process was killed half way. No entry is wanted so: the next monitor completes it.
        return access_word(iqn, _NOBODY, is_mutual=False)
    if read_text_or(f"{acl}/attrib/authentication", "-1").strip() != "1":
        return iqn
    user = _name(f"{acl}/auth/userid")
    is_mutual = read_text(f"{acl}/auth/authenticate_target").strip() == "1"
    # An entry that lets nobody in is not one without CHAP.
    return access_word(iqn, user or _NOBODY, is_mutual=is_mutual)


def has_credentials(acl: str, chap: Chap) -> bool:
    """Whether an entry asks for just these secrets; also where they are not known here."""
    if not chap.secret:
        return True
    return {attribute: _name(f"{acl}/auth/{attribute}") for attribute in _values(chap)} == {
        attribute: _named(value) for attribute, value in _values(chap).items()
    }


def allow(tpg: str, initiator: str, chap: Chap | None = None) -> None:
    """Let an initiator log in to a TPG and use its LUN 0: with CHAP, or without.

    An initiator whose secret is not known here gets no entry. One that has an entry keeps it, and
    its sessions, and has to authenticate from now on.

    Raises:
        CommandError: the kernel refused, or cannot ask one initiator alone to authenticate.
    """
    acl = f"{tpg}/acls/{initiator}"
    if chap is None:
        _let_in_unasked(tpg, initiator)
        return
    if not chap.secret and not is_folder(acl):
        return
    _require_chap(tpg, acl)
    # Before anyone can log in: a session without a LUN is answered by LIO's dummy (end_sessions).
    map_lun(tpg, initiator)
    _set_credentials(acl, chap)


def map_lun(tpg: str, initiator: str) -> None:
    """Map the TPG's LUN 0 for an initiator that has an entry.

    Raises:
        OSError: the kernel refused.
    """
    mapped = f"{tpg}/acls/{initiator}/lun_0"
    os.makedirs(mapped, exist_ok=True)
    configfs.link(f"{tpg}/lun/lun_0", f"{mapped}/lun_0")


def without_chap_first(initiators: Iterable[str], chap: Container[str]) -> list[str]:
    """Return initiators in the order in which `allow` is to be called for them.

    Those without CHAP have an attribute of their own before the TPG asks for a moment.
    """
    return sorted(initiators, key=lambda each: (each in chap, each))


def let_others_in(tpg: str, chap: Collection[str]) -> None:
    """Have the TPG ask nobody whose own entry does not: a killed process may have left it asking.

    Not while an entry that has to ask does not yet.
    """
    for initiator in chap:
        acl = f"{tpg}/acls/{initiator}"
        if is_folder(acl) and read_text_or(f"{acl}/attrib/authentication", "-1").strip() != "1":
            return
    if read_text_or(f"{tpg}/attrib/authentication", "0").strip() != "0":
        configfs.set_value(f"{tpg}/attrib/authentication", "0")


def _let_in_unasked(tpg: str, initiator: str) -> None:
    """Make the entry of an initiator without CHAP, if it has none, and let it in last.

    Where nobody else is kept out by it the TPG asks until the LUN is mapped. Else the initiator may
    log in for a moment before, and has LIO's dummy for a disk until then.
    """
    acl, of_all = f"{tpg}/acls/{initiator}", f"{tpg}/attrib/authentication"
    is_asking = not is_folder(acl) and _can_ask_all(tpg)
    if is_asking:
        configfs.set_value(of_all, "1")
    try:
        os.makedirs(acl, exist_ok=True)
        map_lun(tpg, initiator)
        if exists(f"{acl}/attrib/authentication"):
            configfs.set_value(f"{acl}/attrib/authentication", "0")
    except (CommandError, OSError):
        # Without its own attribute it would be let in with the TPG's.
        if is_asking and is_folder(acl):
            remove(acl)
        if is_asking:
            configfs.set_value(of_all, "0")
        raise
    if is_asking:
        configfs.set_value(of_all, "0")


def _can_ask_all(tpg: str) -> bool:
    """Whether initiators may log in, and each that has an entry is asked by its own, or not.

    An older kernel has no such attribute: hosts without CHAP would be refused, and not come back by
    themselves (docs/adr/0052).
    """
    return read_text_or(f"{tpg}/enable", "0").strip() == "1" and all(
        read_text_or(f"{tpg}/acls/{each}/attrib/authentication", "-1").strip() != "-1"
        for each in configfs.folders(f"{tpg}/acls")
    )


def _require_chap(tpg: str, acl: str) -> None:
    attribute, of_all = f"{acl}/attrib/authentication", f"{tpg}/attrib/authentication"
    if is_folder(acl):
        # A kernel that cannot refuses, and the host's sessions go on as they are.
        if not exists(attribute):
            raise _too_old(acl)
        configfs.set_value(attribute, "1")
        return
    configfs.set_value(of_all, "1")
    try:
        os.mkdir(acl)
        if not exists(attribute):
            raise _too_old(acl)
        configfs.set_value(attribute, "1")
    except (CommandError, OSError):
        # The TPG goes on to ask where the entry cannot be removed: it would ask nobody.
        if is_folder(acl):
            remove(acl)
        configfs.set_value(of_all, "0")
        raise
    configfs.set_value(of_all, "0")


def _too_old(acl: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-LIO-004",
            f"{acl}: this kernel cannot ask one initiator alone to authenticate",
            "run Linux 5.19 or later on this node, or let the host in without CHAP",
        )
    )


def _set_credentials(acl: str, chap: Chap) -> None:
    if not chap.secret:
        return
    # Readable by everyone else.
    os.chmod(f"{acl}/auth", 0o700)
    for attribute, value in _values(chap).items():
        if _name(f"{acl}/auth/{attribute}") != _named(value):
            _write_unnamed(f"{acl}/auth/{attribute}", value)


def _write_unnamed(path: str, value: str) -> None:
    """Write an attribute; no error names the value, which may be a secret."""
    try:
        configfs.write(path, value)
    except CommandError:
        raise CommandError(
            Problem("SAN-LIO-001", f"the kernel refused the value for {path}")
        ) from None


def _values(chap: Chap) -> dict[str, str]:
    return {
        "userid": chap.user,
        "password": chap.secret,
        "userid_mutual": chap.user if chap.is_mutual else _NONE,
        "password_mutual": chap.mutual if chap.is_mutual else _NONE,
    }


def _name(path: str) -> str:
    return _named(read_text(path).rstrip("\n"))


def _named(value: str) -> str:
    return "" if value == _NONE else value


def end_sessions(acl: str) -> None:
    """End an initiator's sessions, while its LUN is still mapped; it may log in again.

    A session without a LUN 0 is answered by LIO's dummy: reads of its first 32 KiB are GOOD, with
    whatever the node's memory held (docs/adr/0055). A changed command window ends all sessions of
    an ACL (target_core_tpg.c, core_tpg_set_initiator_node_queue_depth).

    Raises:
        CommandError: the kernel refused.
        OSError: there is no such entry.
    """
    path = f"{acl}/cmdsn_depth"
    configfs.write(path, _WINDOWS[read_text(path).strip() == _WINDOWS[0]])


def remove(acl: str) -> None:
    """Remove an initiator without sessions from an access list, with the LUNs mapped for it."""
    for mapped in configfs.folders(acl):
        if mapped.startswith("lun_"):
            configfs.remove_links(f"{acl}/{mapped}")
            os.rmdir(f"{acl}/{mapped}")
    os.rmdir(acl)
