# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-actions.service: imports everything once, then forks a process for each request.

The service keeps no state and starts no thread, so it may end at any point: the processes that it
has forked go on and answer their clients themselves, and a client that finds no service runs its
program itself. It reads nothing of a connection: a client that sends nonsense, or nothing, holds up
its own process only. Where there is no process, memory or descriptor for a request, the request's
connection ends unanswered, its client runs the program itself, and the service goes on.

It serves one release. It ends where /opt/sanctl/current leads elsewhere, and systemd starts the
service of that release.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import time

from sanctl.agents.release import CURRENT, is_replaced, own_release
from sanctl.agents.service import forked_process
from sanctl.drivers import quorum_library
from sanctl.system import state_files

#: How often it looks for a new release, and tells systemd that it runs: a fifth of WatchdogSec.
_TICK_S = 3.0
_BACKLOG = 512
_PACKAGES = (
    "sanctl.agents",
    "sanctl.drivers",
    "sanctl.system",
    "sanctl.config",
    "sanctl.plan",
    "sanctl.parse",
    "sanctl.render",
    "sanctl.model",
)
#: What they import in functions, because a process of their own seldom needs it.
LIBRARY = (
    "base64",
    "ctypes",
    "fcntl",
    "glob",
    "hashlib",
    "hmac",
    "json",
    "mmap",
    "re",
    "secrets",
    "shutil",
    "subprocess",
    "tempfile",
    "tomllib",
    "traceback",
    "xml.etree.ElementTree",
    # python3-systemd of the distribution; without it messages go to standard error.
    "systemd.journal",
    "systemd.daemon",
)


def main() -> int:
    """Serve until another release is current; return the exit status."""
    # The kernel takes finished processes away.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_everything()
    quorum_library.load()
    release = own_release()
    state_files.make_folder()
    listener = listen(state_files.actions_socket())
    gc.collect()
    # Not touched by collections in the forked processes, so that they share the memory.
    gc.freeze()
    _notify("READY=1")
    _log(f"forks the actions of release {release}")
    serve(listener, release)
    return 0


def listen(path: str) -> socket.socket:
    """Return a socket that listens at a path, in the place of what is there.

    Of two services the latter has the clients; the former goes when it sees the new release.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    temporary = f"{path}.new.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    before = os.umask(0o177)
    try:
        listener.bind(temporary)
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    os.rename(temporary, path)
    listener.setblocking(False)
    return listener


def serve(
    listener: socket.socket,
    release: str,
    program: forked_process.Program = forked_process.run_program,
    current: str = CURRENT,
) -> None:
    """Fork a process for each connection, until another release is current."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    told_s = 0.0
    while not is_replaced(release, current):
        now_s = time.monotonic()
        if now_s - told_s >= _TICK_S:
            told_s = now_s
            _notify("WATCHDOG=1")
        if _is_asked(poll):
            _accept(listener, release, program)
    _log(f"{current} is not {release} any more: ends, to be started from there")


def _is_asked(poll: select.poll) -> bool:
    """Whether a connection waits; also whether it cannot be told for want of memory."""
    try:
        return bool(poll.poll(_TICK_S * 1000))
    except (OSError, MemoryError) as error:
        _give_way(f"not known whether an action is asked for: {_why(error)}")
        return True


def _accept(listener: socket.socket, release: str, program: forked_process.Program) -> None:
    try:
        connection, _ = listener.accept()
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) not in {errno.EAGAIN, errno.ECONNABORTED, errno.EINTR}:
            # No descriptor or memory left. The clients do not wait for long.
            _give_way(f"a connection was not accepted: {_why(error)}")
        return
    with connection:
        try:
            child = os.fork()
        except (OSError, MemoryError) as error:
            # The client sees the end of the connection, and runs the program itself.
            _log(f"no process for an action: {_why(error)}")
            return
        if child == 0:
            listener.close()
            forked_process.run(connection, release, program)


def _import_everything() -> None:
    modules = [
        each.name
        for package in _PACKAGES
        for each in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    ]
    for name in (*modules, *LIBRARY):
        try:
            importlib.import_module(name)
        except Exception as error:
            # An action that needs it fails as it would without the service.
            _log(f"not imported: {name}: {error!r}")


def _notify(text: str) -> None:
    """Tell systemd, where it is that which has started the service."""
    with contextlib.suppress(ImportError, OSError):
        from systemd import daemon  # noqa: PLC0415 - of the distribution, not in a checkout

        daemon.notify(text)


def _log(message: str) -> None:
    """Write to the journal by standard error.

    Not by sanctl.system.journal: the forked processes would share its connection.
    """
    # A message that cannot be written does not end the service, least of all where something lacks.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{message}\n")


def _give_way(message: str) -> None:
    """Log what failed, and let others go on before it is tried again."""
    _log(message)
    time.sleep(0.1)


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
