"""Reading and sealing a certificate: strict JSON, one digest over all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpal.canonical import canonical_json, digest
from dpal.errors import CertificateError
from dpal.ledger.entries import Entry, EntryKind

FORMAT = 2  # of what is written
FORMATS = (1, 2)  # of what is read

# Nothing in a certificate says what these should be, so a change of them is found by the
# certificate's own digest alone. Everything else is derived again from the entries.
INFORMATIVE = ("versions",)

_FIELDS = ("sequence", "campaign", "kind", "release", "body", "recorded_at", "previous", "digest")


def sealed_certificate(content: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the digest that names a certificate: SHA-256 of the canonical JSON of the rest."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return {**rest, "digest": digest(rest)}


def to_text(certificate: Mapping[str, Any]) -> str:
    """The certificate as a file: one JSON object, for people and machines."""
    return json.dumps(certificate, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def read_certificate(text: str) -> dict[str, Any]:
    """Reads what `to_text` wrote. Nothing about it is believed yet; see `verify`.

    Args:
      text: content of a certificate.json.

    Returns:
      The object that it holds.

    Raises:
      CertificateError: it is no JSON object of one meaning.
    """
    return read_object(text, "no certificate")


def read_object(text: str, refusal: str) -> dict[str, Any]:
    """Reads a JSON object of one meaning: no key stands twice, and every number is finite.

    Args:
      text: a file's content.
      refusal: what it is if it is none, such as "no certificate".

    Raises:
      CertificateError: it is none.
    """
    try:
        content = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        canonical_json(content)  # 1e999 is read as infinite
        json.dumps(content, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"this is {refusal} that can be read ({error})") from error
    return content


def kind_name(document: Mapping[str, Any]) -> str:
    """What a certificate is about: campaign, improvement or voting."""
    return str(document.get("kind", "campaign"))


def entry_record(entry: Entry) -> dict[str, Any]:
    """A ledger entry as JSON, with everything that its digest covers."""
    return {**vars(entry), "kind": entry.kind.value}


def entry_digest(entry: Entry) -> str:
    """The digest that an entry of this content has."""
    return digest({key: value for key, value in entry_record(entry).items() if key != "digest"})


def parse_entry(record: Any) -> Entry:
    """Reads what `entry_record` wrote.

    Raises:
      CertificateError: it has other fields, or fields of other types.
    """
    texts = ("campaign", "kind", "release", "recorded_at", "previous", "digest")
    if (
        not isinstance(record, dict)
        or set(record) != set(_FIELDS)
        or not all(isinstance(record[key], str) for key in texts)
        or type(record["sequence"]) is not int
        or not isinstance(record["body"], dict)
    ):
        raise CertificateError("something among the ledger entries is no entry")
    try:
        kind = EntryKind(record["kind"])
    except ValueError as error:
        raise CertificateError(f"ledger entries of kind {record['kind']!r} are unknown") from error
    return Entry(**{**record, "kind": kind})


def is_same_json(value: object, other: object) -> bool:
    """Whether two JSON values are the same; 1, 1.0 and true are three."""
    return canonical_json(value) == canonical_json(other)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        # Two programs would read two different certificates.
        raise ValueError("a key stands twice in one object")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number that it may hold")
