# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what a node makes of the order that it has noted beside a device's data.

A CIB may be older than the data beside it, as where a node comes back alone after a loss of all
power. One that was written before a device was held says nothing of that, and hosts would write to
what is another device's copy, or half of it; one that was written before the hold ended says that
the device is a copy, and it is none any more. Orders of one device have a rising `given_s`
(restore_request.py), so none of this goes by the clocks of several nodes.

Light: the agents read them.
"""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.model.device_restore import COPYING, DONE, GIVEN_UP, HELD, ORDERED, RestoreOrder

#: So often at most an operator's choice of a replica changes the token of one order.
_MOST_CHOICES = 1 << 16
#: One order comes from each of these to later ones alone; it is given up before it has begun.
_STATES = (ORDERED, GIVEN_UP, COPYING, HELD, DONE)
#: By these the device is, or is being made, what the order says.
_FILLS = frozenset({COPYING, HELD})


def is_older(order: str, noted: str) -> bool:
    """Whether a CIB with this parameter `restore` was written before an order that was noted here.

    An order never leaves a device's parameters, so a CIB without one is older. A note that cannot
    be read may be of anything.
    """
    last = RestoreOrder.parse(noted)
    found = RestoreOrder.parse(order)
    if last is None or found is None:
        return True
    if found.given_s != last.given_s:
        return found.given_s < last.given_s
    if found.token == last.token:
        # Withdrawn, by a CIB of before it began; or released after that.
        is_before = found.state in {HELD, DONE} and last.state in _FILLS
        is_withdrawn = is_before and found.copy != last.copy
        return is_withdrawn or _STATES.index(found.state) < _STATES.index(last.state)
    return (int(found.token, 16) - int(last.token, 16)) % 2**64 > _MOST_CHOICES


def closes_older(order: str, noted: str) -> bool:
    """Whether no host is let in, as the device was held here, and the CIB is older than that."""
    last = RestoreOrder.parse(noted)
    return bool(noted) and (last is None or last.is_open) and is_older(order, noted)


def next_note(order: str, noted: str) -> str | None:
    """Return what is noted beside the data once an order is known; None: what is noted stays.

    Only an order of a hold begins a note; each later one goes on with it, and where that has ended
    here each later one by which the device is filled anew. What an older CIB says is not noted.

    Args:
        order: the device's parameter `restore`.
        noted: what is noted; empty: nothing.
    """
    found = RestoreOrder.parse(order)
    if found is None or order == noted or (not noted and not found.is_of_holds):
        return None
    last = RestoreOrder.parse(noted)
    if last is None:
        # Nothing, or what cannot be read: only another hold says what the device is.
        return order if found.is_of_holds else None
    if is_older(order, noted):
        # Also where that has ended: by its note the older order is not carried out (restoring.py).
        return None
    fills_anew = not found.is_held and not last.is_open
    return order if not found.is_open or fills_anew or _goes_on(found, last) else None


def note_after_start(order: str, noted: str) -> str | None:
    """Return what is noted once a device starts anew with the order that is noted; None: that.

    What was to take the place of the copy that the device is held as may have begun on another
    node, and what that wrote may be here, before all of them lost their power and the CIB that said
    so. The device is not said to be that copy any more.
    """
    last = RestoreOrder.parse(noted)
    if order != noted or last is None or last.base is None:
        return None
    return str(last.in_state(COPYING))


def note_of_others(newest: str, noted: str) -> str | None:
    """Return what is noted once other nodes have said what they have noted; None: that stays.

    Where the CIB's order is not carried out because of that, it is not either once they are gone.

    Args:
        newest: the newest order that they have noted.
        noted: what is noted here; empty: nothing.
    """
    if noted and (RestoreOrder.parse(noted) is None or not is_older(noted, newest)):
        return None
    return newest


def newest_of(orders: Iterable[RestoreOrder | None]) -> RestoreOrder | None:
    """Return the newest of the orders that nodes have noted; None: none can be read."""
    found: RestoreOrder | None = None
    for each in orders:
        if each is not None and (found is None or is_older(str(found), str(each))):
            found = each
    return found


def may_be_base(order: RestoreOrder, noted: str) -> bool:
    """Whether a device may be what an order says that it was held as, by what is noted here."""
    last = RestoreOrder.parse(noted)
    return order.base is None or not noted or (last is not None and _goes_on(order, last))


def _goes_on(order: RestoreOrder, last: RestoreOrder) -> bool:
    """Whether an open order may follow one that was noted.

    None goes on that has ended here, and none with another base than what the device was last.
    Another order that was to take the place of that base may have begun where this node did not see
    it: what it wrote is neither.
    """
    if order.base is None:
        return last.is_open or order.token != last.token
    if last.state == HELD:
        return order.base == last.copy
    return order.base == last.base and order.token == last.token
