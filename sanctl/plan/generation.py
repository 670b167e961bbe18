"""How many copies the DRBD at hand can keep."""

from __future__ import annotations

from sanctl.errors import Problem

_LEAST = 2
_LIMIT_8 = 2
_LIMIT_9 = 4


def copies_limit(drbd_version: str | None) -> int:
    """Return how many nodes may hold a copy of one device at one time."""
    return _LIMIT_9 if drbd_version is not None and _major(drbd_version) >= 9 else _LIMIT_8


def generation_problem(replicas: int, drbd_version: str | None) -> Problem | None:
    """Return why that many copies cannot be kept; None: they can."""
    if replicas < _LEAST:
        return Problem(
            "SAN-DEV-004",
            f"{replicas} replica is asked for; this version of sanctl keeps at least {_LEAST}",
            f"create the device with --replicas {_LEAST}",
        )
    if replicas <= copies_limit(drbd_version):
        return None
    found = f"DRBD {drbd_version} is loaded here" if drbd_version else "no DRBD is loaded here"
    return Problem(
        "SAN-DEV-004",
        f"{replicas} replicas are asked for and need DRBD 9; {found}, which keeps at most "
        f"{_LIMIT_8}",
        "install the DRBD 9 kernel module and drbd-utils on every storage node (LINBIT's packages, "
        "or the distribution's drbd-dkms or kmod-drbd9x), or ask for 1 or 2",
    )


def _major(version: str) -> int:
    text = version.partition(".")[0]
    return int(text) if text.isdecimal() else 0
