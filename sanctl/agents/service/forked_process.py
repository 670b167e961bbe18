# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that sanctl-actions.service forks for one request: runs one program, then ends.

It takes over what a process has from the one that starts it: descriptors, environment, working
folder, umask, nice value, OOM score. It leads a process group, and has the kernel kill that group
when the client goes (F_SETOWN, F_SETSIG, O_ASYNC): Pacemaker kills an action that takes too long
together with all of its processes, and this holds also while the service is gone or hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from sanctl.agents import ocf
from sanctl.agents.handlers import programs
from sanctl.agents.service import request
from sanctl.agents.service.request import Request

#: How long a request may take to arrive. The client has sent it before this process was forked.
_REQUEST_S = 5.0
_KILLED, _FLUSH_FAILED = 1, 120
_DESCRIPTORS = (0, 1, 2)
_LIBC = ctypes.CDLL(None, use_errno=True)
#: pidfd_getfd(2): of one number on all processors (but alpha).
_PIDFD_GETFD = 438

RESOURCE_AGENTS = {
    "device": "sanctl.agents.device",
    "pool": "sanctl.agents.pool",
    "reach": "sanctl.agents.reach",
}

#: Runs the program of argv[0] and returns its exit status.
Program = Callable[[list[str]], int]


def run_program(argv: list[str]) -> int:
    """Run the resource agent or handler that argv[0] names; return its exit status."""
    agent = RESOURCE_AGENTS.get(os.path.basename(argv[0]))
    if agent is None:
        return programs.main(argv)
    return int(importlib.import_module(agent).main(argv))


def run(connection: socket.socket, release: str, program: Program = run_program) -> NoReturn:
    """Carry out the request of a connection in this process, which ends here.

    The connection is all that this process shares with the service; `release` is the folder name of
    the release that this process has.
    """
    status = _KILLED
    try:
        status = _carry_out(connection, release, program)
    except (OSError, ValueError) as error:
        # Before the program began: the client runs it itself.
        sys.stderr.write(f"an action was not accepted: {error}\n")
    finally:
        # Neither `atexit` nor the ends of objects: they are the service's.
        os._exit(status)


def _carry_out(connection: socket.socket, release: str, program: Program) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    connection.settimeout(_REQUEST_S)
    pid, uid, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if uid not in {0, os.geteuid()}:
        raise ValueError(f"the client is user {uid}")
    wanted = _receive(connection)
    if wanted.release != release:
        raise ValueError(f"the client is of release {wanted.release}, this service of {release}")
    _take_over(wanted, pid)
    descriptors = _descriptors_of(pid)
    connection.sendall(request.READY)
    connection.settimeout(None)
    # Without a limit: the client goes on, or closes, or ends. Had this process gone first, the
    # client could not know whether it began.
    if connection.recv(1) != request.GO or not _die_with_client(connection):
        return _KILLED
    # Until here at the service's nice value: where many programs run, a client that was not
    # answered in time would start one more interpreter.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, pid))
    for own, descriptor in zip(_DESCRIPTORS, descriptors, strict=True):
        os.dup2(descriptor, own)
        os.close(descriptor)
    status = _status_of(program, list(wanted.argv))
    _flush()
    # Now the client may end before this process has.
    fcntl.fcntl(connection, fcntl.F_SETFL, os.O_RDWR)
    with contextlib.suppress(OSError):
        connection.sendall(bytes([status]))
    return status


def _receive(connection: socket.socket) -> Request:
    header = connection.recv(request.LENGTH_DIGITS)
    left = request.parse_length(header)
    parts = []
    while left:
        part = connection.recv(min(left, 2**18))
        if not part:
            raise ValueError("a request that ends in the middle")
        parts.append(part)
        left -= len(part)
    return request.parse(b"".join(parts))


def _take_over(wanted: Request, client: int) -> None:
    # Before this process was forked: the service may have been busy, or stopped.
    ocf.begin_with(client)
    os.umask(wanted.umask)
    try:
        os.chdir(wanted.folder)
    except OSError:
        os.chdir("/")  # one that was removed, in which the client itself has no path
    os.environ.clear()
    os.environb.update(wanted.environment)
    # The time zone may have changed since the service began.
    time.tzset()
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{client}/oom_score_adj", "rb") as of_client,
        open("/proc/self/oom_score_adj", "r+b", buffering=0) as of_this,
    ):
        score = of_client.read()
        if score != of_this.read():
            of_this.write(score)


def _descriptors_of(client: int) -> list[int]:
    """Return copies of the client's standard descriptors.

    Taken from it, rather than sent by it: in a connection that a service which hangs does not read,
    they would keep open the pipes whose end an operator's shell waits for.

    Raises:
        OSError: it has gone, or the kernel does not allow it (kernel.yama.ptrace_scope 3).
    """
    handle = os.pidfd_open(client)
    taken = []
    for each in _DESCRIPTORS:
        taken.append(_LIBC.syscall(_PIDFD_GETFD, handle, each, 0))
        if taken[-1] < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), f"descriptor {each} of the client")
    os.close(handle)
    return taken


def _die_with_client(connection: socket.socket) -> bool:
    """Have the kernel kill this process group when the client goes; return False if it has gone."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, os.O_RDWR | os.O_ASYNC)
    # It may have gone before this.
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return not poll.poll(0)


def _status_of(program: Program, argv: list[str]) -> int:
    """Return the exit status as Python's interpreter would at the end of a script."""
    sys.argv = argv
    try:
        code: object = program(argv)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
