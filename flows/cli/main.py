"""The `dpal` command: its commands, in the order of `dpal --help`, each in the file of its name.

Two are beside another: `rehearse` in `simulate.py`, `collect` in `label.py`; `import`, which
Python keeps for itself, is in `importing.py`.
"""

from __future__ import annotations

import atexit
import gc
import sys
from functools import cache
from typing import Annotated, Any

import typer

import dpal
from flows.cli import (
    allow,
    audit,
    book,
    card,
    compare,
    demo,
    deploy,
    desk,
    doctor,
    end,
    importing,
    init,
    label,
    plan,
    predict,
    promote,
    ranks,
    report,
    restore,
    run,
    serve,
    simulate,
    status,
    verify,
    vote,
    watch,
    worker,
)
from flows.cli.capc import capc_app
from flows.cli.data import data_app
from flows.cli.ledger import ledger_app
from flows.cli.terminal import out, prepare_process, run_and_explain_errors

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
app.add_typer(capc_app, name="capc")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        out.print(f"dpal {dpal.__version__}")
        raise typer.Exit


app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("import", epilog=importing.EXAMPLE)(importing.import_command)
app.command("init", epilog=init.EXAMPLE)(init.init)
app.command("plan", epilog=plan.EXAMPLE)(plan.plan_command)
app.command("simulate", epilog=simulate.EXAMPLE)(simulate.simulate)
app.command("rehearse", epilog=simulate.REHEARSE_EXAMPLE)(simulate.rehearse_command)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit_command)
app.command("verify", epilog=verify.EXAMPLE)(verify.verify_command)
app.command("compare", epilog=compare.EXAMPLE)(compare.compare)
app.command("vote", epilog=vote.EXAMPLE)(vote.vote_command)
app.command("promote", epilog=promote.EXAMPLE)(promote.promote_command)
app.command("restore", epilog=restore.EXAMPLE)(restore.restore)
app.command("watch", epilog=watch.EXAMPLE)(watch.watch_command)
app.command("deploy", epilog=deploy.EXAMPLE)(deploy.deploy)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("allow", epilog=allow.EXAMPLE)(allow.allow)
app.command("worker", epilog=worker.EXAMPLE)(worker.worker)
app.command("ranks", epilog=ranks.EXAMPLE)(ranks.ranks_command)
app.command("desk", epilog=desk.EXAMPLE)(desk.desk)
app.command("label", epilog=label.LABEL_EXAMPLE)(label.label)
app.command("collect", epilog=label.COLLECT_EXAMPLE)(label.collect)
app.command("run", epilog=run.EXAMPLE)(run.run_command)
app.command("book", epilog=book.EXAMPLE)(book.book_command)
app.command("predict", epilog=predict.EXAMPLE)(predict.predict_command)
app.command("card", epilog=card.EXAMPLE)(card.card_command)
app.command("end", epilog=end.EXAMPLE)(end.end_command)
app.command("status", epilog=status.EXAMPLE)(status.status)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)


@cache
def _command() -> Any:
    """All commands as Click has them, made once a process."""
    return typer.main.get_command(app)


def main() -> None:
    """Entry point of the `dpal` command."""
    prepare_process()
    # What is imported stays: looking through it for garbage takes a sixth of the time to begin.
    gc.set_threshold(100_000, 50, 100)
    # Else Python looks for garbage, as it ends, among all that was imported: a second after a run.
    atexit.register(gc.freeze)
    arguments = sys.argv[1:] or ["--help"]
    sys.exit(
        run_and_explain_errors(
            lambda: _command().main(arguments, prog_name="dpal", standalone_mode=False),
            as_json="--json" in arguments,
        )
    )


if __name__ == "__main__":
    main()
