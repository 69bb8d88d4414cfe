"""What sites and who asks have in common in a session: keys, and what is sealed with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpal.capc.certificate_authority import Identity
from dpal.capc.frames import Begin, Greet, Invite, Parcel, Ready, Roster
from dpal.capc.party_step_helpers import Outbox, require_new
from dpal.capc.session_keys import Invitation, SessionKeys, agree_on_keys, greet
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, Terms, batch_of
from dpal.errors import ProtocolError


@dataclass(eq=False)
class SessionMember:
    """A party in a session.

    Attributes:
      terms: as it knows them.
      identity: its own.
      invitation: as it signed it.
      private: its ephemeral key, until keys are agreed on.
      keys: of the session, from then on.
      begun: numbers of batches that were begun.
    """

    terms: Terms
    identity: Identity
    invitation: Invitation
    private: X25519PrivateKey | None = field(repr=False)
    keys: SessionKeys | None = None
    begun: set[int] = field(default_factory=set)

    def agree_on_keys(self, roster: Roster) -> Ready:
        """Agrees on keys.

        Raises:
          ProtocolError: somebody is not who was invited.
        """
        if self.private is None or roster.session != self.invitation.session:
            raise ProtocolError("a list of parties came twice, or of another session")
        greetings = {name: signed.greeting() for name, signed in roster.greetings.items()}
        self.keys = agree_on_keys(
            self.invitation, self.terms, greetings, self.private, self.identity
        )
        self.private = None
        return Ready(session=self.invitation.session, transcript=self.keys.transcript.hex())

    def begin(self, said: Begin) -> QueryBatch:
        """The batch that begins, under a number that this session has not had.

        Raises:
          ProtocolError: it had it, or there are no keys yet.
        """
        if self.keys is None:
            raise ProtocolError("a batch began before keys were agreed on")
        require_new(said.number, self.begun)
        self.begun.add(said.number)
        return batch_of(self.terms, said.number, said.queries, self.invitation.sites)

    def secrets(self) -> Mapping[str, bytes]:
        """For pads, by party."""
        if self.keys is None:
            raise ProtocolError("there are no keys yet")
        return {self._party(name): secret for name, secret in self.keys.secrets.items()}

    def parcels(self, outbox: Outbox, batch: QueryBatch) -> list[Parcel]:
        """What is sent, sealed where the guardian must not read it."""
        return [
            Parcel(
                self.invitation.session,
                outgoing.receiver,
                self._sealed(outgoing.receiver, outgoing.message.encode(batch)),
            )
            for outgoing in outbox
        ]

    def content(self, parcel: Parcel) -> bytes:
        """The message in a parcel.

        Raises:
          ProtocolError: it was altered, came twice or out of order, or from a stranger.
        """
        if parcel.party == GUARDIAN:
            return parcel.content
        if self.keys is None or self._name(parcel.party) not in self.keys.incoming:
            raise ProtocolError("a message came from somebody who is not in the session")
        return self.keys.incoming[self._name(parcel.party)].open(parcel.content)

    def _sealed(self, receiver: str, data: bytes) -> bytes:
        if receiver == GUARDIAN:
            return data
        if self.keys is None:
            raise ProtocolError("there are no keys yet")
        return self.keys.outgoing[self._name(receiver)].seal(data)

    def _name(self, party: str) -> str:
        return self.invitation.querier if party == QUERIER else party

    def _party(self, name: str) -> str:
        return QUERIER if name == self.invitation.querier else name


def join(said: Invite, terms: Terms, identity: Identity) -> tuple[SessionMember, Greet]:
    """Takes an invitation: what is kept, and what is said."""
    invitation = said.invitation()
    private, greeting = greet(invitation, identity)
    answer = Greet.model_validate(
        {"session": said.session, "greeting": {**vars(greeting)}}, strict=True
    )
    return SessionMember(terms, identity, invitation, private), answer
