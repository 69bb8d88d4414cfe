"""Files that show a ledger (exports, pages), and the signed head of the ledger that they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.certificate.check_outcome import (
    MALFORMED,
    Check,
    check_from_faults,
    unchecked,
    unreadable_check,
)
from dpal.certificate.dsse import Signer
from dpal.certificate.read_and_seal import is_same_json
from dpal.certificate.signature_trust import Author, Trust, author_of_head
from dpal.certificate.signed_statement import (
    Head,
    head_statement,
    read_statement,
    sign_statement,
    signing_key,
)
from dpal.errors import CertificateError, LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry


def head_of(entries: Sequence[Entry]) -> Head:
    """The head of a ledger that has entries."""
    last = entries[-1]
    return Head(identity=entries[0].digest, sequence=last.sequence, digest=last.digest)


def sign_export(head: Head, files: Mapping[str, str], signer: Signer) -> str:
    """Signs files that show a ledger, together with its head.

    Args:
      head: of the ledger when they were written.
      files: SHA-256 by name.
      signer: holds a key that the ledger knows.

    Returns:
      An envelope as a file's text.
    """
    return sign_statement(head_statement(head, files, signer.public_key()), signer)


def verify_export(
    envelope: str,
    files: Mapping[str, str | None],
    trust: Trust,
    *,
    ledger: Sequence[Entry] | None = None,
) -> tuple[list[Check], Author]:
    """Checks a signed head of a ledger and the files that it is about.

    Args:
      envelope: its text.
      files: SHA-256 of the files beside it by name, None for one that is not there.
      trust: keys that are trusted.
      ledger: all entries of the ledger.
    """
    author = author_of_head(envelope, trust, ledger=ledger)
    try:
        _, statement = read_statement(envelope)
        checks = [
            _check_files(statement, files),
            _check_head(statement, ledger),
        ]
    except MALFORMED as error:
        checks = [unreadable_check("files", error)]
    return [*checks, author.check], author


def files_in(envelope: str) -> list[str]:
    """Names of the files that a signed head is about.

    Raises:
      CertificateError: it is none.
    """
    try:
        _, statement = read_statement(envelope)
        return list(_stated_files(statement))
    except MALFORMED as error:
        raise CertificateError(f"this is no signature of a ledger's head ({error})") from error


def _check_files(statement: Mapping[str, Any], files: Mapping[str, str | None]) -> Check:
    stated = _stated_files(statement)
    return check_from_faults(
        "files", _file_faults(stated, files), f"{', '.join(stated)}, as signed"
    )


def _file_faults(stated: Mapping[str, str], files: Mapping[str, str | None]) -> Iterator[str]:
    for name, sha256 in stated.items():
        if files.get(name) is None:
            yield f"{name} is not beside its signature"
        elif files[name] != sha256:
            yield f"{name} was changed after it was signed"


def _check_head(statement: Mapping[str, Any], ledger: Sequence[Entry] | None) -> Check:
    head = _stated_head(statement)
    said = f"entry {head.sequence}, {head.digest[:12]}"
    if ledger is None:
        return unchecked("ledger", f"shown up to {said}; no ledger given (--ledger)")
    return check_from_faults("ledger", _head_faults(head, ledger), f"has {said}, as shown")


def _head_faults(head: Head, ledger: Sequence[Entry]) -> Iterator[str]:
    try:
        verify_chain(ledger)
    except LedgerTampered as error:
        yield str(error)
    if not ledger or ledger[0].digest != head.identity:
        yield "this is another ledger than the one that is shown"
    elif not 1 <= head.sequence <= len(ledger):
        yield f"this ledger has no entry {head.sequence}: it is an older copy"
    elif ledger[head.sequence - 1].digest != head.digest:
        yield f"entry {head.sequence} is another one in this ledger"


def _stated_head(statement: Mapping[str, Any]) -> Head:
    ledger = statement["predicate"]["ledger"]
    return Head(
        identity=ledger["identity"], sequence=ledger["sequence"], digest=str(ledger["head"])
    )


def _stated_files(statement: Mapping[str, Any]) -> dict[str, str]:
    """The files of a statement, which must be the one that its own parts make."""
    head, subjects = _stated_head(statement), statement["subject"]
    files = {subject["name"]: subject["digest"]["sha256"] for subject in subjects[:-1]}
    if not is_same_json(statement, head_statement(head, files, signing_key(statement))):
        raise ValueError("it is no statement about the head of a ledger")
    return files
