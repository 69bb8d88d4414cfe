"""`dpal verify`: a certificate against its events, the ledger, a model and the pool.

It runs where little but dpal and dp-accounting is installed: MLflow is imported for a
registered model only, a database driver for a ledger on a server only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dpal.artifacts import CERTIFICATE, LEDGER, RECORD, CampaignFolder
from dpal.canonical import file_digest
from dpal.certificate.checks import Check, Outcome, refuted
from dpal.certificate.document import read_certificate
from dpal.certificate.outside import Model, Pool
from dpal.certificate.verify_improvement import verify_any as verify_certificate
from dpal.data.files import digest_of, files_of
from dpal.errors import CertificateError, LedgerError
from dpal.ledger.entries import Entry
from dpal.ledger.store import LedgerStore
from flows.terminal import out

_REGISTERED = "models:/"
_SALT, _RUNS = "pool.salt", "mlflow.sqlite"


@dataclass(frozen=True, kw_only=True)
class _Given:
    """A certificate, and what came with it."""

    document: dict[str, Any]
    model: Model | None


def verify(
    certificate: Annotated[
        Path | None,
        typer.Argument(help="certificate.json, or a folder with one; the model's if left out."),
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
    data: Annotated[
        list[Path] | None,
        typer.Option(help="The pool's file or folder, or --data for each file; bytes are hashed."),
    ] = None,
    salt: Annotated[
        Path | None, typer.Option(help="The campaign's pool.salt, if it lies elsewhere.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Where the registry is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:  # fmt: skip
    """Check a model's certificate: recompute every epsilon, compare every digest.

    Exits 1 when a check fails. What was not checked is listed, and proves nothing.
    """
    given = _given(certificate, model, mlflow)
    places = [certificate, Path(ledger) if ledger and "://" not in ledger else None]
    pool, no_pool = _pool(given.document, data, salt, [one for one in places if one])
    checks = verify_certificate(
        given.document,
        ledger=None if ledger is None else entries_of(ledger),
        model=given.model,
        pool=pool,
        no_pool=no_pool,
    )
    failed = refuted(checks)
    if as_json:
        print(json.dumps(_as_object(given.document, checks), indent=2))  # noqa: T201
    else:
        for one in checks:
            tell_check(one)
        out.print(_verdict(given.document, checks), markup=False)
    if failed:
        raise typer.Exit(1)


def _given(certificate: Path | None, model: str | None, mlflow: str | None) -> _Given:
    document = None if certificate is None else _read(certificate)
    if model is not None and model.startswith(_REGISTERED):
        try:
            from tasks.registry import fetch
        except ImportError as error:
            raise CertificateError(
                f"{model} is in a registry of MLflow, which is not installed here ({error}); "
                "install it, or download the model and name its weights and its certificate"
            ) from error
        registered = fetch(model, mlflow or default_registry(certificate))
        if document is not None and document.get("digest") != registered.certificate.get("digest"):
            raise CertificateError(f"{model} carries another certificate than {certificate}")
        return _Given(document=registered.certificate, model=registered.model)
    if document is None:
        raise CertificateError(
            "name a certificate.json, or a registered model that carries one with "
            "--model models:/NAME/VERSION"
        )
    if model is None:
        return _Given(document=document, model=None)
    if not Path(model).is_file():
        raise CertificateError(f"there is no model at {model}")
    return _Given(document=document, model=Model(sha256=file_digest(Path(model))))


def _read(certificate: Path) -> dict[str, Any]:
    path = certificate / CERTIFICATE if certificate.is_dir() else certificate
    if not path.is_file():
        raise CertificateError(
            f"there is no certificate at {path}; a campaign writes it when its last phase is done"
        )
    try:
        return read_certificate(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path} is no text, so it is no certificate") from error


def default_registry(certificate: Path | None = None) -> str | None:
    """The runs' database of an artifacts folder, where the certificate lies in one."""
    folders = [Path("artifacts")]
    if certificate is not None:
        folders = [certificate, *certificate.resolve().parents[:2], *folders]
    found = next((one / _RUNS for one in folders if (one / _RUNS).is_file()), None)
    return None if found is None else f"sqlite:///{found.resolve()}"


def entries_of(ledger: str) -> Sequence[Entry]:
    """All entries of the ledger that a word of the command line means."""
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
    document: dict[str, Any], data: list[Path] | None, salt: Path | None, places: Sequence[Path]
) -> tuple[Pool | None, str]:
    """The pool's files and its salt, or why there is none."""
    if not data:
        return None, "no pool given (--data)"
    files = files_of(data)
    if missing := [str(path) for path in files if not path.is_file()]:
        raise CertificateError(f"there is no file at {missing[0]}")
    folders = [one if one.is_dir() else one.parent for one in places]
    campaign = str(document.get("campaign"))
    beside = [folder / _SALT for folder in folders]
    below = [folder / campaign / _SALT for folder in folders]
    if salt is not None and not salt.is_file():
        raise CertificateError(f"there is no salt at {salt}")
    for path in [salt] if salt else [*beside, *below]:
        if path.is_file():
            return Pool(digest=digest_of(files), salt=path.read_bytes()), ""
    return None, (
        "the commitment opens with the campaign's pool.salt only, which never leaves its folder; "
        "name it with --salt"
    )


def _as_object(document: dict[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "campaign": document.get("campaign"),
        "certificate": document.get("digest"),
        "verified": not refuted(checks),
        "checks": [
            {"check": one.name, "outcome": one.outcome.value, "detail": one.detail}
            for one in checks
        ],
    }


def tell_check(check: Check) -> None:
    """One line: words read from the left, so this is no table of numbers."""
    styles = {Outcome.OK: "green", Outcome.FAILED: "bold red", Outcome.UNCHECKED: "yellow"}
    out.print(f"{check.outcome:<12}", style=styles[check.outcome], end="")
    out.print(f"{check.name:<25}{check.detail}", markup=False)


def _verdict(document: dict[str, Any], checks: Sequence[Check]) -> str:
    if refuted(checks):
        return "FAILED: do not rely on this certificate"
    promise, missing = document["promise"], [
        one.name for one in checks if one.outcome is Outcome.UNCHECKED
    ]  # fmt: skip
    rest = f"; not checked: {', '.join(missing)}" if missing else ""
    return (
        f"ok: epsilon {promise['epsilon']:g} at delta {promise['delta']:.4g}, adjacency "
        f"{promise['adjacency']}, unit {promise['unit']}{rest}"
    )
