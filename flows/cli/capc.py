"""`dpal capc`: votes between sites that do not trust each other, a command for each party."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.errors import ConfigError
from flows.cli.read_settings import read_values
from flows.cli.terminal import out, print_table

if TYPE_CHECKING:  # numpy waits until it is needed
    from dpal.config.capc import SitesVoteConfig

capc_app = typer.Typer(
    help="Votes between sites that do not trust each other (docs/capc.md).", no_args_is_help=True
)

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings of this party.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Keys = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the party's key.")]
AuthorityDir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the authority.")]

_REMEDY = "docs/capc.md shows what each party's file says"


@capc_app.command("authority", epilog="Example: dpal capc authority authority --name hospitals")
def authority_command(
    folder: AuthorityDir,
    name: Annotated[str, typer.Option(help="What its certificate calls it.")],
) -> None:
    """Make a certificate authority: who enrols the parties of a vote."""
    from dpal.capc.certificate_authority import AUTHORITY, REVOKED, make_authority

    make_authority(folder, name)
    out.print(
        f"{folder}: give {AUTHORITY} and {REVOKED} to every party, and its key to nobody",
        markup=False,
    )


@capc_app.command("key", epilog="Example: dpal capc key north-keys --name north --role site")
def key_command(
    folder: Keys,
    name: Annotated[str, typer.Option(help="Of the party, as the vote's settings say it.")],
    role: Annotated[str, typer.Option(help="guardian, site or querier.")],
) -> None:
    """Make a party's key, which stays here, and a request for its certificate."""
    from dpal.capc.certificate_authority import REQUEST, PartyRole, make_key, request_fingerprint

    if role not in set(PartyRole):
        raise ConfigError(f"--role {role} is none; use {', '.join(PartyRole)}")
    request = make_key(folder, name, PartyRole(role))
    out.print(f"{folder / REQUEST}: send it to the authority", markup=False)
    out.print(
        f"fingerprint, to be told over another channel: {request_fingerprint(request)}",
        markup=False,
    )


@capc_app.command(
    "enrol", epilog="Example: dpal capc enrol authority request.pem --fingerprint '1f0c 27ab ...'"
)
def enrol_command(
    folder: AuthorityDir,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="From dpal capc key.")],
    fingerprint: Annotated[
        str, typer.Option(help="Of the request, as the party told it over another channel.")
    ] = "",
) -> None:
    """Say whose request it is; sign it, where --fingerprint is what the party says of it."""
    from dpal.capc.certificate_authority import CERTIFICATE, enrol, requested

    name, role, found = requested(request)
    out.print(f"{request}: the {role} {name}, fingerprint {found}", markup=False)
    if not fingerprint:
        raise ConfigError(
            "nothing is signed yet; have the party read its fingerprint to you, and name what it "
            "says: --fingerprint '...'"
        )
    place = enrol(folder, request, fingerprint)
    out.print(f"{place}: the party keeps it as {CERTIFICATE} beside its key", markup=False)


@capc_app.command(
    "revoke", epilog="Example: dpal capc revoke authority authority/issued/north-1f.pem"
)
def revoke_command(
    folder: AuthorityDir,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE")],
) -> None:
    """List a certificate as one that counts no more."""
    from dpal.capc.certificate_authority import REVOKED, revoke

    listed = revoke(folder, certificate)
    out.print(
        f"{folder / REVOKED} lists {listed}: copy it beside the key of every party", markup=False
    )


@capc_app.command("plan", epilog="Example: dpal capc plan --config vote.yaml")
def plan_vote_command(config: Config, as_json: AsJson = False) -> None:
    """Say what a vote costs: epsilon by who may collude, bytes of every party."""
    from dpal.capc.batch_costs import certified_account
    from dpal.reports.sites_vote_costs import sites_vote_facts, sites_vote_tables

    vote = _vote(config)
    certified = certified_account(vote.name, vote.terms())
    facts = sites_vote_facts(certified, vote.terms())
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for table in sites_vote_tables(facts):
        print_table(table)


@capc_app.command("guardian", epilog="Example: dpal capc guardian --config guardian.yaml")
def guardian_command(config: Config) -> None:
    """Guard a vote: deal keys, add up what nobody can read, keep account. Stop it by Ctrl-C."""
    from dpal.config.capc import GuardianConfig, parse_capc
    from dpal.runs.sites_parties import run_guardian

    own = parse_capc(GuardianConfig, read_values(config, _REMEDY), config.parent)
    run_guardian(_vote(own.vote), own, _say)


@capc_app.command("site", epilog="Example: dpal capc site --config north.yaml")
def site_command(config: Config) -> None:
    """Answer with a private model, for as long as it runs. Stop it by Ctrl-C."""
    from dpal.config.capc import SiteConfig, parse_capc
    from dpal.runs.sites_parties import run_site

    own = parse_capc(SiteConfig, read_values(config, _REMEDY), config.parent)
    run_site(_vote(own.vote), own, _say)


@capc_app.command("spent", epilog="Example: dpal capc spent --config north.yaml")
def spent_command(config: Config, as_json: AsJson = False) -> None:
    """Say what a site has voted in, and what that may tell, by its own account."""
    from dpal.capc.site_account import SiteAccount
    from dpal.config.capc import SiteConfig, parse_capc
    from dpal.reports.sites_vote_costs import site_account_table

    own = parse_capc(SiteConfig, read_values(config, _REMEDY), config.parent)
    facts = SiteAccount(own.account, _vote(own.vote).terms()).spent()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    print_table(site_account_table(own.site, facts))


@capc_app.command(
    "train",
    epilog="Example: dpal capc train --vote vote.yaml --records own.parquet --to model.safetensors",
)
def train_command(
    vote: Annotated[Path, typer.Option(metavar="FILE", help="Settings of the vote.")],
    records: Annotated[
        Path, typer.Option(metavar="FILE", help="Own records: id, features, label or labels.")
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="The model; private.")],
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was asked, with --answers.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What came of it: more records.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Records that say how good it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a site's private heads on its own records, and on answers that it bought."""
    from dpal.runs.site_model import train_site

    if (queries is None) is not (answers is None):
        raise ConfigError("bought labels are --queries and --answers together; name both or none")
    bought = None if queries is None or answers is None else (queries, answers)
    found = train_site(_vote(vote).terms(), records, to, bought=bought, test=test)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    out.print(f"{to}: trained on {found['records']:,} records", end="", markup=False)
    out.print(f" and {found['bought']:,} answers" if bought else "", markup=False)
    if test is not None:
        told = f"balanced accuracy on {test}: {100 * found['balanced_accuracy']:.1f} %"
        if bought:
            told += f", without answers {100 * found['balanced_accuracy_without_bought']:.1f} %"
        out.print(told, markup=False)


@capc_app.command("query", epilog="Example: dpal capc query --config ministry.yaml")
def query_command(config: Config) -> None:
    """Ask private queries; only those without an answer yet, so it may be run again."""
    from dpal.config.capc import QuerierConfig, parse_capc
    from dpal.runs.sites_parties import run_querier

    own = parse_capc(QuerierConfig, read_values(config, _REMEDY), config.parent)
    answers = run_querier(_vote(own.vote), own, _say)
    out.print(str(answers), markup=False)


@capc_app.command("retrain", epilog="Example: dpal capc retrain --config ministry.yaml")
def retrain_command(config: Config) -> None:
    """Ask private queries, learn from the answers, report; only what has no answer is asked."""
    from dpal.config.capc_retraining import parse_retraining
    from flows.cli.capc_retraining import retrain_here

    retrain_here(parse_retraining(read_values(config, _REMEDY), config.parent))


@capc_app.command("cnn", epilog="Example: dpal capc cnn --config cnn.yaml")
def cnn_command(config: Config) -> None:
    """Evaluate a site's small net on private images, with who asks, site and guardian at once."""
    from dpal.config.capc import CnnConfig, parse_capc
    from flows.cli.capc_cnn import run_sidecar

    run_sidecar(parse_capc(CnnConfig, read_values(config, _REMEDY), config.parent), _say)


@capc_app.command("demo", epilog="Example: dpal capc demo --folder artifacts/capc-demo")
def demo_command(
    folder: Annotated[Path, typer.Option(help="New; all files of all parties lie in it.")] = Path(
        "artifacts/capc-demo"
    ),
    data: Annotated[Path, typer.Option(help="The sample data.")] = Path("data"),
) -> None:
    """Let five sites vote on the sample data, with a process for every party."""
    from flows.cli.capc_demo import run_demo

    page = run_demo(folder, data, _say)
    out.print(f"page: {page}", markup=False)


def _vote(file: Path) -> SitesVoteConfig:
    from dpal.config.capc import SitesVoteConfig, parse_capc

    return parse_capc(SitesVoteConfig, read_values(file, _REMEDY), file.parent)


def _say(line: str) -> None:
    out.print(line, markup=False)
