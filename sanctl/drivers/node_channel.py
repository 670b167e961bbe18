# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages to another node, by a connection on the sync network: lines of JSON, each with a MAC.

The key is the cluster's DRBD secret. Each side names a number that it has just drawn, and counts
its messages: one that was recorded is worth nothing later, and none can be left out, repeated, or
sent back. Nothing in them is secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import time
from typing import Any

from sanctl.errors import CommandError, Problem
from sanctl.system.files import read_text_or

#: The TCP port on the sync network. DRBD's begin behind it.
PORT = 7799
#: That of sanctl-reservations.service.
RESERVATIONS_PORT = 7798
#: The requests that a connection begins with.
PREPARE, LOOK_FOR_DELETED = "prepare", "look-for-deleted"
STORE_RESERVATIONS, READ_RESERVATIONS = "store-reservations", "read-reservations"
#: What both of those are answered with.
STORED = "reservations"
_VERSION = 1
_SECRET = "/etc/sanctl/drbd.secret"  # noqa: S105 - its path, not the secret
_LONGEST_BYTES = 1 << 17
_NONCE_BYTES = 16
_HINT_S = 5.0


class ConnectionEnded(CommandError):
    """The other end has closed the connection, or knows nothing of it: its process is another."""


class Channel:
    """A connection of two nodes. Errors of the network and of the peer are a CommandError."""

    def __init__(self, connection: socket.socket, peer: str, *, is_leader: bool) -> None:
        self._socket, self._peer, self._is_leader = connection, peer, is_leader
        self._rest = b""
        self._sent = self._received = 0
        secret = read_text_or(_SECRET, "").strip()
        if not secret:
            raise CommandError(
                Problem("SAN-AGENT-003", f"{_SECRET} is missing or empty", "run the playbook")
            )
        self._key = secret.encode()
        self._nonces = ""

    def greet(self, *, within_s: float) -> None:
        """Exchange the numbers that all later messages are bound to.

        Raises:
            CommandError: the peer did not answer, or is of another release.
        """
        deadline = time.monotonic() + within_s
        own = os.urandom(_NONCE_BYTES).hex()
        self._write(json.dumps({"version": _VERSION, "nonce": own}))
        try:
            other = json.loads(self._line(deadline))
            is_known = other["version"] == _VERSION and len(other["nonce"]) == 2 * _NONCE_BYTES
        except (ValueError, TypeError, KeyError) as error:
            raise self._error("sent what is no greeting") from error
        if not is_known:
            raise self._error("speaks another version; the nodes have different releases")
        pair = (own, other["nonce"]) if self._is_leader else (other["nonce"], own)
        self._nonces = ":".join(pair)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message.

        Raises:
            CommandError: the connection is lost.
        """
        body = json.dumps({"kind": kind, **fields})
        mac = self._mac(body, self._sent, is_from_leader=self._is_leader)
        self._sent += 1
        self._write(json.dumps([body, mac]))

    def receive(self, kind: str, *, within_s: float) -> dict[str, Any]:
        """Return the next message, which has to be of this kind.

        Raises:
            CommandError: it did not come, is not the peer's, or says why the peer refuses.
        """
        return self.expect((kind,), within_s=within_s)

    def expect(self, kinds: tuple[str, ...], *, within_s: float) -> dict[str, Any]:
        """As `receive`, for a message of one of several kinds."""
        try:
            body, mac = json.loads(self._line(time.monotonic() + within_s))
            wanted = self._mac(body, self._received, is_from_leader=not self._is_leader)
            if not hmac.compare_digest(wanted, mac):
                raise self._error("does not have this cluster's DRBD secret")
            self._received += 1
            message: dict[str, Any] = json.loads(body)
        except (ValueError, TypeError, AttributeError) as error:
            raise self._error("sent what is no message") from error
        if message.get("kind") == "refused":
            text, hint = f"{self._peer}: {message['text']}", str(message.get("hint", ""))
            raise CommandError(Problem(str(message["code"]), text, hint))
        if message.get("kind") not in kinds:
            raise self._error(f"sent {message.get('kind')!r} instead of {' or '.join(kinds)}")
        return message

    def give_up_after(self, time_s: float) -> None:
        """Lose the connection once what was sent has not arrived for so long (tcp(7))."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(time_s * 1000)
            )

    def has_ended(self) -> bool:
        """Whether the other end has closed the connection, or has sent what nobody asked for."""
        try:
            self._socket.settimeout(0.0)
            return bool(self._rest) or self._socket.recv(1, socket.MSG_PEEK) is not None
        except BlockingIOError:
            return False
        except OSError:
            return True

    def fileno(self) -> int:
        """Return the connection's descriptor: it has data when the other end says more, or ends."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _mac(self, body: str, number: int, *, is_from_leader: bool) -> str:
        text = f"{self._nonces}:{is_from_leader}:{number}:{body}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _write(self, line: str) -> None:
        try:
            self._socket.settimeout(5.0)
            self._socket.sendall(f"{line}\n".encode())
        except OSError as error:
            raise self._lost(error) from error

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._rest:
            if len(self._rest) > _LONGEST_BYTES:
                raise self._error("sent too long a line")
            try:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                part = self._socket.recv(4096)
            except TimeoutError as error:
                raise self._error("did not answer in time") from error
            except OSError as error:
                raise self._lost(error) from error
            if not part:
                raise ConnectionEnded(*self._error("closed the connection").problems)
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _lost(self, error: OSError) -> CommandError:
        lost = self._error(f"lost the connection: {error}")
        has_ended = isinstance(error, ConnectionResetError | BrokenPipeError)
        return ConnectionEnded(*lost.problems) if has_ended else lost

    def _error(self, text: str) -> CommandError:
        return CommandError(Problem("SAN-SNAP-004", f"the replica on {self._peer} {text}"))


def connect(
    address: str, peer: str, own_address: str, *, within_s: float, port: int | None = None
) -> Channel:
    """Connect to the node that has a standby replica; by default to sanctl-points.socket.

    Raises:
        CommandError: nothing listens there, or it does not answer.
    """
    to = PORT if port is None else port
    unit = "sanctl-points.socket" if port is None else "sanctl-reservations.service"
    try:
        connection = socket.create_connection(
            (address, to), timeout=within_s, source_address=(own_address, 0)
        )
    except OSError as error:
        raise CommandError(
            Problem(
                "SAN-SNAP-004",
                f"the replica on {peer} cannot be reached at {address} port {to}: {error}",
                f"'systemctl status {unit}' on {peer}; the port has to be open on the sync network",
            )
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Channel(connection, peer, is_leader=True)


def ask_to_look_for_deleted(address: str, node: str, own_address: str) -> None:
    """Have a node's pool agent look now for devices that have been deleted, not in some seconds.

    Only a hint: the node reads the CIB itself, and its next monitor does the same.

    Raises:
        CommandError: it cannot be reached, or does not answer.
    """
    channel = connect(address, node, own_address, within_s=_HINT_S)
    try:
        channel.greet(within_s=_HINT_S)
        channel.send(LOOK_FOR_DELETED)
    finally:
        channel.close()
