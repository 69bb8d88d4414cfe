"""The guardian as a service: brings parties together, passes sealed parcels on, pays, deals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from pydantic import BaseModel

from dpal.capc.begin_by_mode import GuardianState, start_guardian
from dpal.capc.certificate_authority import Identity, PartyRole
from dpal.capc.connection import Connection, peer_of, server_context
from dpal.capc.frames import (
    Abort,
    Ask,
    Begin,
    Greet,
    Invite,
    Parcel,
    Ready,
    Roster,
    largest_frame,
)
from dpal.capc.party_step_helpers import Outbox, unexpected
from dpal.capc.session_keys import Invitation, invite
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, Terms, batch_of
from dpal.errors import DpalError, ProtocolError, VoteAborted
from dpal.randomness import secure

PATIENCE: Final = 8.0  # seconds without a message that is waited for
NOBODY: Final = "0" * 64  # the session of those who are refused before they are in one
_IDLE: Final = 3600.0  # seconds that who asks may think


class VoteAccount(Protocol):
    """Who pays: each batch is reserved before it is dealt, and committed before it is told."""

    def reserve(self) -> int:
        """Reserves a batch that nobody else works on; gives its number.

        Raises:
          BudgetExceeded, LedgerError: there is none left, or the promise does not cover it.
        """
        ...

    def commit(self, number: int, answer: bytes) -> None:
        """Keeps the guardian's answer, and commits the batch."""
        ...

    def leave(self, number: int) -> None:
        """Nobody works on this batch any more; if it was not committed, it may be begun again."""
        ...

    def certify(self) -> None:
        """Writes the certificate of what was committed, if anything was."""
        ...


Said = tuple[str, Any]


@dataclass(eq=False)
class _Session:
    """Who asks and the sites that are there, as the guardian sees them."""

    invitation: Invitation
    connections: Mapping[str, Connection]
    patience: float
    inbox: asyncio.Queue[Said | DpalError] = field(default_factory=asyncio.Queue)
    passed_on: float = 0.0  # when the last sealed parcel was, by the clock of the loop

    @property
    def id(self) -> str:
        return self.invitation.session

    async def send(self, party: str, said: Parcel | BaseModel) -> None:
        await self.connections[party].send(said, patience=self.patience)

    async def broadcast(self, said: BaseModel) -> None:
        for party in self.connections:
            await self.send(party, said)

    async def next(
        self, awaited: Collection[str], *, patience: float | None = None, drops: bool = False
    ) -> Said:
        """What a party says next; raises what broke the session.

        Args:
          awaited: who may speak next.
          patience: seconds that all of them may be silent; None for that of the guardian.
          drops: whether whoever is silent is cut off: each of them has to answer by itself.
        """
        try:
            said = await self._said(patience or self.patience)
        except TimeoutError as error:
            if drops:
                for party in awaited:
                    await self.connections[party].close()
            names = ", ".join(sorted(self._name(party) for party in awaited))
            raise VoteAborted.before_release(
                f"{names} did not answer within {patience or self.patience:g} seconds"
            ) from error
        if isinstance(said, DpalError):
            raise said
        if isinstance(said[1], Abort):
            raise VoteAborted.before_release(f"{self._name(said[0])} says: {said[1].reason}")
        return said

    async def _said(self, patience: float) -> Said | DpalError:
        """What is said next; parcels that were passed on meanwhile show that others work."""
        began = asyncio.get_running_loop().time()
        while True:
            until = max(began, self.passed_on) + patience
            try:
                async with asyncio.timeout_at(until):
                    return await self.inbox.get()
            except TimeoutError:
                if self.passed_on + patience <= until:
                    raise

    async def gather(self, kind: type[Any]) -> dict[str, Any]:
        """One control message of a kind from everybody."""
        found: dict[str, Any] = {}
        while missing := self.connections.keys() - found.keys():
            # Who hangs here is missing from the next session, and not in its way.
            party, said = await self.next(missing, drops=True)
            if party not in missing or not isinstance(said, kind):
                raise unexpected(self._name(party), missing)
            found[party] = said
        return found

    async def abort(self, why: DpalError | str) -> None:
        """Tells everybody who can still be told."""
        for party in self.connections:
            with contextlib.suppress(DpalError):
                await self.send(party, Abort.because(self.id, why))

    def _name(self, party: str) -> str:
        return self.invitation.querier if party == QUERIER else party


@dataclass(eq=False)
class GuardianService:
    """The guardian.

    Attributes:
      terms: of the vote.
      identity: its own.
      account: who pays.
      say: is told what happens, a line each.
      patience: seconds that a party may be silent while it is waited for.
    """

    terms: Terms
    identity: Identity
    account: VoteAccount
    say: Callable[[str], None]
    patience: float = PATIENCE
    _sites: dict[str, Connection] = field(default_factory=dict)
    _sessions: dict[str, _Session] = field(default_factory=dict)
    _certifying: asyncio.Lock = field(default_factory=asyncio.Lock)
    _served: set[asyncio.Task[None]] = field(default_factory=set)
    _certifications: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Serves for the length of a block; gives the port.

        Raises:
          VoteAborted: this machine does not have the address, or another program has its port.
        """
        try:
            server = await asyncio.start_server(
                self._connected,
                host,
                port,
                ssl=server_context(self.identity),
                ssl_handshake_timeout=self.patience,
            )
        except OSError as error:
            raise VoteAborted.before_release(
                f"{self.identity.name} cannot listen at {host}:{port} ({error.strerror}); end what "
                "listens there, or name another address of this machine"
            ) from error
        async with server:
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                server.close()
                await self._ended()

    async def _ended(self) -> None:
        """Ends all sessions and waits for them: each still certifies what it was charged."""
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        for found in await asyncio.gather(*self._certifications, return_exceptions=True):
            if isinstance(found, DpalError):
                self.say(str(found))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, largest_frame(self.terms), "a party")
        _kept(self._served, cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            name, role = peer_of(writer, self.identity)
            connection.other = name
            if role is PartyRole.SITE and name in self.terms.sites:
                await self._serve_site(connection, name)
            elif role is PartyRole.QUERIER:
                await self._serve_querier(connection, name)
            else:
                raise ProtocolError(f"{name} is no party of this vote")
        except DpalError as error:
            self.say(str(error))
            with contextlib.suppress(DpalError):
                await connection.send(Abort.because(NOBODY, error), patience=self.patience)
        finally:
            await connection.close()

    async def _serve_site(self, connection: Connection, name: str) -> None:
        if (before := self._sites.get(name)) is not None:
            await before.close()  # the newest one counts: the older may be dead
        self._sites[name] = connection
        self.say(f"{name} is there ({len(self._sites)} of {len(self.terms.sites)} sites)")
        try:
            while True:
                await self._route(name, connection, await connection.receive(patience=None))
        finally:
            if self._sites.get(name) is connection:
                del self._sites[name]
            for session in list(self._sessions.values()):
                if session.connections.get(name) is connection:
                    session.inbox.put_nowait(VoteAborted.before_release(f"{name} is gone"))

    async def _serve_querier(self, connection: Connection, name: str) -> None:
        live = await self._live_sites()
        batch_of(self.terms, 1, 1, live)  # refuses too few
        connections = {QUERIER: connection, **{site: self._sites[site] for site in live}}
        session = _Session(invite(self.terms, name, live), connections, self.patience)
        self._sessions[session.id] = session
        reading = asyncio.create_task(self._read(session, connection))
        try:
            await self._conduct(session)
        except DpalError as error:
            self.say(f"a session of {name} ended: {error}")
            await session.abort(error)
        finally:
            del self._sessions[session.id]
            reading.cancel()
            certifying = _kept(self._certifications, asyncio.create_task(self._certify()))
            await asyncio.shield(certifying)

    async def _live_sites(self) -> tuple[str, ...]:
        """Sites that are there, by certificates that count now; others are cut off."""
        for name, connection in list(self._sites.items()):
            try:
                peer_of(connection.writer, self.identity)
            except DpalError as error:
                self.say(str(error))
                self._sites.pop(name, None)
                await connection.close()
        return tuple(site for site in self.terms.sites if site in self._sites)

    async def _certify(self) -> None:
        async with self._certifying:
            await asyncio.to_thread(self.account.certify)

    async def _read(self, session: _Session, connection: Connection) -> None:
        try:
            while True:
                await self._route(QUERIER, connection, await connection.receive(patience=None))
        except DpalError as error:
            session.inbox.put_nowait(error)

    async def _route(self, party: str, connection: Connection, said: Any) -> None:
        """Passes sealed parcels on; the rest is for the guardian itself."""
        session = self._sessions.get(said.session)
        if session is None:
            return  # it ended, and the party does not know yet
        if session.connections.get(party) is not connection:
            raise ProtocolError(f"{party} spoke in a session that it is not in")
        if not isinstance(said, Parcel) or said.party == GUARDIAN:
            session.inbox.put_nowait((party, said))
        elif said.party in session.connections and QUERIER in (party, said.party):
            try:
                await session.send(said.party, Parcel(session.id, party, said.content))
                session.passed_on = asyncio.get_running_loop().time()
            except DpalError as error:
                session.inbox.put_nowait(error)
        else:
            session.inbox.put_nowait(ProtocolError(f"{party} wrote to nobody in the session"))

    async def _conduct(self, session: _Session) -> None:
        """Lets all agree on keys, then answers batch after batch."""
        proposed = session.invitation
        await session.broadcast(
            Invite(
                session=session.id,
                terms=proposed.terms,
                querier=proposed.querier,
                sites=list(proposed.sites),
            )
        )
        greeted: dict[str, Greet] = await session.gather(Greet)
        names = {party: proposed.querier if party == QUERIER else party for party in greeted}
        greetings = {names[party]: greet.greeting for party, greet in greeted.items()}
        await session.broadcast(Roster(session=session.id, greetings=greetings))
        ready: dict[str, Ready] = await session.gather(Ready)
        if len({said.transcript for said in ready.values()}) != 1:
            raise ProtocolError("the parties were told different things")
        await session.send(QUERIER, Ask(session=session.id, queries=0))
        while True:
            party, said = await session.next({QUERIER}, patience=_IDLE)
            if party != QUERIER or not isinstance(said, Ask):
                raise unexpected(party, {QUERIER})
            if said.queries == 0:
                return await session.abort("who asked is done")
            await self._answer(session, said.queries)

    async def _answer(self, session: _Session, queries: int) -> None:
        """One batch: reserved, dealt, added up, kept, committed, told."""
        live = session.invitation.sites
        batch_of(self.terms, 1, queries, live)  # refused before it is paid for
        number = self.account.reserve()
        try:
            batch = batch_of(self.terms, number, queries, live)
            begins = Begin(session=session.id, number=number, queries=queries)
            await session.broadcast(begins)
            state, outbox = await asyncio.to_thread(start_guardian, batch, rng=secure())
            await self._tell(session, outbox, batch)
            outbox = ()
            while not outbox:
                state, outbox = await self._heard(session, state)
            # What it says from here on tells something, or lets sites tell something.
            self.account.commit(number, outbox[0].message.encode(batch))
        finally:
            self.account.leave(number)
        try:
            await self._tell(session, outbox, batch)
            while not state.is_done:
                state, outbox = await self._heard(session, state)
                await self._tell(session, outbox, batch)
        except DpalError as error:
            raise VoteAborted(f"{error.args[0]}; batch {number} is charged all the same") from error
        who = session.invitation.querier
        self.say(f"batch {number} of {self.terms.batches} answered for {who}")

    async def _heard(self, session: _Session, state: GuardianState) -> tuple[GuardianState, Outbox]:
        """What a batch becomes by the next message."""
        party, said = await session.next(state.awaited)
        if not isinstance(said, Parcel):
            raise unexpected(party, state.awaited)
        return state.receive(party, said.content)

    async def _tell(self, session: _Session, outbox: Outbox, batch: QueryBatch) -> None:
        for outgoing in outbox:
            content = outgoing.message.encode(batch)
            await session.send(outgoing.receiver, Parcel(session.id, GUARDIAN, content))


def _kept(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> asyncio.Task[None]:
    """The task, which is in the set until it is done."""
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
