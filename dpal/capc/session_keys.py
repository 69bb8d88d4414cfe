"""The keys of a session: agreed by every two parties, and signed, so that the guardian has none.

Every message passes the guardian, which brings the parties together. What it must not read (who
asks and a site, or two sites) is sealed under keys that these two agreed on: ephemeral X25519
keys, signed with the key of each party's certificate. All that was said goes into a transcript,
and its digest into every key: parties that saw different things share no key, and all messages
between them are refused. The ephemeral keys are made for a session, exist in memory only and
go with the process, so that no key, mask or pad outlives it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpal.canonical import digest
from dpal.capc.certificate_authority import (
    REVOKED,
    Certificate,
    Identity,
    PartyRole,
    fault_of,
    load_revoked,
    name_in,
)
from dpal.capc.key_streams import SEED_BYTES, derived_key
from dpal.capc.terms import Terms
from dpal.errors import ProtocolError
from dpal.sealed_channel import SealedDirection

SESSION_BYTES: Final = 32
_TAG_BYTES: Final = 16


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What the guardian proposes, and every party signs.

    Attributes:
      session: 32 random bytes, in hexadecimal.
      terms: digest of the terms.
      querier: name of who asks.
      sites: those that are there, in the order of the terms.
    """

    session: str
    terms: str
    querier: str
    sites: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """A party's ephemeral key, signed.

    Attributes:
      certificate: PEM.
      key: X25519, in hexadecimal.
      signature: of the invitation and the key, in hexadecimal.
    """

    certificate: str
    key: str
    signature: str


def invite(terms: Terms, querier: str, sites: Sequence[str]) -> Invitation:
    """A new session among parties that are there."""
    return Invitation(
        session=os.urandom(SESSION_BYTES).hex(),
        terms=digest(terms),
        querier=querier,
        sites=tuple(sites),
    )


def greet(invitation: Invitation, identity: Identity) -> tuple[X25519PrivateKey, Greeting]:
    """A party's part: a fresh key that is kept, and what is sent of it."""
    private = X25519PrivateKey.generate()
    key = private.public_key().public_bytes_raw()
    signature = identity.key.sign(_signed(invitation, key), ec.ECDSA(hashes.SHA256()))
    return private, Greeting(
        certificate=identity.pem.decode(), key=key.hex(), signature=signature.hex()
    )


class Sealed(SealedDirection):
    """One direction between two parties of a vote."""

    def open(self, data: bytes) -> bytes:
        """Reads the next message.

        Raises:
          ProtocolError: it was altered, left out, sent before or out of order.
        """
        try:
            return super().open(data)
        except InvalidTag as error:
            raise ProtocolError(
                "a sealed message was altered on its way, or came twice or out of order"
            ) from error


@dataclass(frozen=True, eq=False)
class SessionKeys:
    """What one party holds of a session, in memory only.

    Attributes:
      name: its own.
      transcript: digest of all that was said.
      secrets: for pads, by party.
      outgoing: to each party.
      incoming: from each party.
    """

    name: str
    transcript: bytes
    secrets: Mapping[str, bytes] = field(repr=False)
    outgoing: Mapping[str, Sealed] = field(repr=False)
    incoming: Mapping[str, Sealed] = field(repr=False)


def agree_on_keys(
    invitation: Invitation,
    terms: Terms,
    greetings: Mapping[str, Greeting],
    private: X25519PrivateKey,
    identity: Identity,
) -> SessionKeys:
    """Agrees on keys with everybody else.

    Args:
      invitation: as this party signed it.
      terms: as this party knows them.
      greetings: of who asks and all sites, by name, this party's own among them.
      private: its own ephemeral key.
      identity: its own.

    Raises:
      ProtocolError: terms differ, somebody is missing, or a certificate or signature is wrong.
    """
    if invitation.terms != digest(terms):
        raise ProtocolError("the guardian has other terms than this party; compare both files")
    if not set(invitation.sites) <= set(terms.sites):
        raise ProtocolError("a site was invited that is none of the terms")
    if set(greetings) != {invitation.querier, *invitation.sites}:
        raise ProtocolError("somebody is missing of those who were invited, or is too many")
    if identity.name not in greetings:
        raise ProtocolError("the guardian proposed a session to a party that is not in it")
    own = greetings[identity.name]
    if own.key != private.public_key().public_bytes_raw().hex():
        raise ProtocolError("the guardian tells others another key than this party's")
    # Read anew: somebody may have been revoked since this process began.
    revoked = load_revoked(identity.folder / REVOKED, identity.authority)
    for name, greeting in greetings.items():
        _require_counted(greeting, name, identity.authority, revoked)
        role = PartyRole.QUERIER if name == invitation.querier else PartyRole.SITE
        _require_signed(invitation, greeting, name, role)
    transcript = _transcript(invitation, greetings)
    secrets, outgoing, incoming = {}, {}, {}
    for name, greeting in greetings.items():
        if name == identity.name:
            continue
        shared = _shared(private, greeting.key, name)
        low, high = sorted((name, identity.name))
        root = HKDF(
            algorithm=hashes.SHA256(),
            length=SEED_BYTES,
            salt=transcript,
            info=f"dpal capc 1/{low}/{high}".encode(),
        ).derive(shared)
        secrets[name] = derived_key(root, "pads")
        outgoing[name] = Sealed(derived_key(root, f"from {identity.name} to {name}"))
        incoming[name] = Sealed(derived_key(root, f"from {name} to {identity.name}"))
    return SessionKeys(identity.name, transcript, secrets, outgoing, incoming)


def _require_counted(
    greeting: Greeting, name: str, authority: Certificate, revoked: frozenset[int]
) -> None:
    if problem := fault_of(_certificate_of(greeting), authority, revoked):
        raise ProtocolError(f"the certificate of {name} {problem}")


def _require_signed(invitation: Invitation, greeting: Greeting, name: str, role: PartyRole) -> None:
    certificate = _certificate_of(greeting)
    if name_in(certificate) != (name, role):
        raise ProtocolError(f"the certificate of {name} is another party's")
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        signed = _signed(invitation, bytes.fromhex(greeting.key))
        key.verify(bytes.fromhex(greeting.signature), signed, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise ProtocolError(f"the signature of {name} does not fit") from error


def _shared(private: X25519PrivateKey, key: str, name: str) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(key)))
    except ValueError as error:  # one of the few keys with which every secret is 0
        raise ProtocolError(f"{name} sent a key that hides nothing") from error


def _certificate_of(greeting: Greeting) -> Certificate:
    try:
        return x509.load_pem_x509_certificate(greeting.certificate.encode())
    except ValueError as error:
        raise ProtocolError("a party sent something else than a certificate") from error


def _signed(invitation: Invitation, key: bytes) -> bytes:
    return b"dpal capc 1/greeting/" + bytes.fromhex(digest(invitation)) + key


def _transcript(invitation: Invitation, greetings: Mapping[str, Greeting]) -> bytes:
    said = {name: digest(greeting) for name, greeting in greetings.items()}
    content = f"dpal capc 1/transcript/{digest(invitation)}/{digest(said)}"
    return hashlib.sha256(content.encode()).digest()
