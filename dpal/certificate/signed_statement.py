"""What is signed: in-toto statements about a certificate, or about a ledger's head and its exports.

Source:
  in-toto Attestation Framework, github.com/in-toto/attestation: spec/v1/statement.md,
  spec/v1/digest_set.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dpal.canonical import canonical_json
from dpal.certificate.dsse import (
    Envelope,
    Signer,
    public_key_from,
    read_envelope,
    signed_envelope,
)
from dpal.certificate.read_and_seal import kind_name, read_object
from dpal.errors import CertificateError

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
CERTIFICATE: Final = "urn:x-dpal:certificate:1"
LEDGER_HEAD: Final = "urn:x-dpal:ledger-head:1"

_STATEMENT: Final = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last entry of a ledger at some time.

    Attributes:
      identity: digest of the ledger's first entry; None where there is no ledger.
      sequence: number of the entry.
      digest: of the entry.
    """

    identity: str | None
    sequence: int
    digest: str


def certificate_statement(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What the holder of a key says of a certificate, its models and its ledger's head."""
    ledger = document["ledger"]
    head = Head(identity=ledger["identity"], **ledger["head"])
    models = {model["file"]: model["sha256"] for model in document.get("models", ())}
    return _statement(
        CERTIFICATE,
        models,
        head,
        {
            "certificate": document["digest"],
            "format": document["format"],
            "kind": kind_name(document),
            "campaign": document["campaign"],
            "promise": document["promise"],
            "key": key,
        },
    )


def head_statement(head: Head, files: Mapping[str, str], key: str) -> dict[str, Any]:
    """What the holder of a key says of a ledger's head, and of files that show that ledger.

    Args:
      head: of the ledger when the files were written.
      files: their names, and SHA-256 of each.
      key: public half of the key that signs.
    """
    return _statement(LEDGER_HEAD, files, head, {"key": key})


def sign_statement(statement: Mapping[str, Any], signer: Signer) -> str:
    """A statement in an envelope, as a file's text."""
    return signed_envelope(PAYLOAD_TYPE, canonical_json(statement).encode(), signer)


def read_statement(text: str) -> tuple[Envelope, dict[str, Any]]:
    """Opens an envelope that holds a statement; nothing about it is verified yet.

    Raises:
      CertificateError: it holds none.
    """
    envelope = read_envelope(text)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise CertificateError(f"what is signed there is of type {envelope.payload_type!r}")
    try:
        statement = read_object(envelope.payload.decode("utf-8"), "no statement")
    except UnicodeDecodeError as error:
        raise CertificateError("what is signed there is no text") from error
    return envelope, statement


def signing_key(statement: Mapping[str, Any]) -> str:
    """The public key that a statement names as its author's.

    Raises:
      CertificateError: it names none.
    """
    predicate = statement.get("predicate")
    key = predicate.get("key") if isinstance(predicate, dict) else None
    if not isinstance(key, str) or public_key_from(key) != key:
        raise CertificateError("what is signed there does not say by which key")
    return key


def _statement(
    kind: str, files: Mapping[str, str], head: Head, predicate: Mapping[str, Any]
) -> dict[str, Any]:
    subject = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in files.items()]
    if head.sequence:  # else nothing was ever written into a ledger
        subject.append({"name": f"ledger entry {head.sequence}", "digest": {"sha256": head.digest}})
    ledger = {"identity": head.identity, "sequence": head.sequence, "head": head.digest}
    return {
        "_type": _STATEMENT,
        "subject": subject,
        "predicateType": kind,
        "predicate": {**predicate, "ledger": ledger},
    }
