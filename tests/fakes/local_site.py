# SPDX-License-Identifier: GPL-2.0-or-later
"""A second site on this machine: the real receiver, on a filesystem that need not share blocks."""

from __future__ import annotations

from sanctl.drivers.site_link import SiteLink, receiver_script, receiver_source

_COPY = b"""
def clone(origin, copy):
    size = os.fstat(origin).st_size
    os.ftruncate(copy, size)
    write_all(copy, os.pread(origin, size, 0), 0)


"""
#: What is defined takes the place of what has the same name in a module that takes copies.
_REPLACE = b"""
_parts = [
    *(vars(sys.modules["sanctl.drivers." + name]) for name in ("site_mark", "site_partial")),
    globals(),
]
_before = {name: value for part in _parts for name, value in part.items()}
_after = dict(_before)
exec(%a, _after)
for _part in _parts:
    for _name in _part.keys() & _after.keys():
        if _after[_name] is not _before[_name]:
            _part[_name] = _after[_name]


"""


def local_link(*, shares_blocks: bool = True, more: bytes = b"") -> SiteLink:
    """Return a connection to a receiver; `more` is a part of its program that replaces others."""
    head, main, tail = receiver_source().partition(b"if __name__ ==")
    refuse = _COPY + b"def clone(origin, copy):\n    raise OSError(errno.EOPNOTSUPP, 'no')\n\n\n"
    replaced = _REPLACE % ((_COPY if shares_blocks else refuse) + more)
    program = head + replaced + main + tail
    # A shell that becomes the program, as the restricted account of the role has it.
    return SiteLink(["bash", "-c"], "far", receiver_script(program))
