"""`dpal ledger`: reading, exporting and checking the epsilon ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import AnchorError, LedgerTampered
from dpal.files.artifacts import RECORD, CampaignFolder
from flows.cli.folder_arguments import (
    AsJson,
    By,
    CampaignDir,
    LedgerDir,
    campaign_folder,
    campaign_or_all,
)
from flows.cli.terminal import out, print_table
from flows.cli.trusted_keys import own_key

ledger_app = typer.Typer(help="Read, export and verify the epsilon ledger.")

LedgerUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The ledger, if no campaign in the folder says so yet."),
]


@ledger_app.command("show", epilog="Example: dpal ledger show artifacts/digits --by time")
def ledger_show(
    place: LedgerDir,
    by: Annotated[By, typer.Option(help="time: every entry. data: what is left.")] = By.COHORT,
    as_json: AsJson = False,
) -> None:
    """Show what was spent: by cohort, entry by entry, or what is left of data sets."""
    from flows.cli.ledger_view import LedgerView

    view = LedgerView.at(campaign_or_all(place))
    if as_json:
        typer.echo(json.dumps(view.as_object(by), indent=2))
        return
    for table_or_text in view.as_tables(by):
        if isinstance(table_or_text, str):
            out.print(table_or_text, markup=False)
        else:
            print_table(table_or_text)


@ledger_app.command("export", epilog="Example: dpal ledger export artifacts --to ledger.parquet")
def ledger_export(
    place: LedgerDir,
    to: Annotated[Path, typer.Option(metavar="FILE", help="Ends in .parquet or .csv.")],
) -> None:
    """Write the entries of one campaign, or of the whole ledger, as a table."""
    from flows.cli.ledger_view import export

    count, signature = export(campaign_or_all(place), to)
    out.print(f"{count} entries in {to}", markup=False)
    if signature is None:
        out.print("not signed: this machine does not know that it is the newest copy of the ledger")
    else:
        out.print(f"signed: {signature}; check it: dpal verify {signature} --key own", markup=False)


@ledger_app.command("page", epilog="Example: dpal ledger page artifacts/digits --to page.html")
def ledger_page(
    folder: CampaignDir,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Left out: ledger.html in the campaign's folder."),
    ] = None,
) -> None:
    """Write one campaign's ledger as a page that opens without a server."""
    from dpal.runs.make_report import make_ledger_page

    out.print(str(make_ledger_page(campaign_folder(folder), to)), markup=False)


@ledger_app.command("verify", epilog="Example: dpal ledger verify artifacts/digits")
def ledger_verify(place: LedgerDir, ledger: LedgerUrl = None) -> None:
    """Recompute the whole chain; exit 1 and name the first bad entry when it is broken."""
    from dpal.runs.verify_ledger import verify_ledger

    try:
        verdict = verify_ledger(campaign_or_all(place, ledger), ledger)
    except LedgerTampered as error:
        out.print(f"broken: {error}", markup=False)
        raise typer.Exit(1) from error
    except AnchorError as error:
        out.print(f"whole, but not known to be the newest copy: {error}", markup=False)
        raise typer.Exit(1) from error
    out.print(f"sound: {verdict.entries} entries, head {verdict.head}")
    if verdict.absent:
        out.print(f"not compared: {verdict.absent} committed files that are not here")


@ledger_app.command("adopt", epilog='Example: dpal ledger adopt artifacts/digits --reason "moved"')
def ledger_adopt(
    place: LedgerDir,
    reason: Annotated[str, typer.Option(help="Why this is the copy to go on with; recorded.")],
    despite: Annotated[
        str | None, typer.Option(help="Digest of the last known entry, lost for good; recorded.")
    ] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Vouch for a ledger that was moved here, restored, or is shared with another machine."""
    from dpal.runs.verify_ledger import adopt

    # Whatever is left of a folder of campaigns: the ledger may be what is gone.
    about = CampaignFolder(place) if (place / RECORD).is_file() else place
    said = adopt(about, ledger, reason=reason, despite=despite)
    out.print(said, markup=False)


@ledger_app.command("key", epilog="Example: dpal ledger key --pem > owner.pem")
def ledger_key(
    anchors: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the key lies, if runtime.anchors says so."),
    ] = None,
    pem: Annotated[
        bool, typer.Option("--pem", help="Print a PEM file, to be saved and handed on.")
    ] = False,
) -> None:
    """Print the public key by which this machine signs ledgers, certificates and exports.

    Whoever is to check them needs it from you, over another channel than the files.
    """
    from dpal.certificate.dsse import as_pem, fingerprint

    key = own_key(anchors)
    if pem:
        typer.echo(as_pem(key), nl=False)
        return
    out.print(f"public key   {key}")
    out.print(f"fingerprint  {fingerprint(key)}")
    out.print(f"for others   dpal verify certificate.json --key {key}")
