"""A site as a service: connects to the guardian, and answers for as long as it is wanted.

What it checks before it votes: who the others are, by certificates (`connection.py`), signatures
and the agreed terms (`session_keys.py`, `terms.py`); that model and batch number are those of the
terms, and the batch is new (here); in strict mode, that by its own account it has not voted in it
(`site_account.py`); and every message against the step that awaits it (`site.py`,
`session_member.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from dpal.capc.begin_by_mode import SiteState, start_site
from dpal.capc.certificate_authority import Identity
from dpal.capc.connection import Connection, connect, peer_of
from dpal.capc.frames import Abort, Begin, Invite, Parcel, Roster, largest_frame
from dpal.capc.guardian_service import NOBODY, PATIENCE
from dpal.capc.party_step_helpers import require_new
from dpal.capc.precomputed_shares import ShareFolder
from dpal.capc.session_member import SessionMember, join
from dpal.capc.site_account import SiteAccount
from dpal.capc.terms import SiteModel, Terms, noise_share
from dpal.errors import DpalError, ParameterError, ProtocolError, VoteAborted
from dpal.randomness import secure

_AGAIN_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)


@dataclass(eq=False)
class SiteService:
    """A site.

    Attributes:
      terms: of the vote.
      identity: its own.
      model: private; or the folder of its shares, where outcomes come in shares.
      guardian: name of the guardian.
      say: is told what happens, a line each.
      account: its own, of what it has voted in.
      patience: seconds that the guardian may take to connect.
    """

    terms: Terms
    identity: Identity
    model: SiteModel | ShareFolder
    guardian: str
    say: Callable[[str], None]
    account: SiteAccount
    patience: float = PATIENCE
    _members: dict[str, SessionMember] = field(default_factory=dict)
    _batches: dict[str, SiteState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.model, ShareFolder) is not self.terms.has_shares:
            raise ParameterError.before_release(
                f"a site answers with {'shares' if self.terms.has_shares else 'a model'} in mode "
                f"{self.terms.mode}"
            )
        if isinstance(self.model, ShareFolder):
            self.model.require()
            return
        if self.model.weights.shape != (self.terms.labels, self.terms.features):
            raise ParameterError.before_release(
                f"the model is for {self.model.weights.shape[0]} labels and "
                f"{self.model.weights.shape[1]} features, and {self.terms.labels} and "
                f"{self.terms.features} were agreed on"
            )
        self.model.require_bias(self.terms.rule.largest_bias)

    async def serve(self, host: str, port: int) -> None:
        """Answers for ever; connects again where the connection breaks."""
        failed = 0
        while True:
            try:
                connection = await connect(
                    self.identity,
                    host,
                    port,
                    self.guardian,
                    largest_frame(self.terms),
                    patience=self.patience,
                )
            except DpalError as error:
                if failed == 0:
                    self.say(f"{error}; trying again")
            else:
                self.say(f"connected to {self.guardian}")
                if await self._answer_all(connection):
                    failed = 0
            await asyncio.sleep(_AGAIN_SECONDS[min(failed, len(_AGAIN_SECONDS) - 1)])
            failed += 1

    async def _answer_all(self, connection: Connection) -> bool:
        """Answers until the connection breaks; says whether anybody wanted answers."""
        invited = False
        try:
            while True:
                said = await connection.receive(patience=None)
                invited |= isinstance(said, Invite)
                try:
                    await self._answer(connection, said)
                except VoteAborted:
                    raise  # the connection itself broke
                except DpalError as error:
                    self._forget(said.session)
                    self.say(str(error))
                    await connection.send(
                        Abort.because(said.session, error), patience=self.patience
                    )
        except DpalError as error:
            self.say(str(error))
        finally:
            # Keys, masks and noise of unfinished batches go with the connection.
            self._members.clear()
            self._batches.clear()
            await connection.close()
        return invited

    async def _answer(self, connection: Connection, said: Any) -> None:
        if isinstance(said, Abort):
            if said.session == NOBODY:
                self.say(f"{self.guardian} says: {said.reason}")
            return self._forget(said.session)
        if isinstance(said, Invite):
            try:
                peer_of(connection.writer, self.identity)
            except DpalError as error:  # the guardian's certificate counts no more
                raise VoteAborted.before_release(str(error.args[0])) from error
            self._members[said.session], greeting = join(said, self.terms, self.identity)
            return await connection.send(greeting, patience=self.patience)
        member = self._members.get(said.session)
        if member is None:
            return None  # of a session that ended here already
        if isinstance(said, Roster):
            return await connection.send(member.agree_on_keys(said), patience=self.patience)
        if isinstance(said, Begin):
            batch = member.begin(said)
            state, outbox = start_site(
                batch,
                self.identity.name,
                self.model.held() if isinstance(self.model, ShareFolder) else self.model,
                noise_share(self.terms, batch, rng=secure()),
                member.secrets(),
                rng=secure(),
            )
        elif isinstance(said, Parcel) and said.session in self._batches:
            state = self._batches[said.session]
            batch = state.batch
            state, outbox = state.receive(said.party, member.content(said))
            if not state.awaited:
                if batch.is_strict:
                    # Its noise is all that hides a vote from guardian and who asks: it is added
                    # once, also after this process was killed and begun again.
                    require_new(batch.number, self.account.voted())
                self.account.note(batch.number, member.invitation.querier)
        else:
            raise ProtocolError("the guardian sent a message out of turn")
        self._batches[said.session] = state
        for parcel in member.parcels(outbox, batch):
            await connection.send(parcel, patience=self.patience)
        return None

    def _forget(self, session: str) -> None:
        self._members.pop(session, None)
        self._batches.pop(session, None)
