# SPDX-License-Identifier: GPL-2.0-or-later
"""The service that forks actions, with its client: real sockets, real processes, each end killed.

What holds in each of these: an action is run once or not at all by the service, a client that was
told GO never runs it, and one that has no answer runs it itself.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.agents import release
from sanctl.agents.handlers import programs
from sanctl.agents.service import forked_process, request, server
from sanctl.system import state_files
from tests.support.doc_samples import ROOT

CLIENT = ROOT / "resource-agents/client"
PROGRAM = ROOT / "resource-agents/direct/program"
#: As it is on a node: each test has a folder of its own in place of /run/sanctl.
_SOCKET = state_files.actions_socket()
DEADLINE_S = 30.0
BY_SERVICE, BY_ITSELF = "by the service", "by itself"
FEW = 100

#: What both run; the first argument is where the run is noted, the second what to do.
ACTIONS = """
import os, signal, subprocess, sys, time
def main(argv):
    what = argv[2]
    with open(argv[1], "a") as log:
        log.write(f"{WHO} {os.getpid()} {os.getpgrp()}\\n")
    if what == "exit":
        return int(argv[3])
    if what == "echo":
        sys.stderr.write("to stderr")
        sys.stdout.write(" ".join([sys.stdin.read(), os.environ["OCF_RESKEY_x"], os.getcwd(),
            oct(os.umask(0)), str("LEFT" in os.environ), str(signal.getsignal(signal.SIGCHLD))]))
        return 0
    if what == "left":
        from sanctl.agents import ocf
        sys.stdout.write(str(ocf.remaining_s(0.0)))
        return 0
    if what == "nice":
        sys.stdout.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
        return 0
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "raise":
        raise RuntimeError("an error of its own")
    if what == "text":
        sys.exit("a text")
    if what == "hold":
        child = subprocess.Popen(["sleep", "300"])
        with open(argv[1], "a") as log:
            log.write(f"child {child.pid}\\n")
        while os.path.exists(argv[3]):
            time.sleep(0.02)
        child.kill()
        child.wait()
        return 5
"""

SERVICE = """
import os, signal, sys
sys.path.insert(0, {root!r})
from sanctl.agents.service import server
WHO = {who!r}
exec({actions!r})
os.environ["LEFT"] = "of the service"
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = server.listen({path!r})
{broken}
sys.stdout.write("listens\\n")
sys.stdout.flush()
server.serve(listener, {release!r}, main, {current!r})
"""


def wait_for(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody has waited for has."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class Bench:
    """A service, clients, and a note of each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.hold = folder / "hold"
        self.path = folder / "socket"
        self.current = folder / "current"
        self.services: list[subprocess.Popen[str]] = []
        self.clients: list[subprocess.Popen[str]] = []
        self.install("new")
        self.client = folder / "device"
        program = folder / "program"
        program.write_text(PROGRAM.read_text().replace("/opt/sanctl/current", str(self.current)))
        self.client.write_text(
            CLIENT.read_text()
            .replace("/opt/sanctl/current", str(self.current))
            .replace("/run/sanctl/actions.socket", str(self.path))
            .replace("/usr/lib/sanctl/program", str(program))
            .replace("/usr/bin/python3", sys.executable)
            .replace("/usr/bin/logger", "true")
            .replace("ANSWER_S = 5;", "ANSWER_S = 10;")
        )
        self.client.chmod(0o755)

    def install(self, release: str) -> None:
        """Make a release the current one, whose agent notes who ran it."""
        agents = self.folder / release / "sanctl/agents"
        agents.mkdir(parents=True)
        (agents / "device.py").write_text(f"WHO = {BY_ITSELF!r}\n{ACTIONS}")
        link = self.folder / "current.new"
        link.symlink_to(release)
        link.rename(self.current)

    def serve(self, release: str = "new", *, broken: str = "") -> subprocess.Popen[str]:
        """Start a service, and wait until it listens; `broken` is run in it before it serves."""
        text = SERVICE.format(
            root=str(ROOT),
            who=BY_SERVICE,
            actions=ACTIONS,
            path=str(self.path),
            release=release,
            current=str(self.current),
            broken=broken,
        )
        with (self.folder / "errors").open("w") as errors:
            service = subprocess.Popen(
                [sys.executable, "-I", "-c", text], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.services.append(service)
        assert service.stdout is not None
        assert service.stdout.readline() == "listens\n"
        return service

    def hasty(self) -> None:
        """Let clients wait for an answer for a moment only."""
        self.client.write_text(self.client.read_text().replace("ANSWER_S = 10;", "ANSWER_S = 0.2;"))

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        """Start a client."""
        client: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            [self.client, self.log, *words],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "start_new_session": True,
                **options,
            },
        )
        self.clients.append(client)
        return client

    def run(self, *words: str, **options: object) -> tuple[int, str, str]:
        """Run a client to its end; return status, output, errors."""
        client = self.start(*words, **options)
        out, errors = client.communicate(timeout=DEADLINE_S)
        return client.returncode, out, errors

    def held(self) -> tuple[subprocess.Popen[str], int, int]:
        """Start an action that goes on; return client, its process and the program it started."""
        self.hold.touch()
        client = self.start("hold", str(self.hold))
        wait_for(lambda: "child" in self.log.read_text() if self.log.exists() else False)
        run, child = self.log.read_text().splitlines()
        return client, int(run.split()[-2]), int(child.split()[-1])

    def runs(self) -> list[str]:
        """Return who ran an action, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.rsplit(" ", 2)[0] for line in lines if line.startswith("by ")]

    def end(self) -> None:
        self.hold.unlink(missing_ok=True)
        for process in (*self.services, *self.clients):
            process.kill()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.end()


def test_an_action_has_what_its_client_was_started_with(bench: Bench) -> None:
    service = bench.serve()
    client = bench.start(
        "echo",
        stdin=subprocess.PIPE,
        cwd=bench.folder,
        umask=0o027,
        env={"OCF_RESKEY_x": "wert \udcff ü\n=", "LC_ALL": "C.UTF-8"},
        encoding="utf-8",
        errors="surrogateescape",
    )
    out, errors = client.communicate("to stdin", timeout=DEADLINE_S)
    handler = str(signal.SIG_DFL)
    assert out == f"to stdin wert \udcff ü\n= {bench.folder} 0o27 False {handler}"
    assert (client.returncode, errors) == (0, "to stderr")
    ((who, pid, group),) = [line.rsplit(" ", 2) for line in bench.log.read_text().splitlines()]
    assert (who, group) == (BY_SERVICE, pid)
    assert int(pid) != service.pid


def test_an_action_has_the_nice_value_of_its_client(bench: Bench) -> None:
    """The service has another one: what it forks answers before actions that run go on."""
    bench.serve()
    found = bench.run("nice", preexec_fn=lambda: os.nice(5))
    assert found == (0, str(os.getpriority(os.PRIO_PROCESS, 0) + 5), "")


@pytest.mark.parametrize("status", [0, 1, 7, 8, 137, 255, 256])
def test_the_exit_status_is_the_actions(bench: Bench, status: int) -> None:
    bench.serve()
    assert bench.run("exit", str(status)) == (status & 0xFF, "", "")
    assert bench.runs() == [BY_SERVICE]


@pytest.mark.parametrize("served", [True, False])
def test_an_action_that_raises_ends_as_a_script_does(bench: Bench, served: bool) -> None:
    if served:
        bench.serve()
    status, _, errors = bench.run("raise")
    assert status == 1
    assert errors.startswith("Traceback (most recent call last):\n")
    assert errors.endswith("RuntimeError: an error of its own\n")
    assert bench.run("text") == (1, "", "a text\n")
    assert bench.runs() == [BY_SERVICE if served else BY_ITSELF] * 2


@pytest.mark.parametrize("served", [True, False])
def test_a_client_without_descriptors_runs(bench: Bench, served: bool) -> None:
    """The kernel starts DRBD's handlers so."""
    if served:
        bench.serve()
    command = f"exec {bench.client} {bench.log} exit 7 0<&- 1>&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 7
    assert bench.runs() == [BY_SERVICE if served else BY_ITSELF]


def test_without_a_service_the_client_runs_it(bench: Bench) -> None:
    assert bench.run("exit", "7") == (7, "", "")
    bench.serve().kill()
    bench.services[0].wait()
    assert bench.path.exists()
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF] * 2


def test_a_service_of_another_release_is_not_used(bench: Bench) -> None:
    bench.folder.joinpath("elsewhere").symlink_to("old")
    bench.client.write_text(
        bench.client.read_text().replace(str(bench.current), str(bench.folder / "elsewhere"))
    )
    bench.install("old")
    service = bench.serve("old")
    bench.install("newer")
    assert service.wait(DEADLINE_S) == 0
    bench.serve("newer")
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF]


def test_a_service_ends_when_another_release_is_current_and_its_actions_go_on(
    bench: Bench,
) -> None:
    service = bench.serve()
    client, _, _ = bench.held()
    bench.install("newer")
    assert service.wait(DEADLINE_S) == 0
    bench.hold.unlink()
    assert client.wait(DEADLINE_S) == 5
    bench.serve("newer")
    assert bench.run("exit", "3")[0] == 3
    assert bench.runs() == [BY_SERVICE] * 2


def test_a_second_service_takes_the_place_of_the_first(bench: Bench) -> None:
    first = bench.serve()
    bench.serve()
    first.send_signal(signal.SIGSTOP)
    assert bench.run("exit", "3")[0] == 3
    assert bench.runs() == [BY_SERVICE]


def test_a_service_that_hangs_is_not_waited_for_and_runs_nothing_later(bench: Bench) -> None:
    bench.hasty()
    service = bench.serve()
    service.send_signal(signal.SIGSTOP)
    for _ in range(3):
        assert bench.run("exit", "7") == (7, "", "")
    service.send_signal(signal.SIGCONT)
    # The requests of before are taken up before this one.
    bench.client.write_text(bench.client.read_text().replace("ANSWER_S = 0.2;", "ANSWER_S = 10;"))
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF] * 3 + [BY_SERVICE]


def test_an_actions_time_is_counted_from_the_begin_of_its_client(bench: Bench) -> None:
    service = bench.serve()
    service.send_signal(signal.SIGSTOP)
    client = bench.start("left", env={"OCF_RESKEY_CRM_meta_timeout": "60000"})
    time.sleep(1.0)
    service.send_signal(signal.SIGCONT)
    out, _ = client.communicate(timeout=DEADLINE_S)
    assert bench.runs() == [BY_SERVICE]
    assert 20.0 < float(out) <= 56.1


@pytest.mark.parametrize("answer", [b"", b"x", b"go away"])
def test_a_service_that_ends_before_it_is_ready_has_run_nothing(
    bench: Bench, answer: bytes
) -> None:
    with server.listen(str(bench.path)) as listener:
        client = bench.start("exit", "7")
        listener.settimeout(DEADLINE_S)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(8).isdigit()
            connection.send(answer)
        assert client.wait(DEADLINE_S) == 7
    client.wait(DEADLINE_S)
    assert bench.runs() == [BY_ITSELF]


#: What fails three times in the service, and works then: what each is replaced by.
_FAILS = """
import errno, types
SERVICE = os.getpid()
def failing(real, error, left=[3]):
    def call(*words):
        if left[0] and os.getpid() == SERVICE:
            left[0] -= 1
            raise error
        return real(*words)
    return call
"""
_NO_PROCESS = _FAILS + "os.fork = failing(os.fork, {error})"
_NO_ANSWER = (
    _FAILS
    + """
import select
def poll(new=select.poll):
    real = new()
    return types.SimpleNamespace(register=real.register, poll=failing(real.poll, {error}))
select.poll = poll
"""
)
_AGAIN = "OSError(errno.EAGAIN, 'Resource temporarily unavailable')"
_NO_MEMORY = "OSError(errno.ENOMEM, 'Cannot allocate memory')"


@pytest.mark.parametrize("error", [_AGAIN, _NO_MEMORY, "MemoryError()"])
def test_an_action_without_a_process_is_run_by_its_client(bench: Bench, error: str) -> None:
    """As with TasksMax or MemoryMax reached: the service goes on, and forks again once it can."""
    service = bench.serve(broken=_NO_PROCESS.format(error=error))
    for _ in range(4):
        assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF] * 3 + [BY_SERVICE]
    assert service.poll() is None
    lines = (bench.folder / "errors").read_text().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("no process for an action: ") for line in lines)


@pytest.mark.parametrize("error", [_NO_MEMORY, "MemoryError()"])
def test_a_service_that_cannot_wait_for_requests_goes_on(bench: Bench, error: str) -> None:
    service = bench.serve(broken=_NO_ANSWER.format(error=error))
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_SERVICE] * 2
    assert service.poll() is None


def test_a_service_without_a_descriptor_is_not_waited_for(bench: Bench) -> None:
    """Later it takes up the requests of before, whose clients have gone, and runs nothing."""
    service = bench.serve()
    bench.hasty()
    soft, hard = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)
    # The standard descriptors and the socket that listens.
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (4, hard))
    for _ in range(2):
        assert bench.run("exit", "7") == (7, "", "")
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (soft, hard))
    bench.client.write_text(bench.client.read_text().replace("ANSWER_S = 0.2;", "ANSWER_S = 10;"))
    assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF] * 2 + [BY_SERVICE]
    assert service.poll() is None


def test_a_service_whose_messages_nobody_takes_goes_on(bench: Bench) -> None:
    full = "sys.stderr = open('/dev/full', 'w', buffering=1)"
    service = bench.serve(broken=f"{_NO_PROCESS.format(error=_AGAIN)}\n{full}")
    for _ in range(4):
        assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF] * 3 + [BY_SERVICE]
    assert service.poll() is None


def test_a_full_backlog_is_not_waited_for(bench: Bench) -> None:
    bench.hasty()
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(bench.path))
        listener.listen(0)
        one = waiting.enter_context(socket.socket(socket.AF_UNIX))
        one.connect(str(bench.path))
        assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_ITSELF]


def test_an_action_goes_on_when_the_service_is_killed(bench: Bench) -> None:
    service = bench.serve()
    client, _, _ = bench.held()
    service.kill()
    service.wait()
    bench.hold.unlink()
    assert client.wait(DEADLINE_S) == 5
    client.wait(DEADLINE_S)
    assert bench.runs() == [BY_SERVICE]


def test_an_action_that_dies_is_not_run_again(bench: Bench) -> None:
    bench.serve()
    status, out, errors = bench.run("kill")
    assert (status, out) == (1, "")
    assert errors.startswith("node: device ")
    assert "the process was killed before its end" in errors
    assert bench.runs() == [BY_SERVICE]


def test_a_reload_that_dies_is_left_to_the_next_monitor(bench: Bench) -> None:
    """Failed it would be a failed start: Pacemaker would stop a device that serves."""
    bench.serve()
    status, out, errors = bench.run("kill", "reload-agent")
    assert (status, out) == (0, "")
    assert "the process was killed before its end; the next monitor does the rest" in errors
    assert "ocf-exit-reason" not in errors
    assert bench.runs() == [BY_SERVICE]
    assert bench.run("exit", "1", "reload-agent")[0] == 1


@pytest.mark.parametrize("with_service", ["running", "killed", "stopped"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_action_and_what_it_started_die_with_the_client(
    bench: Bench, with_service: str, number: signal.Signals
) -> None:
    service = bench.serve()
    client, process, child = bench.held()
    if with_service == "killed":
        service.kill()
        service.wait()
    if with_service == "stopped":
        service.send_signal(signal.SIGSTOP)
    client.send_signal(number)
    client.wait(DEADLINE_S)
    wait_for(lambda: has_ended(process) and has_ended(child))
    assert bench.runs() == [BY_SERVICE]


def connected(bench: Bench, release: str = "new") -> socket.socket:
    """Return a connection that has sent a request."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DEADLINE_S)
    connection.connect(str(bench.path))
    fields = ["1", release, "/", "18", "4", "device", str(bench.log), "exit", "7"]
    body = "\0".join([*fields, ""]).encode()
    connection.send(b"%08d" % len(body) + body)
    return connection


def test_a_client_that_goes_before_it_said_go_has_nothing_run(bench: Bench) -> None:
    bench.serve()
    with connected(bench) as connection:
        assert connection.recv(1) == request.READY
    with connected(bench) as connection:
        assert connection.recv(1) == request.READY
        connection.send(b"x")
        assert connection.recv(1) == b""
    with connected(bench, "other") as connection:
        assert connection.recv(1) == b""
    with connected(bench) as connection:
        assert connection.recv(1) == request.READY
        connection.send(request.GO)
        assert connection.recv(1) == b"\7"
    assert bench.runs() == [BY_SERVICE]


@pytest.mark.parametrize("nonsense", [b"", b"GET / HTTP/1.1\r\n\r\n", b"00000012short", b"9" * 8])
def test_nonsense_does_no_harm(bench: Bench, nonsense: bytes) -> None:
    bench.serve()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(bench.path))
        connection.send(nonsense)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(bench.path))
        connection.send(nonsense or b"0")
        assert bench.run("exit", "7") == (7, "", "")
    assert bench.runs() == [BY_SERVICE]


def test_many_at_once_are_each_run_once(bench: Bench) -> None:
    service = bench.serve()
    clients = [bench.start("exit", str(number)) for number in range(FEW)]
    for number, client in enumerate(clients):
        out, errors = client.communicate(timeout=DEADLINE_S)
        assert (client.returncode, out, errors) == (number, "", "")
    assert bench.runs() == [BY_SERVICE] * FEW
    # The connection of an action is in no other process, and none is a zombie.
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children")
    wait_for(lambda: not children.read_text().split())
    assert len(os.listdir(f"/proc/{service.pid}/fd")) < 8


def test_a_large_environment_arrives(bench: Bench) -> None:
    bench.serve()
    environment = {f"OCF_RESKEY_{number}": "x" * 100_000 for number in range(10)}
    assert bench.run("exit", "7", env=environment) == (7, "", "")
    assert bench.runs() == [BY_SERVICE]


def test_the_client_and_the_service_agree() -> None:
    text = CLIENT.read_text()
    for known in (_SOCKET, release.CURRENT, "/usr/lib/sanctl/program"):
        assert f'"{known}"' in text
    agents = ROOT / "resource-agents/ocf"
    assert {path.name for path in agents.iterdir()} == set(forked_process.RESOURCE_AGENTS)
    assert str(tuple(forked_process.RESOURCE_AGENTS)).replace("'", '"') in PROGRAM.read_text()
    for path in agents.iterdir():
        assert path.read_text() == text
        assert os.access(path, os.X_OK)
    assert not set(forked_process.RESOURCE_AGENTS) & set(programs.MODULES)


def test_the_client_is_strict_perl_that_loads_no_module() -> None:
    done = subprocess.run(
        ["perl", "-Mstrict", "-Mwarnings=FATAL,all", "-c", CLIENT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, f"{CLIENT} syntax OK\n")
    assert not re.search(r"^\s*(use|require)\b", CLIENT.read_text(), re.MULTILINE)


def test_the_release_of_the_service_is_the_folder_above_the_package() -> None:
    assert release.own_release() == ROOT.name


def lazy_imports() -> set[str]:
    """Return every module outside sanctl that agents and what is below them import anywhere."""
    found: set[str] = set()
    for layer in ("agents", "drivers", "system", "config", "plan", "parse", "render", "model"):
        for path in (ROOT / "sanctl" / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found.add(node.module)
    return {name for name in found if name.partition(".")[0] not in {"sanctl", "systemd"}}


def test_the_service_has_imported_what_an_action_may_import() -> None:
    text = (
        "import sys; sys.path.insert(0, sys.argv[1]); from sanctl.agents.service import server;"
        " server._import_everything(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", text, ROOT], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert lazy_imports() <= loaded
    ours = {line for line in done.stderr.splitlines() if "systemd" not in line}
    assert not ours, "a module of sanctl could not be imported"
