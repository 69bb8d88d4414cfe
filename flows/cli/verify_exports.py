"""Files that show a ledger, with their signature beside them: pages and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpal.canonical import file_digest
from dpal.certificate.check_outcome import Check
from dpal.certificate.dsse import SUFFIX
from dpal.certificate.signature_trust import Author, Trust
from dpal.certificate.signed_exports import files_in, verify_export
from dpal.certificate.signed_statement import LEDGER_HEAD, read_statement
from dpal.errors import CertificateError
from dpal.files.artifacts import signature_of
from dpal.ledger.entries import Entry

_SHOWING = (".html", ".md", ".parquet", ".csv")


def signed_export(path: Path) -> Path | None:
    """The signature of a file that shows a ledger; None where a path means a certificate.

    Raises:
      CertificateError: such a file has no signature.
    """
    if path.suffix in _SHOWING and path.is_file():
        signature = signature_of(path)
        if not signature.is_file():
            raise CertificateError(
                f"{path} is not signed ({signature.name} is not beside it), so nothing can be said "
                "of who wrote it; `dpal report` or `dpal ledger export`, where the ledger is, "
                "writes it signed"
            )
        return signature
    if path.name.endswith(SUFFIX) and path.is_file():
        _, statement = read_statement(_text_of(path))
        return path if statement.get("predicateType") == LEDGER_HEAD else None
    return None


def check_export(
    signature: Path, trust: Trust, ledger: Sequence[Entry] | None
) -> tuple[list[Check], Author]:
    """Checks a signature, the files beside it that it names, and the head of the ledger."""
    text = _text_of(signature)
    digests: dict[str, str | None] = {}
    for name in files_in(text):
        path = signature.parent / Path(name).name  # beside it, whatever a stranger wrote
        digests[name] = file_digest(path) if path.is_file() else None
    return verify_export(text, digests, trust, ledger=ledger)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CertificateError(f"{path} cannot be read, so it is no signature") from error
