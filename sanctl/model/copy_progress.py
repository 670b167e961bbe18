# SPDX-License-Identifier: GPL-2.0-or-later
"""How far a copy to a second site is, as the node that makes it publishes.

NamedTuples, as sites are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Followed by DEVICE.SITE: the private node attribute of a copy; never in the CIB.
PROGRESS_PREFIX = "sanctl.copy."
#: Published at the end. A deletion would make the attribute where there is none, and such a one is
#: not private (model/packed_states.py).
ENDED = "-"
#: What may have changed is read, and sent where it has.
SENDING = "sending"
#: The restore point is read here for the proof, as a whole or what may have changed of it; the
#: site reads its copy meanwhile.
COMPARING = "comparing"
#: The site still reads; how far it is it does not say.
WAITING = "waiting"

_VALUE = re.compile(
    r"(?P<token>[0-9a-f]{16}) (?P<phase>sending|comparing|waiting)"
    r" (?P<done>[0-9]{1,18}) (?P<total>[0-9]{1,18}) (?P<since>[0-9]{1,12}) (?P<at>[0-9]{1,12})"
)


class CopyStep(NamedTuple):
    """What is done of a phase.

    Attributes:
        phase: `sending`, `comparing` or `waiting`.
        done_bytes: how much is done of it; 0 where that is not known.
        total_bytes: how much there is to do.
    """

    phase: str
    done_bytes: int
    total_bytes: int


class CopyProgress(NamedTuple):
    """What a node says of a copy that it makes.

    Attributes:
        token: that of the restore point that is copied.
        step: how far it is.
        since_s: when the phase began, in seconds since 1970.
        at_s: when that was published.
    """

    token: str
    step: CopyStep
    since_s: int
    at_s: int

    @classmethod
    def parse(cls, text: str) -> CopyProgress | None:
        """Read what `str` wrote; None for anything else."""
        found = _VALUE.fullmatch(text)
        if found is None:
            return None
        step = CopyStep(found["phase"], int(found["done"]), int(found["total"]))
        return cls(found["token"], step, int(found["since"]), int(found["at"]))

    def __str__(self) -> str:
        return " ".join(map(str, (self.token, *self.step, self.since_s, self.at_s)))

    @property
    def percent(self) -> float | None:
        """The share of the phase that is done; None: not known."""
        if self.step.phase == WAITING:
            return None
        done, total = self.step.done_bytes, self.step.total_bytes
        return 100.0 * min(1.0, done / total) if total else 100.0
