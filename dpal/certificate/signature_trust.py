"""Who wrote a certificate: whose signature it carries, and whether anybody here trusts that key.

A certificate that agrees with itself proves nothing about who wrote it: a ledger can be invented
around any file. The signature is by the key that anchors the ledger, so that whoever has that
public key from the data owner knows who wrote the certificate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpal.certificate.check_outcome import MALFORMED, Check, CheckOutcome, unreadable_check
from dpal.certificate.dsse import Envelope, fingerprint
from dpal.certificate.read_and_seal import is_same_json, parse_entry
from dpal.certificate.signed_statement import (
    CERTIFICATE,
    LEDGER_HEAD,
    certificate_statement,
    read_statement,
    signing_key,
)
from dpal.ledger.chain import known_keys
from dpal.ledger.entries import Entry

NAME = "author"


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Public keys that somebody vouches for here.

    Attributes:
      keys: what a person calls each key, by its 64 hexadecimal digits.
      exclusive: whether a valid signature of another key is refused; else its author is unknown.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False


@dataclass(frozen=True, kw_only=True)
class Author:
    """What is known of who wrote something.

    Attributes:
      check: whether the signature holds, as a line of a verification.
      key: public key that signed; None where none did.
      known_as: what a person here calls a trusted key that signed; None where no such key did.
    """

    check: Check
    key: str | None = None
    known_as: str | None = None

    @property
    def known(self) -> bool:
        """Whether a key that is trusted here signed."""
        return self.known_as is not None


def author_of(
    document: Mapping[str, Any],
    envelope: str | None,
    trust: Trust,
    *,
    ledger: Sequence[Entry] | None = None,
) -> Author:
    """Finds out who wrote a certificate.

    Args:
      document: from `read_certificate`.
      envelope: text of the signature that came with it; None for none.
      trust: keys that are trusted.
      ledger: all entries of the ledger, which may know more keys than the certificate.
    """
    if envelope is None:
        detail = "no signature came with it (certificate.dsse.json), so anybody may have written it"
        return Author(check=Check(name=NAME, outcome=CheckOutcome.UNCHECKED, detail=detail))
    try:
        opened, statement = read_statement(envelope)
        key = signing_key(statement)
        if statement.get("predicateType") != CERTIFICATE:
            return _refused("what is signed is no certificate")
        if not is_same_json(statement, certificate_statement(document, key)):
            return _refused("the signature is of another certificate, or says something else of it")
        keys = ledger_keys(document) | (known_keys(ledger) if ledger else set())
    except MALFORMED as error:
        return Author(check=unreadable_check(NAME, error))
    if document["ledger"]["identity"] is not None and key not in keys:
        return _foreign(key)
    return _judged(opened, key, trust)


def author_of_head(envelope: str, trust: Trust, *, ledger: Sequence[Entry] | None = None) -> Author:
    """Finds out who signed the head of a ledger and files that show it.

    Args:
      envelope: its text.
      trust: keys that are trusted.
      ledger: all entries of the ledger, which knows its keys.
    """
    try:
        opened, statement = read_statement(envelope)
        if statement.get("predicateType") != LEDGER_HEAD:
            return _refused("what is signed is no head of a ledger")
        key = signing_key(statement)
    except MALFORMED as error:
        return Author(check=unreadable_check(NAME, error))
    if ledger is not None and key not in known_keys(ledger):
        return _foreign(key)
    return _judged(opened, key, trust)


def ledger_keys(document: Mapping[str, Any]) -> set[str]:
    """Public keys of the ledger that a certificate is of, as far as its entries name them."""
    ledger = document["ledger"]
    entries = [
        parse_entry(record)
        for record in (ledger["opening"], *ledger.get("adoptions", ()))
        if record
    ]
    return known_keys(entries)


def _judged(envelope: Envelope, key: str, trust: Trust) -> Author:
    """Whether the named key signed, and whether a trusted one did."""
    if not envelope.signers([key]):
        return _refused(
            f"the signature is not by key {fingerprint(key)}, which it names: it was altered"
        )
    trusted = sorted(envelope.signers(trust.keys))
    if trusted:
        known_as = trust.keys[trusted[0]]
        detail = f"signed by key {fingerprint(trusted[0])}, {known_as}"
        check = Check(name=NAME, outcome=CheckOutcome.OK, detail=detail)
        return Author(check=check, key=trusted[0], known_as=known_as)
    detail = f"signed by key {fingerprint(key)}, and nobody here vouches for that key"
    if trust.exclusive:
        return _refused(f"it is signed by key {fingerprint(key)}, which is none that you named")
    return Author(check=Check(name=NAME, outcome=CheckOutcome.UNCHECKED, detail=detail), key=key)


def _foreign(key: str) -> Author:
    return _refused(
        f"it is signed by key {fingerprint(key)}, which the ledger neither was opened with nor "
        "adopted"
    )


def _refused(detail: str) -> Author:
    return Author(check=Check(name=NAME, outcome=CheckOutcome.FAILED, detail=detail))
