# SPDX-License-Identifier: GPL-2.0-or-later
"""The User Mode Linux binary and modules that nodes run, with the libraries of its own release.

The newest UML is several times faster than the one of a stable release, but wants a newer C
library than the host may have. So its binary always runs in a chroot with libraries of its own
release, and the host's release does not matter.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sanctl.errors import CommandError, ConfigError, Problem
from sanctl.lab.machines.apt import AptSource, mmdebstrap_argv
from sanctl.lab.machines.image import ShowProgress, build_folder, build_log, make_ext4
from sanctl.lab.machines.lab_state import CACHE_ROOT, locked
from sanctl.lab.machines.process import run_logged
from sanctl.lab.machines.spec import digest
from sanctl.system.runner import Runner

_FORMAT = "1"
_BUILD_DEADLINE_S = 600.0
_NEWEST = "sid"
# Folders of the tree that the launcher mounts things on.
MOUNT_POINTS = ("dev", "proc", "tmp", "run/node", "run/image", "run/kernel")


def ensure(
    release: str,
    source: AptSource,
    runner: Runner,
    tick: ShowProgress,
    *,
    own_kernel: Path | None = None,
    own_modules: Path | None = None,
) -> Path:
    """Return a folder with `tree/`, the binary `linux` and the modules in `modules.img`.

    The package of the newest release is used where the mirror has it, else the nodes' release's.

    Raises:
        CommandError: no kernel package could be installed.
        ConfigError: `own_kernel` or `own_modules` are missing or no modules folder.
    """
    try:
        base = _packaged(_NEWEST, source, runner, tick)
    except CommandError:
        base = _packaged(release, source, runner, tick)
    if own_kernel is None:
        return base
    return _own(base, own_kernel, own_modules, runner)


def _packaged(suite: str, source: AptSource, runner: Runner, tick: ShowProgress) -> Path:
    wanted = CACHE_ROOT / f"kernel-{suite}-{digest(_FORMAT, suite, *source[:2])}"
    with locked(CACHE_ROOT / ".kernel.lock"):
        if (wanted / "linux").exists():
            return wanted
        with build_folder(f"kernel-{suite}") as work:
            result = work / "result"
            result.mkdir()
            tree = result / "tree"
            run_logged(
                mmdebstrap_argv(
                    source,
                    suite=suite,
                    target=str(tree),
                    variant="extract",
                    include=("user-mode-linux", "libc6"),
                ),
                log=build_log(f"kernel-{suite}"),
                timeout_s=_BUILD_DEADLINE_S,
                tick=tick,
            )
            for name in ("lib", "lib64"):
                link = tree / name
                if not link.exists() and (tree / "usr" / name).is_dir():
                    link.symlink_to(f"usr/{name}")
            for name in MOUNT_POINTS:
                (tree / name).mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / "usr/bin/linux.uml", result / "linux")
            _pack_modules(tree / "usr/lib/uml/modules", result / "modules.img", runner)
            shutil.rmtree(tree / "usr/lib/uml")
            result.rename(wanted)
    return wanted


def _own(base: Path, kernel: Path, modules: Path | None, runner: Runner) -> Path:
    problems = []
    if not kernel.is_file():
        problems.append(Problem("SAN-LAB-021", f"{kernel}: no such kernel", "a UML binary"))
    if modules is None:
        problems.append(
            Problem("SAN-LAB-021", "a kernel without its modules", "give --modules DIR too")
        )
    elif not list(modules.glob("*/modules.dep")) and not (modules / "modules.dep").is_file():
        problems.append(
            Problem(
                "SAN-LAB-021",
                f"{modules} holds no installed modules",
                "give the folder with VERSION/modules.dep, as made by make modules_install",
            )
        )
    if problems or modules is None:
        raise ConfigError(*problems)
    if (modules / "modules.dep").is_file():
        modules = modules.parent
    stamp = f"{kernel.stat().st_mtime_ns} {kernel.stat().st_size}"
    newest = max(path.stat().st_mtime_ns for path in modules.rglob("*"))
    wanted = CACHE_ROOT / f"kernel-own-{digest(base.name, str(kernel), stamp, str(newest))}"
    with locked(CACHE_ROOT / ".kernel.lock"):
        if (wanted / "linux").exists():
            return wanted
        with build_folder("kernel-own") as work:
            result = work / "result"
            result.mkdir()
            shutil.copy2(kernel, result / "linux")
            (result / "linux").chmod(0o755)
            (result / "tree").symlink_to(base / "tree")
            _pack_modules(modules, result / "modules.img", runner)
            result.rename(wanted)
    return wanted


def _pack_modules(folder: Path, target: Path, runner: Runner) -> None:
    """Put the modules (folders named by kernel version) into an image that nodes mount."""
    used = sum(path.stat().st_size + 4096 for path in folder.rglob("*") if path.is_file())
    make_ext4(folder, target, size_mib=used * 5 // 4 // 2**20 + 32, label="modules", runner=runner)
