"""Who asks, connected: sends batches of queries one after the other, and gets their answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpal.capc.begin_by_mode import start_querier
from dpal.capc.certificate_authority import Identity
from dpal.capc.connection import Connection, connect
from dpal.capc.frames import Abort, Ask, Begin, Invite, Parcel, Roster, largest_frame
from dpal.capc.guardian_service import PATIENCE
from dpal.capc.precomputed_shares import SharedQueries
from dpal.capc.session_member import SessionMember, join
from dpal.capc.terms import Features, Terms
from dpal.errors import DpalError, ProtocolError, VoteAborted
from dpal.randomness import secure

_LONGER: Final = 2.0  # seconds: the guardian, which knows who is silent, is to say so first


async def ask_sites(
    terms: Terms,
    identity: Identity,
    address: tuple[str, int],
    guardian: str,
    batches: Sequence[Features | SharedQueries],
    keep: Callable[[int, NDArray[np.int64]], None],
    *,
    patience: float = PATIENCE,
) -> None:
    """Asks batches of queries.

    Args:
      terms: of the vote.
      identity: of who asks.
      address: host and port of the guardian.
      guardian: its name.
      batches: (queries, features) each, or shares of what sites say.
      keep: is handed a batch's place and its answers before the next one is asked.
      patience: seconds that the guardian lets others be silent.

    Raises:
      VoteAborted, ProtocolError: it ended before all were answered; those that were are kept.
    """
    async with _joined(terms, identity, address, guardian, patience + _LONGER) as asker:
        for place, queries in enumerate(batches):
            keep(place, await asker.answers(queries))


class _Asker:
    """Who asks, in a session."""

    def __init__(self, connection: Connection, member: SessionMember, patience: float) -> None:
        self._connection, self._member, self._patience = connection, member, patience

    async def answers(self, queries: Features | SharedQueries) -> NDArray[np.int64]:
        """(queries, counts) what a batch releases."""
        invitation = self._member.invitation
        session = invitation.session
        if isinstance(queries, SharedQueries):  # before anything is asked
            queries.require_sites(invitation.sites, self._member.terms.labels)
        await self.send(Ask(session=session, queries=len(queries)))
        begins = await self.receive()
        if not isinstance(begins, Begin) or begins.queries != len(queries):
            raise ProtocolError("the guardian began something else than was asked")
        batch = self._member.begin(begins)
        state = start_querier(batch, queries, self._member.secrets(), rng=secure())
        while state.answers is None:
            try:
                said = await self.receive()
            except VoteAborted as error:
                if not state.may_be_charged:
                    raise
                raise VoteAborted(
                    f"{error}; this was after all sites had voted, so that the batch may be "
                    "charged although its answers did not come"
                ) from error
            if not isinstance(said, Parcel):
                raise ProtocolError("the guardian sent a message out of turn")
            state, outbox = state.receive(said.party, self._member.content(said))
            for parcel in self._member.parcels(outbox, batch):
                await self.send(parcel)
        return state.answers

    async def send(self, said: Any) -> None:
        await self._connection.send(said, patience=self._patience)

    async def receive(self) -> Any:
        said = await self._connection.receive(patience=self._patience)
        if isinstance(said, Abort):
            raise VoteAborted(f"the guardian ended the session: {said.reason}")
        if said.session != self._member.invitation.session:
            raise ProtocolError("the guardian sent a message of another session")
        return said


@contextlib.asynccontextmanager
async def _joined(
    terms: Terms, identity: Identity, address: tuple[str, int], guardian: str, patience: float
) -> AsyncIterator[_Asker]:
    """A session, from invitation to leaving."""
    limit = largest_frame(terms)
    connection = await connect(identity, *address, guardian, limit, patience=patience)
    try:
        said = await connection.receive(patience=patience)
        if isinstance(said, Abort):
            raise VoteAborted.before_release(f"the guardian refuses: {said.reason}")
        if not isinstance(said, Invite):
            raise ProtocolError("the guardian sent a message out of turn")
        member, greeting = join(said, terms, identity)
        asker = _Asker(connection, member, patience)
        await asker.send(greeting)
        roster = await asker.receive()
        if not isinstance(roster, Roster):
            raise ProtocolError("the guardian sent a message out of turn")
        await asker.send(member.agree_on_keys(roster))
        if not isinstance(await asker.receive(), Ask):
            raise ProtocolError("the guardian sent a message out of turn")
        try:
            yield asker
        except ProtocolError as error:
            with contextlib.suppress(DpalError):
                await asker.send(Abort.because(said.session, error))
            raise
        with contextlib.suppress(DpalError):
            await asker.send(Ask(session=said.session, queries=0))
    finally:
        await connection.close()
