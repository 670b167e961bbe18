# SPDX-License-Identifier: GPL-2.0-or-later
"""A laboratory's host (i1): iSCSI login, multipath device, and the ledger that it writes."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.measure import ledger_writer

_WRITER = "/usr/local/lib/sanctl-ledger.py"
_SESSION = re.compile(r"^\w+: \[(\d+)\] (\S+?):\d+,\d+ (\S+)", re.MULTILINE)

# Prints, for each path of a target, the name of its dm device and its sdX, once udev has made the
# dm device's link: without the link no program can open it.
_FIND_PATHS = r"""
for portal in {portals}; do
    path=$(readlink -e /dev/disk/by-path/ip-$portal:3260-iscsi-{iqn}-lun-0) || continue
    for dm in /sys/block/${{path#/dev/}}/holders/dm-*; do
        [ -e $dm ] || continue
        name=$(cat $dm/dm/name)
        # The kernel has it before udev has made its name.
        [ -b /dev/mapper/$name ] && echo "$name ${{path#/dev/}}"
    done
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRun:
    """A ledger writer that runs on a host: its systemd unit, device and log."""

    unit: str
    device: str
    log: str


class Initiator:
    """One host of the laboratory, the initiator of its iSCSI sessions."""

    def __init__(self, bed: LabSession, name: str) -> None:
        self.bed = bed
        self.name = name

    @property
    def iqn(self) -> str:
        """The host's iSCSI initiator name."""
        return self.bed.node(self.name).initiator_iqn

    def sh(self, script: str, *, timeout_s: float = 60.0, ok: Sequence[int] = (0,)) -> str:
        """Run a script on the host and return what it printed."""
        return self.bed.sh(self.name, script, timeout_s=timeout_s, ok=ok).stdout

    def discover(self, portal: str) -> tuple[str, ...]:
        """Ask a portal for the targets it shows this host."""
        return tuple(dict.fromkeys(target for target, _ in self.discovered_paths(portal)))

    def discovered_paths(self, portal: str) -> list[tuple[str, str]]:
        """Ask a portal for targets; return each target with one of its portals, `ADDRESS:PORT,TAG`.

        The host's records are afterwards what the answer says.
        """
        out = self.sh(
            # 21: no records found, the answer to a host that is in no target's access list.
            f"iscsiadm -m discovery -t sendtargets -p {portal}",
            ok=(0, 21),
        )
        lines = [line.split() for line in out.splitlines()]
        return [(line[1], line[0]) for line in lines if len(line) == 2]

    def login(self, target: str, portals: Sequence[str]) -> str:
        """Log in to these portals and return the path of the multipath device.

        The target names the portals of all replica nodes, also of those that are away.

        Raises:
            NotConverged: the device does not appear with all its paths.
        """
        return self.login_all([target], portals)[0]

    def login_all(self, targets: Sequence[str], portals: Sequence[str]) -> list[str]:
        """Log in to several targets; return the paths of their multipath devices.

        Raises:
            NotConverged: as of `login`.
        """
        for portal in portals:
            wait_for(
                f"an answer of the portal {portal} to {self.name}",
                partial(self._has_records, portal),
                within_s=30,
            )
        logins = [f"login {target} {portal}" for target in targets for portal in portals]
        self.sh(
            # 15: has a session already.
            "login() { iscsiadm -m node -T $1 -p $2 --login || [ $? = 15 ]; };"
            f" {' && '.join(logins)}",
            timeout_s=60.0 * (1 + len(targets)),
        )
        return [
            wait_for(
                f"the multipath device of {target} with {len(portals)} paths",
                partial(self._path_with_all, target, portals),
                within_s=45,
            )
            for target in targets
        ]

    def _path_with_all(self, target: str, portals: Sequence[str]) -> str | None:
        found = self.paths(target, portals)
        if len(found) != len(portals):
            return None
        path = f"/dev/mapper/{set(found.values()).pop()}"
        # The kernel has it before udev, on a busy machine, has made its name.
        return path if self.bed.sh(self.name, f"test -e {path}", ok=(0, 1)).status == 0 else None

    def _has_records(self, portal: str) -> bool:
        # 11: the portal closed the connection halfway, or did not answer: the caller asks again.
        script = f"iscsiadm -m discovery -t sendtargets -p {portal}"
        return self.bed.sh(self.name, script, ok=(0, 11)).status == 0

    def paths(self, target: str, portals: Sequence[str]) -> dict[str, str]:
        """Return the multipath device's name by path (sdX)."""
        out = self.sh(_FIND_PATHS.format(portals=" ".join(portals), iqn=target))
        return {path: name for name, path in (line.split() for line in out.splitlines())}

    def logout(self, target: str) -> None:
        """Remove a target's multipath device, log out of its sessions, delete its records."""
        self.sh(
            f"for path in $(ls -d /dev/disk/by-path/ip-*-iscsi-{target}-lun-0 2>/dev/null); do"
            "     for dm in /sys/block/$(basename $(readlink -f $path))/holders/dm-*; do"
            "         [ -e $dm ] && multipath -f $(cat $dm/dm/name);"
            "     done;"
            " done;"
            f" iscsiadm -m node -T {target} --logout; iscsiadm -m node -T {target} -o delete; true"
        )

    def sessions(self, target: str) -> dict[str, str]:
        """Return the session id by portal address."""
        out = self.sh("iscsiadm -m session", ok=(0, 21))
        return {portal: sid for sid, portal, iqn in _SESSION.findall(out) if iqn == target}

    def start_ledger(self, name: str, device: str, *options: str) -> LedgerRun:
        """Start a ledger writer in the background.

        Raises:
            NotConverged: no write was acknowledged.
        """
        source = Path(ledger_writer.__file__).read_text()
        self.bed.sh(self.name, f"mkdir -p {Path(_WRITER).parent}; cat >{_WRITER}", stdin=source)
        run = LedgerRun(unit=f"ledger-{name}", device=device, log=f"/var/tmp/{name}.ledger")  # noqa: S108
        self.sh(
            f"rm -f {run.log}; systemctl reset-failed {run.unit} 2>/dev/null;"
            # The writer ends when the write in flight is answered; that can take a whole takeover.
            f" systemd-run --quiet --collect --unit={run.unit} -p TimeoutStopSec=120"
            f" -p KillMode=mixed python3 {_WRITER} write --device {shlex.quote(device)}"
            f" --log {run.log} {shlex.join(options)}"
        )
        wait_for(
            "the ledger's first writes",
            lambda: int(self.sh(f"stat -c %s {run.log}", ok=(0, 1)) or 0) > 512 + 32 * 20,
            within_s=120,
        )
        return run

    def await_acknowledged(self, run: LedgerRun, more_than: int, *, within_s: float) -> None:
        """Wait until a running ledger has more acknowledged writes than that.

        Raises:
            NotConverged: fewer were acknowledged in time.
        """

        def is_exceeded() -> bool:
            _, records = self.fetch_log(run)
            number = sum(record.kind is ledger_writer.RecordKind.ACK for record in records)
            return number > more_than

        wait_for(
            f"more than {more_than} acknowledged writes",
            is_exceeded,
            within_s=within_s,
            every_s=1.0,
        )

    def stop_ledger(self, run: LedgerRun) -> None:
        """End a ledger; returns when its last write was answered."""
        self.sh(f"systemctl stop {run.unit}", timeout_s=150)

    def check_ledger(self, run: LedgerRun) -> dict[str, Any]:
        """Read every touched block back and return the checker's result."""
        out = self.sh(
            f"python3 {_WRITER} check --device {shlex.quote(run.device)} --log {run.log}",
            timeout_s=300,
            ok=(0, 1),
        )
        result = json.loads(out)
        assert isinstance(result, dict)
        return result

    def fetch_log(self, run: LedgerRun) -> tuple[ledger_writer.LogHead, list[ledger_writer.Record]]:
        """Copy the log from the host and parse it, with times of this machine's clock.

        The ledger may still be running: then the log ends at the last record copied.
        """
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(self.bed.read_bytes(self.name, run.log))
            copy.flush()
            head, records = ledger_writer.read_log(Path(copy.name))
        ahead_ns = round(self.bed.skew_s(self.name) * 1e9)
        return head, [record._replace(wall_ns=record.wall_ns - ahead_ns) for record in records]

    @contextmanager
    def watch_ledger(self, run: LedgerRun) -> Iterator[Iterator[dict[str, Any]]]:
        """Follow a ledger: one state about every half second."""
        with self.bed.stream(self.name, f"python3 {_WRITER} watch --log {run.log}") as process:
            assert process.stdout is not None
            yield (json.loads(line) for line in process.stdout)
