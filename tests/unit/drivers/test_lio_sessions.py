# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions read from a folder like configfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import lio_sessions
from sanctl.model.host_session import HostSession

A, B, C = (f"iqn.2026-11.net.example:{each}" for each in "abc")
# As Linux 6.12 writes it.
INFO = """\
InitiatorName: iqn.2026-11.net.example:a
InitiatorAlias: i1
LIO Session ID: 4   ISID: 0x000000000000  TSIH: 4  SessionType: Normal
Session State: {state}
---------------------[iSCSI Session Values]-----------------------
  CmdSN/WR  :  CmdSN/WC  :  ExpCmdSN  :  MaxCmdSN  :     ITT    :     TTT
 0x00000080   0x00000080   0x00000042   0x000000c1   0x00000000   0x00000001
----------------------[iSCSI Connections]-------------------------
CID: 0  Connection State: TARG_CONN_STATE_LOGGED_IN
   Address 10.77.1.101 TCP  StatSN: 0x12345678
"""


def test_sessions_with_devices_of_sanctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lio_sessions, "_ROOT", str(tmp_path))
    for target, backstore in (
        ("iqn.x.vm1", "sanctl-vm1"),
        ("iqn.x.vm1.kept", "sanctl-point.vm1.kept"),
        ("iqn.x.other", "theirs"),
    ):
        tpg = tmp_path / target / "tpgt_1"
        (tpg / "lun/lun_0").mkdir(parents=True)
        (tpg / "lun/lun_0" / backstore).symlink_to("/")
        for iqn, text in (
            (A, INFO.format(state="TARG_SESS_STATE_LOGGED_IN")),
            (B, f"No active iSCSI Session for Initiator Endpoint: {B}\n"),
            (C, INFO.format(state="TARG_SESS_STATE_FAILED")),
        ):
            (tpg / "acls" / iqn).mkdir(parents=True)
            (tpg / "acls" / iqn / "info").write_text(text)
    # The portals of the other node: no LUN.
    (tmp_path / "iqn.x.vm1/tpgt_2/acls" / A).mkdir(parents=True)
    assert lio_sessions.sessions() == [HostSession("vm1", A, ("10.77.1.101",))]
