"""The `dpal` command."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import dpal
from dpal.config.campaign import parse_config
from dpal.errors import ConfigError, DataError
from dpal.reports.report import Table
from dpal.reports.validation_figures import headline, percent
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, KINDS, VOTING, parse_any, recorded_kind
from flows.cli.allow import EXAMPLE as ALLOW_EXAMPLE
from flows.cli.allow import allow
from flows.cli.audit import audit_command
from flows.cli.compare import EXAMPLE as COMPARE_EXAMPLE
from flows.cli.compare import compare
from flows.cli.data import data_app
from flows.cli.deploy import EXAMPLE as DEPLOY_EXAMPLE
from flows.cli.deploy import deploy
from flows.cli.folders import CampaignDir, campaign_folder
from flows.cli.label import COLLECT_EXAMPLE, LABEL_EXAMPLE, collect, label
from flows.cli.ledger import ledger_app
from flows.cli.plan import plan_command
from flows.cli.promote import EXAMPLE as PROMOTE_EXAMPLE
from flows.cli.promote import promote_command
from flows.cli.restore import EXAMPLE as RESTORE_EXAMPLE
from flows.cli.restore import restore
from flows.cli.serve import EXAMPLE as SERVE_EXAMPLE
from flows.cli.serve import serve
from flows.cli.settings import ConfigFile, Settings, load_config, load_values
from flows.cli.simulate import rehearse_command, simulate
from flows.cli.terminal import out, prepare_process, print_table, run_and_explain_errors
from flows.cli.verify import verify_command
from flows.cli.vote import EXAMPLE as VOTE_EXAMPLE
from flows.cli.vote import vote_command
from flows.cli.watch import watch_command
from flows.cli.worker import EXAMPLE as WORKER_EXAMPLE
from flows.cli.worker import worker

if TYPE_CHECKING:
    from dpal.files.artifacts import CampaignFolder

# Heavy imports (torch, prefect, mlflow) wait inside of the commands: `dpal --help` is quick.

app = typer.Typer(
    name="dpal",
    help="Differentially private active learning with a ledger that adds up.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")
_SWEEP = "privacy.epsilon=2:8:2"

Redraw = Annotated[
    list[str],
    typer.Option(
        "--redraw",
        metavar="RELEASE",
        help="Throw away what an unfinished training persisted (such as phase-2/training), start "
        "it over, and charge it a second time; a plan usually spends all of its promise, so "
        "that this rarely fits, and is refused then. Repeatable.",
    ),
]

Sweep = Annotated[
    list[str],
    typer.Option(
        "--sweep",
        metavar="KEY=a,b,c",
        help="Run once for each value (or START:STOP:STEP), each under a promise of its own: what "
        "they cost the same records adds up, unless a data set counts it. The first --sweep is "
        "the horizontal axis, further ones are lines. Repeatable.",
    ),
]
Repeat = Annotated[
    list[str],
    typer.Option(
        "--repeat",
        metavar="KEY=a,b,c",
        help="Runs over which a sweep is averaged, such as model.seed=0,1,2. Repeatable.",
    ),
]
RUN_EXAMPLES = (
    "Example: dpal run clinic.yaml --set privacy.epsilon=3; dpal run public.yaml --sweep "
    "choice.labels=1000,3000 --sweep choice.method=random,diverse_public --repeat model.seed=0,1,2"
)

_CONFIGS = Path(__file__).parent.parent / "configs"
_TEMPLATES = ", ".join(kind.name for kind in KINDS.values() if kind.template)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        out.print(f"dpal {dpal.__version__}")
        raise typer.Exit


@app.command(epilog="Example: dpal init clinic && dpal plan clinic.yaml")
def init(
    name: Annotated[str, typer.Argument(help="Name of the campaign.")],
    of_kind: Annotated[
        str | None,
        typer.Option("--kind", help=f"What to run: {_TEMPLATES}.", show_default=CAMPAIGN.name),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="The same as --kind public.")] = False,
    votes: Annotated[bool, typer.Option("--pate", help="The same as --kind pate.")] = False,
) -> None:
    """Write a commented configuration to start from."""
    parse_config({"name": name})
    short = {IMPROVEMENT.name: public, VOTING.name: votes}
    asked = {of_kind} - {None} | {kind for kind, chosen in short.items() if chosen}
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(sorted(map(str, asked)))} are two kinds; choose one")
    kind = KINDS.get(str(asked.pop() if asked else CAMPAIGN.name))
    if kind is None or not kind.template:
        raise ConfigError(f"there is no template of kind {of_kind}; choose {_TEMPLATES}")
    template = _CONFIGS / kind.template
    target = Path(f"{name}.yaml")
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name or remove it")
    # The comments above the name speak of the sample; a person's own file starts at the name.
    settings = template.read_text(encoding="utf-8").partition(f"name: {template.stem}")[2]
    header = f"# Look first: dpal plan {target}    Run: dpal run {target}\n\n"
    target.write_text(f"{header}{kind.line}name: {name}{settings}", encoding="utf-8")
    out.print(f"wrote {target}; name your own files in it, then: dpal plan {target}")


# Defined elsewhere; here for their place in `dpal --help`.
app.command("plan", epilog=f"Example: dpal plan clinic.yaml --sweep {_SWEEP} --plots figures")(
    plan_command
)
app.command(epilog="Example: dpal simulate clinic.yaml --scores beta:0.3,2")(simulate)
app.command("rehearse", epilog="Example: dpal rehearse public.yaml --public --runs 3")(
    rehearse_command
)
app.command("audit", epilog="Example: dpal audit artifacts/digits")(audit_command)
app.command(
    "verify", epilog="Example: dpal verify artifacts/digits --ledger artifacts/digits --key own"
)(verify_command)
app.command(epilog=COMPARE_EXAMPLE)(compare)
app.command("vote", epilog=VOTE_EXAMPLE)(vote_command)
app.command("promote", epilog=PROMOTE_EXAMPLE)(promote_command)
app.command(epilog=RESTORE_EXAMPLE)(restore)
app.command("watch", epilog="Example: dpal watch watch.yaml --once")(watch_command)
app.command(epilog=DEPLOY_EXAMPLE)(deploy)
app.command(epilog=SERVE_EXAMPLE)(serve)
app.command(epilog=ALLOW_EXAMPLE)(allow)
app.command(epilog=WORKER_EXAMPLE)(worker)
app.command(epilog=LABEL_EXAMPLE)(label)
app.command(epilog=COLLECT_EXAMPLE)(collect)


@app.command("run", epilog=RUN_EXAMPLES)
def run_command(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    redraw: Redraw = [],  # noqa: B006
    sweep: Sweep = [],  # noqa: B006
    repeat: Repeat = [],  # noqa: B006
) -> None:
    """Run what a configuration says, or continue it: a campaign unless it says another kind.

    kind: public improves a private model with public records, kind: pate lets teachers vote and a
    student learn, kind: vote releases votes on ballots. Prints its folder last. With --sweep it is
    run over values, and drawn: mean and standard deviation over what --repeat names.
    """
    values = load_values(file, settings)
    if sweep or repeat:
        from flows.cli.sweep import sweep_here

        sweep_here(values, sweep, repeat)
        return
    config = parse_any(values)
    from flows.cli.run import run_here  # its tables and figures wait for settings that hold

    run_here(config, redraw)


@app.command("end", epilog="Example: dpal end artifacts/digits")
def end_command(folder: CampaignDir) -> None:
    """End a run before its plan is done; what it held and did not use flows back."""
    from dpal.runs.execute import end

    ended = campaign_folder(folder)
    end(ended)
    called = recorded_kind(ended).in_titles
    out.print(f"{called} {ended.name} is ended; it can release nothing more", markup=False)


@app.command(epilog="Example: dpal status artifacts/digits")
def status(
    campaign: Annotated[
        Path | None, typer.Argument(help="Campaign folder; all if left out.")
    ] = None,
    artifacts: Annotated[Path, typer.Option(help="Folder of all campaigns.")] = Path("artifacts"),
) -> None:
    """Show how far campaigns are and what they wait for."""
    from dpal.files.artifacts import RECORD

    records = sorted(artifacts.glob(f"*/{RECORD}"))
    folders = (
        [campaign_folder(campaign)]
        if campaign
        else [campaign_folder(path.parent) for path in records]
    )
    if not folders:
        out.print(f"no campaigns under {artifacts}; start one: dpal run FILE")
        return
    rows = tuple(_progress(folder) for folder in folders)
    columns = ("campaign", "phases", "labels, up to", "validation", "epsilon", "state")
    print_table(Table("Campaigns", columns, rows))
    for folder in folders:
        query = folder.phase(len(folder.finished_phases())).query / "query.csv"
        if query.is_file():
            out.print(f"fill in {query}, then: dpal label {folder.root} {query}")
        elif query.parent.joinpath("projects.json").is_file():
            out.print(f"people label in Label Studio; how far they are: dpal label {folder.root}")


@app.command(epilog="Example: dpal report artifacts/digits")
def report(folder: CampaignDir) -> None:
    """Write the report of a run again from its files, and print its path.

    Of an account of teachers (dpal vote) it shows what was released, and what that cost.
    """
    from dpal.runs.report import make_report

    place = campaign_folder(folder)
    out.print(str(make_report(place)))


@app.command(epilog="Example: dpal doctor --config clinic.yaml")
def doctor(
    config: Annotated[Path | None, typer.Option(help="Check what this campaign needs.")] = None,
) -> None:
    """Check the installation, the servers and the data remote, and say what to do."""
    from flows.ops.doctor import examine

    settings = load_config(config, []) if config else parse_config({"name": "doctor"})
    problems = 0
    for finding in examine(settings):
        problems += bool(finding.advice)
        mark, style = ("!!", "red") if finding.advice else ("ok", "green")
        advice = f"  -> {finding.advice}" if finding.advice else ""
        out.print(f"[{style}]{mark}[/]  {finding.what:<12} ", end="")
        out.print(f"{finding.state}{advice}", markup=False)
    if problems:
        raise typer.Exit(2)


def _progress(folder: CampaignFolder) -> tuple[str, ...]:
    summary, phases = folder.read_record()["plan"], folder.finished_phases()
    total = len(summary["phases"])
    if not total:
        try:
            kind = recorded_kind(folder)
        except DataError as unknown:  # of a program that registers kinds of its own
            return folder.name, "-", "-", "-", f"{summary['epsilon']:.3f}", str(unknown)
        done, of = kind.use_cases().progress(folder)
        state = "finished" if folder.certificate.is_file() else "unfinished; run it again"
        return folder.name, f"{done}/{of}", "-", "-", f"{summary['epsilon']:.3f}", state
    reached = "-"
    if phases:
        name, value = headline(phases[-1])
        reached = f"{percent(value)} {name}"
    spent = phases[-1]["campaign_epsilon"] if phases else 0.0
    labels = f"{phases[-1]['labels']:,}" if phases else "0"
    current = folder.phase(len(phases))
    if len(phases) == total:
        state = "finished"
    elif current.query.is_dir() and not current.labels.exists():
        state = "waits for labels"
    else:
        state = "unfinished; the same `dpal run` continues it"
    return folder.name, f"{len(phases)}/{total}", labels, reached, f"{spent:.3f}", state


def main() -> None:
    """Entry point of the `dpal` command."""
    prepare_process()
    # Else Python looks for garbage, as it ends, among all that was imported: a second after a run.
    atexit.register(gc.freeze)
    command = typer.main.get_command(app)
    arguments = sys.argv[1:] or ["--help"]
    sys.exit(
        run_and_explain_errors(
            lambda: command.main(arguments, prog_name="dpal", standalone_mode=False),
            as_json="--json" in arguments,
        )
    )


if __name__ == "__main__":
    main()
