"""`dpal simulate` and `dpal rehearse`: on simulated scores, and on data that is public."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpal.errors import ConfigError, ParameterError
from dpal.files.atomic_writes import atomic_write
from dpal.privacy import Unit
from dpal.simulation.evaluation_parts import EvaluationPart
from flows.cli.read_settings import ConfigFile, Settings, load_config
from flows.cli.terminal import out, print_table

EXAMPLE = "Example: dpal simulate clinic.yaml --scores beta:0.3,2"
REHEARSE_EXAMPLE = "Example: dpal rehearse public.yaml --public --runs 5"

_METHODS = "random,paper,visible,hidden,exact"


def simulate(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    pool_size: Annotated[
        int | None, typer.Option(help="Records in the pool; read from data.pool if left out.")
    ] = None,
    scores: Annotated[
        str, typer.Option(metavar="beta:A,B", help="Distribution of the scores in [0, 1].")
    ] = "beta:0.3,2",
    runs: Annotated[int, typer.Option(min=1, help="Repetitions to average.")] = 3,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show whom each way of selecting would find, on simulated scores. Reads no record."""
    config = load_config(file, settings)
    from flows.cli import simulate_view as view

    model = view.parse_scores(scores)
    if pool_size is None:
        from dpal.runs.prepare_campaign import open_data

        spec = open_data(config).spec
    else:
        if config.privacy.unit is Unit.GROUP:
            raise ParameterError(
                "the plan protects groups, and --pool-size is of single records, whose figures "
                "would be too good; leave --pool-size out, and data.pool says how many groups "
                "there are"
            )
        spec = config.to_spec(pool_size=pool_size, input_shape=(1, 28, 28), classes=10)
    if not spec.selects:
        raise ConfigError(
            f"acquisition {spec.acquisition} looks at no scores, and dpal simulate shows whom "
            "scores find; name one that scores records, such as --set acquisition=entropy"
        ).about("acquisition", spec.acquisition.value)
    simulated = view.simulate_modes(spec, model, runs=runs)
    records, refused = simulated.records, simulated.refused
    target = spec.target
    promise = (
        f"epsilon {target.epsilon:g}, delta {target.delta:.3g}, {target.adjacency}, "
        f"unit {target.unit}"
    )
    if as_json:
        promised: dict[str, Any] = {"epsilon": target.epsilon, "delta": target.delta}
        promised |= {"adjacency": target.adjacency.value, "unit": target.unit.value}
        typer.echo(json.dumps({**promised, "selections": records, "refused": refused}, indent=2))
        return
    out.print(f"simulated scores {scores}, pool of {spec.pool_size:,}; campaign at {promise}")
    for figure, title in (
        ("hits", "Share of the selected in the true top k, with its 95 % confidence interval"),
        ("iou", "Intersection over union with the true top k"),
        ("mse", "Mean squared difference of scores from the true top k"),
        ("mean_score", "Mean score of the selected"),
        ("selected", "Records selected"),
    ):
        print_table(view.quality_table(records, figure, title))
    if runs > 1:
        print_table(view.hits_comparison_table(records))
    for mode, reason in refused.items():
        out.print(f"{mode}: {reason}", markup=False)
    if plots:
        for path in view.write_figures(simulated, plots, f"Selections at {promise}"):
            out.print(f"wrote {path}")


def rehearse_command(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    public: Annotated[
        bool, typer.Option("--public", help="I declare that the pool and its labels are public.")
    ] = False,
    methods: Annotated[
        str, typer.Option(help="Ways of selecting, separated by commas; exact is not private.")
    ] = _METHODS,
    runs: Annotated[int, typer.Option(min=1, help="Repetitions of each.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
    long_tail: Annotated[
        float, typer.Option(help="Keep a record of class c with chance LONG_TAIL**c.")
    ] = 1.0,
    part: Annotated[
        EvaluationPart,
        typer.Option(
            help="Part of data.validation that figures are of: choose settings on validation, and "
            "look at test once they are chosen."
        ),
    ] = EvaluationPart.VALIDATION,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write every run's figures and comparisons."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write a figure.")] = None,
) -> None:
    """Try ways of selecting on PUBLIC data: accuracy and who was found. Keeps no ledger.

    Several runs are averaged, with 95 % confidence intervals, and compared run by run: same
    initial weights, same initial cohort.
    """
    if not public:
        raise ParameterError(
            "a rehearsal shows labels' worth and exact scores of its pool, so the pool must be "
            "public; say so with --public, or run the campaign with: dpal run"
        )
    if not 0 < long_tail <= 1:
        raise ParameterError(f"--long-tail is {long_tail:g}; use a number above 0, at most 1")
    config = load_config(file, settings)
    from dpal.reports.rehearsal_summary import (
        rehearsal_comparison_table,
        rehearsal_summary,
        rehearsal_table,
    )
    from dpal.runs.rehearsed_plan import require_rehearsable_settings
    from dpal.simulation.rehearsal import RehearsalMethod
    from flows.cli.run_rehearsals import Rehearsal, run_rehearsals, write_figure

    require_rehearsable_settings(config)
    method_names = [method.value for method in RehearsalMethod]
    chosen = list(dict.fromkeys(name.strip() for name in methods.split(",")))
    for name in chosen:
        if name not in method_names:
            raise ParameterError(f"--methods has {name!r}; choose of {', '.join(method_names)}")
    wanted = [
        Rehearsal(
            config=config, method=RehearsalMethod(name), run=run, long_tail=long_tail, part=part
        )
        for run in range(runs)
        for name in chosen
    ]

    def keep(records: list[dict[str, Any]]) -> None:
        if output:
            with atomic_write(output) as temporary:
                shown = json.dumps(rehearsal_summary(records), indent=1)
                temporary.write_text(shown + "\n", encoding="utf-8")

    records, refused = run_rehearsals(wanted, jobs=jobs, on_records=keep)
    if not records:
        raise ParameterError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    for name, reason in refused.items():
        out.print(f"{name}: {reason}", markup=False)
    first = records[0]
    out.print(
        f"{config.name}: delta {first['delta']:.3g}, adjacency {first['adjacency']}, unit "
        f"{first['unit']}; public data, no ledger, nothing of it is a release"
    )
    print_table(rehearsal_table(records))
    if (comparisons := rehearsal_comparison_table(records)).rows:
        print_table(comparisons)
    if RehearsalMethod.EXACT.value in chosen:
        out.print("exact is NOT PRIVATE: a reference, never part of a campaign")
    if output:
        out.print(f"wrote {output}")
    if plots:
        out.print(f"wrote {write_figure(records, plots)}")
