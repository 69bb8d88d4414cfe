"""What the steps of all parties have in common.

A party's part in one batch is a frozen state with two pure functions: how it begins, and what it
becomes when a message comes. Each gives the next state and what is to be sent. What is drawn at
random is drawn when a batch begins, so that every later step follows from state and message.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dpal.capc.key_streams import KeyStream
from dpal.capc.messages import Message
from dpal.capc.ring import Ring
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
    """(queries, labels) uniform numbers of the batch that two parties alone can draw."""
    return KeyStream(secret, "pad", batch.number).ring(batch.queries, batch.labels)


def unexpected(sender: str, awaited: Collection[str]) -> ProtocolError:
    """The refusal of a message that cannot come now."""
    waits = ", ".join(sorted(awaited)) or "nothing more"
    return ProtocolError(f"{sender} sent a message out of turn (waiting for: {waits})")
