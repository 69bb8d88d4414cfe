"""What travels between a party and the guardian: control messages with a fixed schema, and parcels.

A frame is its length and its bytes. A parcel is a message of the protocol for one party, or, where
the guardian must not read it, its sealed form; the guardian passes it on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dpal.capc.messages import (
    HiddenQuery,
    HiddenWeights,
    LastDeal,
    Message,
    QuerierBallotDeal,
    QuerierDeal,
    WantedShares,
)
from dpal.capc.session_keys import SESSION_BYTES, Greeting, Invitation
from dpal.capc.strict_messages import kinds_to_querier, kinds_to_site
from dpal.capc.terms import MOST_QUERIES, Terms, batch_of
from dpal.errors import BudgetExceeded, DpalError, ParameterError, ProtocolError, VoteAborted

_CONTROL: Final = b"\0"
_PARCEL: Final = b"\1"
_NAME_BYTES: Final = 64
LENGTH_BYTES: Final = 4  # of the length that a frame begins with
_LONGEST_REASON: Final = 600
# Errors about the vote. All others may name files or servers of whoever met them.
_TOLD: Final = (ProtocolError, VoteAborted, ParameterError, BudgetExceeded)
_LEAST: Final = 1 << 22  # what a control message may take: certificates of a thousand sites

Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=1024)]
Session = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Control(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    session: Session


class _SignedKey(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    certificate: Annotated[str, Field(max_length=4096)]
    key: Session
    signature: Hex

    def greeting(self) -> Greeting:
        """As sessions know it."""
        return Greeting(**self.model_dump())


class Invite(_Control):
    """Guardian to everybody: a session is proposed."""

    kind: Literal["invite"] = "invite"
    terms: Session
    querier: str
    sites: Annotated[list[str], Field(max_length=1000)]

    def invitation(self) -> Invitation:
        """As sessions know it."""
        return Invitation(
            session=self.session, terms=self.terms, querier=self.querier, sites=tuple(self.sites)
        )


class Greet(_Control):
    """Everybody to the guardian."""

    kind: Literal["greet"] = "greet"
    greeting: _SignedKey


class Roster(_Control):
    """Guardian to everybody: what all said."""

    kind: Literal["roster"] = "roster"
    greetings: Annotated[dict[str, _SignedKey], Field(max_length=1001)]


class Ready(_Control):
    """Everybody to the guardian: keys were agreed on."""

    kind: Literal["ready"] = "ready"
    transcript: Session


class Ask(_Control):
    """Who asks to the guardian, and the guardian's go-ahead to who asks (all are ready)."""

    kind: Literal["ask"] = "ask"
    queries: Annotated[int, Field(ge=0, le=MOST_QUERIES)]


class Begin(_Control):
    """Guardian to everybody: the batch is paid for."""

    kind: Literal["begin"] = "begin"
    number: Annotated[int, Field(ge=1)]
    queries: Annotated[int, Field(ge=1, le=MOST_QUERIES)]


class Abort(_Control):
    """Anybody: the session is over, and why."""

    kind: Literal["abort"] = "abort"
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)]

    @classmethod
    def because(cls, session: str, why: DpalError | str) -> Abort:
        """The end of a session; where files of whoever ends it lie is nobody else's business."""
        if isinstance(why, DpalError) and not isinstance(why, _TOLD):
            why = f"it could not go on for a reason of its own ({why.code}), which its output says"
        return cls(session=session, reason=str(why)[:_LONGEST_REASON])


Control = Annotated[
    Invite | Greet | Roster | Ready | Ask | Begin | Abort, Field(discriminator="kind")
]
_CONTROLS: TypeAdapter[Any] = TypeAdapter(Control)


@dataclass(frozen=True)
class Parcel:
    """A message of the protocol on its way.

    Attributes:
      session: as in `Invitation`.
      party: to the guardian, the party that gets it; from the guardian, the one that sent it.
      content: the message, or its sealed form.
    """

    session: str
    party: str
    content: bytes


def largest_frame(terms: Terms) -> int:
    """Bytes that a frame may have, at most; a longer one is refused before it is read.

    Raises:
      ParameterError: messages of such a vote are too long for any frame.
    """
    batch = batch_of(terms, 1, terms.queries, terms.sites)
    kinds: tuple[type[Message], ...] = (QuerierDeal, QuerierBallotDeal, HiddenQuery, HiddenWeights)
    if batch.has_shares:
        kinds = (QuerierBallotDeal, LastDeal, WantedShares)
    if batch.is_strict:
        dealt = () if batch.tells_counts else (LastDeal,)
        kinds = (*kinds_to_site(batch), *kinds_to_querier(batch), *dealt)
    most = max(kind.size(batch) for kind in kinds)
    largest = max(_LEAST, most + SESSION_BYTES + _NAME_BYTES + 64)
    if largest >= 256**LENGTH_BYTES:
        raise ParameterError.before_release(
            f"a batch of {terms.queries:,} queries of {terms.labels:,} labels among "
            f"{len(terms.sites):,} sites needs messages of {most:,} bytes, and one has fewer than "
            f"{256**LENGTH_BYTES:,}; use fewer queries in a batch"
        )
    return largest


def to_frame(said: Parcel | BaseModel) -> bytes:
    """The bytes of a frame."""
    if isinstance(said, Parcel):
        name = said.party.encode()
        return b"".join(
            [_PARCEL, bytes.fromhex(said.session), bytes([len(name)]), name, said.content]
        )
    return _CONTROL + said.model_dump_json().encode()


def from_frame(data: bytes) -> Any:
    """A `Parcel` or one of `Control`.

    Raises:
      ProtocolError: it is neither.
    """
    if data[:1] == _PARCEL and len(data) > SESSION_BYTES + 2:
        start = SESSION_BYTES + 2
        stop = start + data[start - 1]
        try:
            party = data[start:stop].decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a frame came whose party has no name") from error
        return Parcel(data[1 : SESSION_BYTES + 1].hex(), party, data[stop:])
    if data[:1] != _CONTROL:
        raise ProtocolError("a frame came that is none of this protocol")
    try:
        return _CONTROLS.validate_python(json.loads(data[1:]))
    except (ValidationError, ValueError, RecursionError) as error:
        raise ProtocolError("a control message came that is none of this protocol") from error
