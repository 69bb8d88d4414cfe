"""`dpal verify`: a certificate against its events, the ledger, a model, the pool, its author.

It runs where little but dpal and dp-accounting is installed: MLflow is imported for a
registered model only, a database driver for a ledger on a server only.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpal.certificate.check_outcome import MALFORMED
from dpal.certificate.dsse import SUFFIX
from dpal.certificate.promise_checks import paper_mark, pool_size_of
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.signature_trust import author_of
from dpal.data.pool_files import digest_of, files_of
from dpal.errors import CertificateError, LedgerError
from dpal.files.artifacts import (
    CERTIFICATE,
    LEDGER,
    RECORD,
    CampaignFolder,
    signature_of,
)
from dpal.files.stored_objects import place_of
from dpal.ledger.entries import Entry
from flows.cli.terminal import out
from flows.cli.trusted_keys import Keys, is_own, trust_in
from flows.cli.verify_exports import check_export, signed_export
from flows.cli.verify_view import VerificationReport, tell_checks

if TYPE_CHECKING:
    from dpal.certificate.check_against import Model, PoolCommitment

EXAMPLE = "Example: dpal verify artifacts/digits --ledger artifacts/digits --key own"

_REGISTERED = "models:/"
_SALT, _RUNS = "pool.salt", "mlflow.sqlite"


@dataclass(frozen=True, kw_only=True)
class _Given:
    """A certificate, and what came with it."""

    document: dict[str, Any]
    signature: str | None
    model: Model | None


def verify_command(
    certificate: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR|FILE",
            help="certificate.json, or a folder with one; the model's if left out. Or a page or "
            "an export of the ledger, with its signature beside it.",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="DIR|FILE|URL", help="The ledger, or a folder that knows it."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE|models:/NAME/VERSION", help="The model's weights, or a model "
                     "of the registry."),
    ] = None,
    key: Keys = None,
    signature: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate's signature, if it lies elsewhere."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="The pool's file, folder or URL, or --data for each; bytes are hashed."),
    ] = None,
    salt: Annotated[
        Path | None, typer.Option(help="The campaign's pool.salt, if it lies elsewhere.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Where the registry is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:  # fmt: skip
    """Check a model's certificate: recompute every epsilon, compare every digest, find its author.

    Exits 0 when nothing failed and a key that you trust signed it, 3 when nothing failed and
    the author is unknown, 1 when a check failed, 2 when something is missing or unreadable.
    What was not checked is listed, and proves nothing.
    """
    places = [Path(word) for word in (certificate, ledger) if word and "://" not in str(word)]
    from dpal.certificate.verify import verify_certificate

    trust, entries = trust_in(key or ()), None if ledger is None else entries_of(ledger)
    again = _command(certificate, ledger, model)
    export = None if certificate is None else signed_export(certificate)
    if export is not None:
        if model or data or signature:
            raise CertificateError(
                f"{certificate} shows a ledger and certifies no model; leave out --model, --data "
                "and --signature, or name the certificate"
            )
        checks, author = check_export(export, trust, entries)
        report = VerificationReport(
            what="file", subject={"export": str(certificate)}, checks=checks, author=author
        )
        promised = "the signed head of a ledger"
    else:
        given = _given(certificate, model, mlflow, signature)
        document = given.document
        pool, no_pool = _pool(document, data, salt, places)
        checks = verify_certificate(
            document, ledger=entries, model=given.model, pool=pool, no_pool=no_pool
        )
        author = author_of(document, given.signature, trust, ledger=entries)
        subject = {"campaign": document.get("campaign"), "certificate": document.get("digest")}
        checks.append(author.check)
        report = VerificationReport(
            what="certificate", subject=subject, checks=checks, author=author
        )
        promised = _promise(document)
    if as_json:
        print(json.dumps(report.as_object(), indent=2))  # noqa: T201
    else:
        tell_checks(report.checks)
        said = report.verdict(promised, again, own=is_own(author.key))
        out.print(said, style=report.style, markup=False)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _command(certificate: Path | None, ledger: str | None, model: str | None) -> str:
    """What was asked, to be typed again with a key."""
    words = ["dpal", "verify", *([str(certificate)] if certificate else [])]
    words += ["--ledger", ledger] if ledger else []
    words += ["--model", model] if model else []
    return shlex.join(words)


def _given(
    certificate: Path | None, model: str | None, mlflow: str | None, signature: Path | None
) -> _Given:
    path = None if certificate is None else _place_of(certificate)
    document = None if path is None else _read(path)
    beside = signature or (None if path is None else signature_of(path))
    if signature is not None and not signature.is_file():
        raise CertificateError(f"there is no signature at {signature}")
    signed = _text_of(beside) if beside is not None and beside.is_file() else None
    if model is not None and model.startswith(_REGISTERED):
        try:
            from tasks.tracking.model_registry import fetch_registered_model
        except ImportError as error:
            raise CertificateError(
                f"{model} is in a registry of MLflow, which is not installed here ({error}); "
                "install it, or download the model and name its weights and its certificate"
            ) from error
        registered = fetch_registered_model(model, mlflow or default_registry(certificate))
        if document is not None and document.get("digest") != registered.certificate.get("digest"):
            raise CertificateError(f"{model} carries another certificate than {certificate}")
        return _Given(
            document=registered.certificate,
            signature=signed or registered.signature,
            model=registered.model,
        )
    if document is None:
        raise CertificateError(
            "name a certificate.json, or a registered model that carries one with "
            "--model models:/NAME/VERSION"
        )
    if model is None:
        return _Given(document=document, signature=signed, model=None)
    if not Path(model).is_file():
        raise CertificateError(f"there is no model at {model}")
    from dpal.certificate.check_against import Model

    return _Given(document=document, signature=signed, model=Model.at(Path(model)))


def _place_of(certificate: Path) -> Path:
    """The certificate that a path means: itself, that in a folder, or that beside a signature."""
    if certificate.is_dir():
        return certificate / CERTIFICATE
    if certificate.name.endswith(SUFFIX):
        return certificate.with_name(f"{certificate.name.removesuffix(SUFFIX)}.json")
    return certificate


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CertificateError(
            f"there is no certificate at {path}; a campaign writes it when its last phase is done"
        )
    return read_certificate(_text_of(path))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path} is no text, so it is no certificate") from error


def default_registry(certificate: Path | None = None) -> str | None:
    """The server that runs of this terminal tell, else the database of an artifacts folder."""
    if server := os.environ.get("DPAL_MLFLOW_URI"):
        return server
    folders = [Path("artifacts")]
    if certificate is not None:
        folders = [certificate, *certificate.resolve().parents[:2], *folders]
    database = next((folder / _RUNS for folder in folders if (folder / _RUNS).is_file()), None)
    return None if database is None else f"sqlite:///{database.resolve()}"


def named_registry(mlflow: str | None, folder: Path | None = None) -> str | None:
    """The registry of a command that changes or reads models: named here, or where runs tell.

    `MLFLOW_TRACKING_URI` comes after the server of our own runs: MLflow sets it by itself for
    whatever a process starts.
    """
    server = mlflow or os.environ.get("DPAL_MLFLOW_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    return server or default_registry(folder)


def entries_of(ledger: str) -> Sequence[Entry]:
    """All entries of the ledger that a word of the command line means."""
    from dpal.ledger.ledger_store import LedgerStore

    store = LedgerStore(_place(ledger), create=False)
    try:
        return store.entries()
    finally:
        store.close()


def _place(ledger: str) -> Path | str:
    """The database that a word of the command line means.

    Raises:
      LedgerError: a folder that knows of no ledger.
    """
    path = Path(ledger)
    if "://" in ledger or not path.is_dir():
        return ledger if "://" in ledger else path
    if (path / RECORD).is_file():
        runtime = CampaignFolder(path).read_record().get("config", {}).get("runtime", {})
        if runtime.get("ledger"):
            return str(runtime["ledger"])
    for folder in (path, path.resolve().parent):
        if (folder / LEDGER).is_file():
            return folder / LEDGER
    raise LedgerError(f"there is no ledger in {path} or beside it; name its file or its URL")


def _pool(
    document: dict[str, Any], data: list[str] | None, salt: Path | None, places: Sequence[Path]
) -> tuple[PoolCommitment | None, str]:
    """The pool's files and its salt, or why there is none."""
    if not data:
        return None, "no pool given (--data)"
    files = files_of(list(map(place_of, data)))
    if missing := [str(path) for path in files if not path.is_file()]:
        raise CertificateError(f"there is no file at {missing[0]}")
    folders = [place if place.is_dir() else place.parent for place in places]
    campaign = str(document.get("campaign"))
    beside = [folder / _SALT for folder in folders]
    below = [folder / campaign / _SALT for folder in folders]
    if salt is not None and not salt.is_file():
        raise CertificateError(f"there is no salt at {salt}")
    for path in [salt] if salt else [*beside, *below]:
        if path.is_file():
            from dpal.certificate.check_against import PoolCommitment

            return PoolCommitment(digest=digest_of(files), salt=path.read_bytes()), ""
    return None, (
        "the commitment opens with the campaign's pool.salt only, which never leaves its folder; "
        "name it with --salt"
    )


def _promise(document: dict[str, Any]) -> str:
    """The promise, as far as it can be read; what is wrong with it is among the checks."""
    try:
        promise = document["promise"]
        mark = paper_mark(promise["delta"], promise["unit"], pool_size_of(document))
        return (
            f"epsilon {promise['epsilon']:g} at delta {promise['delta']:.4g}, adjacency "
            f"{promise['adjacency']}, unit {promise['unit']}" + (f"; {mark}" if mark else "")
        )
    except MALFORMED:
        return "a promise that cannot be read"
