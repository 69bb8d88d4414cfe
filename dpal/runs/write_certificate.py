"""Certificates and signatures: what is written once every release is committed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpal.canonical import file_digest, plain
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.dsse import Signer
from dpal.certificate.make_campaign_certificate import certificate_of, text_to_keep
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.signature_trust import Trust, author_of, ledger_keys
from dpal.certificate.signed_exports import head_of, sign_export
from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.config.runtime import RuntimeConfig
from dpal.errors import CertificateError
from dpal.files.artifacts import CampaignFolder, signature_of
from dpal.files.atomic_writes import write_text, write_together
from dpal.ledger.chain import known_keys
from dpal.ledger.entries import Entry
from dpal.runs.campaign import Campaign
from dpal.runs.open_ledger import anchors_of
from dpal.runs.progress_logging import notify

_PROGRAMS = ("dpal", "dp-accounting", "numpy", "scipy", "torch", "opacus", "cryptography")


def certify(campaign: Campaign) -> None:
    """Writes certificate.json from what the ledger holds, once every release is committed."""
    with campaign.ledger() as ledger:
        entries = ledger.store.verified()  # it is signed as what this machine wrote
    plan, versions = plain(campaign.plan), program_versions()

    def certified(form: int) -> dict[str, Any]:
        return certificate_of(entries, campaign.config.name, plan, versions=versions, form=form)

    keep_certificate(campaign.folder, certified, campaign.config.runtime)


def keep_certificate(
    folder: CampaignFolder, certified: Callable[[int], dict[str, Any]], runtime: RuntimeConfig
) -> Path:
    """Writes certificate.json and who signed it; what certifies the same already stays.

    Args:
      folder: of what is certified.
      certified: makes the certificate in a format.
      runtime: where the key is that signs.

    Returns:
      The certificate's file.
    """
    path, beside = folder.certificate, folder.signature
    before, kept_signature = _text_of(path), _text_of(beside)
    text = text_to_keep(certified, before)
    signature = _signature(read_certificate(text), kept_signature, anchors_of(runtime).key)
    # Together, as one without the other would look like a forgery.
    texts = {path: (before, text), beside: (kept_signature, signature)}
    changed = {file.name: new for file, (old, new) in texts.items() if new and new != old}
    if changed:
        write_together(folder.root, {name: new.encode() for name, new in changed.items()})
    if signature is None:
        beside.unlink(missing_ok=True)
        notify(
            f"certificate: {path}, not signed: this machine adopted the ledger after its last "
            "entry there, so that only the machine that wrote it can sign"
        )
    else:
        notify(f"certificate: {path}, signed: {beside.name}")
    return path


def sign_files(
    ledger: Sequence[Entry],
    files: Sequence[Path],
    runtime: RuntimeConfig,
    *,
    upto: int | None = None,
) -> Path | None:
    """Signs files of one folder that show a ledger, beside the first of them.

    Args:
      ledger: all of its entries; empty where it is not known to be the newest.
      files: just written.
      runtime: where the key is that signs.
      upto: number of the entry up to which they show it; None for the last.

    Returns:
      The signature's file; None where the ledger, or this machine's key of it, is not known, and
      then no older signature stays.
    """
    to, signer = signature_of(files[0]), anchors_of(runtime).key
    shown = [entry for entry in ledger if upto is None or entry.sequence <= upto]
    if not shown or signer.public_key() not in known_keys(ledger):
        to.unlink(missing_ok=True)
        return None
    digests = {path.name: file_digest(path) for path in files}
    write_text(to, sign_export(head_of(shown), digests, signer))
    return to


def _signature(document: dict[str, Any], kept_signature: str | None, signer: Signer) -> str | None:
    """The signature that is there, where it holds; else one by this machine's key, if it may."""
    if kept_signature is not None and not any_failed(
        [author_of(document, kept_signature, Trust()).check]
    ):
        return kept_signature
    key = signer.public_key()
    if document["ledger"]["identity"] is not None and key not in ledger_keys(document):
        return None
    return sign_statement(certificate_statement(document, key), signer)


def _text_of(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def certificate_in(campaign: Campaign) -> dict[str, Any]:
    """The campaign's certificate.

    Raises:
      CertificateError: it is missing or cannot be read.
    """
    path = campaign.folder.certificate
    if not path.is_file():
        raise CertificateError(
            f"{path} is missing; run the same `dpal run` again, it writes it from the ledger"
        )
    return read_certificate(path.read_text(encoding="utf-8"))


def program_versions() -> dict[str, str]:
    """Versions of the programs that ran a campaign; informative."""
    versions = {"python": platform.python_version()}
    for name in _PROGRAMS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
