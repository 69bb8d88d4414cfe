"""`dpal plan`: what a campaign would do and cost, why, and how else it could be planned."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpal.config.campaign import CampaignConfig
from dpal.errors import ConfigError
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, VOTING, kind_in
from flows.cli.settings import ConfigFile, Settings, load_config, load_values
from flows.cli.terminal import err, out, show

if TYPE_CHECKING:
    from dpal.config.improvement import PublicConfig
    from dpal.config.voting import PateConfig
    from dpal.planning.plan import CertifiedPlan

_WIDTH = 96


def plan(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    explain: Annotated[
        bool, typer.Option("--explain", help="Say in words why the plan has its numbers.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="All strategies and ways to select, side by side.")
    ] = False,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=START:STOP:STEP", help="Plan over values; or KEY=a,b,c."),
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="What the paper's code plans, and really spends."),
    ] = False,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write figures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a campaign would do and cost. Releases nothing."""
    if sum((explain, compare, published, sweep is not None)) > 1:
        raise ConfigError(
            "--explain, --compare, --published and --sweep are different views of a campaign; "
            "ask for one at a time"
        )
    wishes = load_values(file, settings)
    kind = kind_in(wishes)
    if kind is not CAMPAIGN:
        if explain or compare or published or sweep is not None or plots is not None:
            raise ConfigError(
                "--explain, --compare, --published, --sweep and --plots are for campaigns; for "
                f"{_OTHER_VIEWS[kind.name]}"
            )
        _PLANNED[kind.name](kind.parse(wishes), as_json)
        return
    config = load_config(file, settings)
    err.print(f"planning {config.name} ...", style="dim")  # torch takes seconds to import
    from dpal.reports.summary import promise
    from dpal.runs.campaign_start import find_participants, plan_for
    from dpal.runs.prepare_campaign import open_data
    from flows.cli import plan_view, plans_view

    key, values = plans_view.parse_sweep(config, sweep) if sweep is not None else ("", [])
    opened = open_data(config)
    spec = opened.spec
    if compare:
        view = plans_view.compared(spec)
    elif published:
        view = plan_view.published(spec)
    else:
        participants = find_participants(config, opened.pool, opened.rows)

        def certified(wishes: CampaignConfig) -> CertifiedPlan:
            return plan_for(participants, opened.spec_of(wishes)).certified

        if key:
            view = plans_view.swept(config, spec, certified, key, values)
        else:
            view = plan_view.planned(
                certified(config),
                asked=config.strategy,
                explained=explain,
                remarks=opened.remarks,
            )
    record = dict(view.record)
    if plots is not None:
        record["plots"] = plan_view.draw(view.figures, plots)
    if as_json:
        # Not through the terminal's console, which breaks long lines.
        typer.echo(json.dumps(record, indent=2))
        return
    out.print(f"campaign {spec.name}: {promise(record)}", soft_wrap=True)
    for table in view.tables:
        show(table)
    for title, text in view.words:
        out.print(f"\n[bold]{title}[/]" if title else "")
        out.print(textwrap.fill(text, min(out.width, _WIDTH)), markup=False)
    for path in record.get("plots", ()):
        out.print(f"wrote {path}", markup=False, soft_wrap=True)


def _improvement(config: PublicConfig, as_json: bool) -> None:
    """The plan of an improvement: what it may release, and what that costs with its start."""
    from dpal.reports.improvement import choice_table, cost_table
    from dpal.reports.summary import promise
    from tasks.improvement import plan_improvement

    summary = plan_improvement(config).certified.summary()
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    out.print(f"improvement {config.name}: {promise(summary)}, the start included", soft_wrap=True)
    show(choice_table(summary))
    show(cost_table(summary))


def _votes(config: PateConfig, as_json: bool) -> None:
    """The plan of private voting: what teachers may be asked, and what that costs."""
    from dpal.reports.summary import promise, shares_table
    from dpal.reports.vote_tables import cost_table, rule_words
    from dpal.runs.ensemble import plan_ensemble

    ensemble = plan_ensemble(config)
    summary, data = ensemble.certified.summary(), ensemble.data
    if as_json:
        typer.echo(json.dumps({**summary, "data": data and data.record()}, indent=2))
        return
    out.print(f"private voting {config.name}: {promise(summary)}", soft_wrap=True)
    out.print(rule_words(summary))
    show(cost_table(summary))
    if data is not None:
        show(shares_table(data.record()))


_PLANNED: dict[str, Callable[[Any, bool], None]] = {
    IMPROVEMENT.name: _improvement,
    VOTING.name: _votes,
}
_OTHER_VIEWS = {
    IMPROVEMENT.name: "an improvement see dpal plan FILE, and dpal run FILE --sweep",
    VOTING.name: "votes see dpal plan FILE, and dpal vote BALLOTS --sweep or --explain",
}
