"""What the steps of all parties have in common.

A party's part in one batch is a frozen state with two pure functions: how it begins, and what it
becomes when a message comes. Each gives the next state and what is to be sent. What is drawn at
random is drawn when a batch begins, so that every later step follows from state and message.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dpal.capc.key_streams import KeyStream
from dpal.capc.messages import Message
from dpal.capc.ring import Ring, ring_product, to_ring
from dpal.capc.terms import QueryBatch
from dpal.errors import ProtocolError


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A message, and the party that gets it."""

    receiver: str
    message: Message


Outbox = tuple[Outgoing, ...]


def require_new(number: int, begun: Collection[int]) -> None:
    """Requires that a session has not begun this batch before: keys and pads serve once.

    Args:
      number: of the batch.
      begun: numbers that were begun in the session.

    Raises:
      ProtocolError: it was.
    """
    if number in begun:
        raise ProtocolError(
            f"batch {number} was begun in this session before, and its keys serve once; ask "
            "again in another session"
        )


def pad(secret: bytes, batch: QueryBatch) -> Ring:
    """(queries, counts) uniform numbers of the batch that two parties alone can draw."""
    return KeyStream(secret, "pad", batch.number).ring(batch.queries, batch.rule.counts)


def first_round(shares: Ring, batch: QueryBatch) -> Ring:
    """Shares (..., outcomes) of what is compared first.

    Args:
      shares: (..., labels) of the numbers of a site's heads.
      batch: with its rule.
    """
    return _combined(shares, to_ring(batch.rule.first))


def second_round(shares: Ring, batch: QueryBatch, *, constants: bool) -> Ring:
    """Shares (..., compared) of what is compared next, of shares (..., outcomes) of the outcomes.

    Args:
      shares: of one party.
      batch: whose rule has a second round.
      constants: whether this party adds the constants; one of the two does.
    """
    second = batch.rule.second
    if second is None:
        raise ProtocolError("there is no second round in this vote")
    combined = _combined(shares, to_ring(second.weights))
    return combined + to_ring(second.constants) if constants else combined


def ballot_shares(outcomes: Ring, found: Ring, batch: QueryBatch) -> Ring:
    """Shares (..., counts) of ballots.

    Args:
      outcomes: shares (..., outcomes) of what the first round found.
      found: shares (..., compared) of what the second one did.
      batch: whose rule has a second round.
    """
    second = batch.rule.second
    if second is None or second.counted is None or second.kept is None:
        return found
    kept = _combined(outcomes, to_ring(second.kept))
    return kept + _combined(found, to_ring(second.counted))


def _combined(shares: Ring, weights: Ring) -> Ring:
    rows = ring_product(shares.reshape(-1, shares.shape[-1]), weights.T)
    return np.asarray(rows.reshape(*shares.shape[:-1], len(weights)))


def unexpected(sender: str, awaited: Collection[str]) -> ProtocolError:
    """The refusal of a message that cannot come now."""
    waits = ", ".join(sorted(awaited)) or "nothing more"
    return ProtocolError(f"{sender} sent a message out of turn (waiting for: {waits})")
