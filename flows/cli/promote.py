"""`dpal promote`: a name for the model that is to be used, if its certificate holds."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from dpal.certificate.check_outcome import any_failed
from dpal.certificate.signature_trust import Trust, author_of
from dpal.errors import CertificateError, DpalError
from flows.cli.terminal import out
from flows.cli.trusted_keys import OWN, Keys, trust_in
from flows.cli.verify import entries_of, named_registry
from flows.cli.verify_view import FAILED, UNKNOWN_AUTHOR, tell_checks

EXAMPLE = (
    "Example: dpal promote models:/dpal-clinic/3 --to champion --reason 'board of 4 May' "
    "--ledger artifacts"
)
_PREFIX = "models:/"
_UNASKED = "promoted when nobody asked who signed it"


def promote_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="models:/NAME/VERSION",
            help="The version; with --show or --back, the model: models:/NAME.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="ALIAS", help="What it is to be called.")
    ] = "champion",
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; kept with the version.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who decides; MLFLOW_TRACKING_USERNAME, or the user."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="DIR|FILE|URL", help="The ledger that the certificate must fit."),
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Where the registry is.")
    ] = None,
    key: Keys = None,
    author_unknown: Annotated[
        str | None,
        typer.Option(
            "--author-unknown",
            metavar="TEXT",
            help="Promote although no key that is trusted here signed the certificate; why that is "
            "fine, kept with the version.",
        ),
    ] = None,
    back: Annotated[
        bool,
        typer.Option("--back", help="Give the alias back to the version that had it before."),
    ] = False,
    listing: Annotated[
        bool, typer.Option("--show", help="List versions, aliases and reasons; change nothing.")
    ] = False,
) -> None:
    """Give a registered model an alias, if its certificate holds and no audit speaks against it.

    This machine's own key is trusted, and every --key. Exits 1 when a check fails, 3 when nobody
    known signed the certificate, and changes nothing then. The same holds for --back.
    """
    from dpal.certificate.verify import verify_certificate
    from tasks.tracking.model_registry import fetch_registered_model
    from tasks.tracking.promotion import audit_doubt, require_alias, version_before
    from tasks.tracking.promotion import promote as give

    registry = named_registry(mlflow)
    if listing:
        _show(model, registry)
        return
    if reason is None or not reason.strip():
        raise CertificateError(
            f"say why with --reason TEXT; it is kept with the version. {model} was not promoted"
        )
    require_alias(to)
    if back:
        name = _name_in(model)
        model = f"{_PREFIX}{name}/{version_before(name, to, registry)}"
    fetched = fetch_registered_model(model, registry)
    entries = None if ledger is None else entries_of(ledger)
    author = author_of(fetched.certificate, fetched.signature, _trusted(key), ledger=entries)
    checks = verify_certificate(
        fetched.certificate,
        ledger=entries,
        model=fetched.model,
        pool=None,
        no_pool="no part of a promotion; dpal verify --data",
    )
    checks.append(author.check)
    tell_checks(checks)
    if any_failed(checks):
        out.print(f"REFUSED: {model} was not promoted", style="bold red", markup=False)
        raise typer.Exit(FAILED)
    excuse = (author_unknown or "").strip()
    if not author.known and not excuse:
        out.print(_who_is_missing(model), style="bold red", markup=False)
        raise typer.Exit(UNKNOWN_AUTHOR)
    if doubt := audit_doubt(fetched.certificate, registry):
        raise CertificateError(f"{model} was not promoted: {doubt}")
    before = give(
        model,
        to,
        by=by or _whoever(),
        reason=reason.strip(),
        checks=checks,
        author=author.check.detail if author.known else f"author unknown: {excuse}",
        tracking_uri=registry,
        back=back,
    )
    out.print(_said(model, to, before), markup=False)


def _trusted(key: list[str] | None) -> Trust:
    """Trusts this machine's own key, where it has one, and what else was named."""
    named = trust_in(key or ())
    try:
        own = trust_in([OWN])
    except DpalError:
        return named
    return replace(named, keys={**own.keys, **named.keys})


def _who_is_missing(model: str) -> str:
    return (
        f"REFUSED: {model} was not promoted, as its author is unknown: no key that is trusted here "
        "signed its certificate. Name the public key of whoever ran it with --key (dpal ledger key "
        "prints it there); or, if you know where it comes from (it was registered before "
        "certificates were signed, say), say how with --author-unknown TEXT, which is kept with "
        "the version"
    )


def _said(model: str, alias: str, before: str | None) -> str:
    name, _, number = model.removeprefix(_PREFIX).rpartition("/")
    was = "" if before in (None, number) else f" (was version {before})"
    return f"{model} is {alias} of {name}{was}; serve it as models:/{name}@{alias}"


def _name_in(model: str) -> str:
    """The registered model that an address names, with a version or without."""
    name = model.removeprefix(_PREFIX)
    head, _, number = name.rpartition("/")
    return head if head and number.isdecimal() else name


def _show(model: str, registry: str | None) -> None:
    """Every version with its promise, and below it who called it what, when and why."""
    from tasks.tracking.promotion import versions

    for version in versions(_name_in(model), registry):
        tags = version.tags
        out.print(f"version {version.number}: {_promise(tags)}", markup=False)
        if changed := tags.get("dpal.changed"):
            out.print(f"  {changed}", markup=False)
        for alias in (*version.aliases, *_former(tags, version.aliases)):
            ended = tags.get(f"{alias}.until", "") if alias not in version.aliases else ""
            until = f" until {ended[:16]}" if ended else ""
            told = f"by {tags.get(f'{alias}.by', 'somebody')}: {tags.get(f'{alias}.reason', '-')}"
            since = tags.get(f"{alias}.at", "")[:16]
            out.print(f"  {alias} from {since}{until}, {told}", markup=False)
            out.print(f"    certificate {tags.get(f'{alias}.author', _UNASKED)}", markup=False)


def _promise(tags: Mapping[str, str]) -> str:
    if "dpal.certificate" not in tags:
        return "carries no certificate; nothing is known about what it cost"
    return (
        f"epsilon {tags.get('epsilon')} at delta {tags.get('delta')}, adjacency "
        f"{tags.get('adjacency')}, unit {tags.get('unit')}; certificate "
        f"{tags['dpal.certificate'][:12]}"
    )


def _former(tags: Mapping[str, str], aliases: tuple[str, ...]) -> list[str]:
    ended = [key.removesuffix(".until") for key in tags if key.endswith(".until")]
    return [alias for alias in ended if alias not in aliases]


def _whoever() -> str:
    return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
