"""What `dpal simulate` runs and shows: selections on simulated scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dpal.errors import DpalError, ParameterError
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.planning.certify_campaign import certified_plan
from dpal.randomness import secure, seeded
from dpal.reports.intervals import TOGETHER
from dpal.reports.plots.simulation import hits_figure, scores_figure
from dpal.reports.plots.style import save
from dpal.reports.report import Table
from dpal.simulation.paired_comparison import (
    PairedComparison,
    compare_with_reference,
    estimate_mean,
)
from dpal.simulation.selections import (
    ScoreModel,
    SimulatedPhase,
    simulate_mechanisms,
    simulate_mode,
    with_selection_mode,
)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Simulated selections of a campaign.

    Attributes:
      records: one a phase and mechanism, averaged over runs: hits with the half width of their
        95 % confidence interval, and beside a random draw of the same simulated scores.
      refused: why a mode has none.
      last: one run of the last, smallest query by each mode and by chance.
    """

    records: list[dict[str, Any]]
    refused: dict[str, str]
    last: dict[str, SimulatedPhase]


def simulate_modes(spec: CampaignSpec, model: ScoreModel, *, runs: int) -> Simulated:
    """Simulates every mode of a campaign, the paper's mechanisms, and chance."""
    records: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    last: dict[str, SimulatedPhase] = {}
    modes = tqdm([*SelectionMode], desc="planning", unit="mode", disable=None, leave=False)
    for mode in modes:
        try:
            certified = certified_plan(with_selection_mode(spec, mode))
        except DpalError as error:
            refused[mode.value] = str(error)
            continue
        for run in range(runs):
            rng = seeded(run, "simulated scores")
            for phase in simulate_mode(certified.plan, model, rng=rng, noise=secure()):
                records.append({**_flat(phase, run), "epsilon": certified.epsilon})
                last[phase.mechanism] = phase
    for run in range(runs):
        rng = seeded(run, "simulated scores")
        paper = with_selection_mode(spec, SelectionMode.PAPER)
        for phase in simulate_mechanisms(paper, model, rng=rng, noise=secure()):
            records.append({**_flat(phase, run), "epsilon": None})
            if phase.mechanism == "random":
                last[phase.mechanism] = phase
    return Simulated(records=_averaged(records), refused=refused, last=last)


def quality_table(records: Sequence[Mapping[str, Any]], figure: str, title: str) -> Table:
    """One row a mechanism, one column a phase."""
    phases = sorted({record["phase"] for record in records})
    rows = []
    for name in dict.fromkeys(record["mechanism"] for record in records):
        own = {record["phase"]: record for record in records if record["mechanism"] == name}
        rows.append(
            (
                name if own[phases[0]]["certified"] else f"{name} (one selection)",
                *(_cell(own[phase], figure) for phase in phases),
            )
        )
    return Table(title, ("mechanism", *(f"phase {phase}" for phase in phases)), tuple(rows))


def write_figures(simulated: Simulated, folder: Path, title: str) -> list[Path]:
    """Draws the hits by phase, and whose scores the last selection picked."""
    last = simulated.last
    figures = {
        "hits.png": hits_figure(simulated.records, title),
        "scores.png": scores_figure(
            last["random"].scores,
            {name: phase.selected for name, phase in last.items()},
            f"{title}: last query",
        ),
    }
    for name, figure in figures.items():
        save(figure, folder / name)
    return [folder / name for name in figures]


def parse_scores(text: str) -> ScoreModel:
    """Reads "beta:ALPHA,BETA".

    Raises:
      ParameterError: it is something else.
    """
    kind, _, numbers = text.partition(":")
    try:
        alpha, beta = (float(number) for number in numbers.split(","))
    except ValueError:
        alpha = beta = float("nan")
    if kind != "beta" or not (0 < alpha < np.inf and 0 < beta < np.inf):
        raise ParameterError(f"--scores is {text!r}; use beta:ALPHA,BETA such as beta:0.3,2")
    return ScoreModel(alpha=alpha, beta=beta)


def hits_comparison_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Hits of every mechanism and phase beside those of a random draw, in words."""
    rows = tuple(
        (record["mechanism"], str(record["phase"]), record["hits_beside_random"]["in_words"])
        for record in records
        if record["hits_beside_random"]
    )
    return Table(
        f"Hits beside a random draw of the same scores; of a phase, {TOGETHER}",
        ("mechanism", "phase", "hits"),
        rows,
    )


def _cell(record: Mapping[str, Any], figure: str) -> str:
    if figure == "selected":
        return f"{record[figure]:,.0f}"
    half = record["hits_half_width"] if figure == "hits" else None
    return f"{record[figure]:.3f}" + (f" ± {half:.3f}" if half is not None else "")


def _flat(phase: SimulatedPhase, run: int) -> dict[str, Any]:
    own = {"phase": phase.phase, "mechanism": phase.mechanism, "certified": phase.certified}
    return {**asdict(phase.quality), **own, "run": run}


def _averaged(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["mechanism"], record["phase"]), []).append(record)
    compared = {phase: _compared(groups, phase) for phase in {phase for _, phase in groups}}
    averaged = []
    for (mechanism, phase), group in groups.items():
        mean = {key: value for key, value in group[0].items() if key != "run"}
        for key, value in group[0].items():
            if isinstance(value, float) and key != "epsilon":
                mean[key] = float(np.mean([run[key] for run in group]))
        mean["selected"] = float(np.mean([run["selected"] for run in group]))
        mean["runs"] = len(group)
        mean["hits_half_width"] = estimate_mean([run["hits"] for run in group]).half_width
        comparison = compared[phase].get(mechanism)
        mean["hits_beside_random"] = comparison.as_record() if comparison else None
        averaged.append(mean)
    return averaged


def _compared(
    groups: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]], phase: int
) -> dict[str, PairedComparison]:
    hits = {
        mechanism: {record["run"]: record["hits"] for record in group}
        for (mechanism, of_phase), group in groups.items()
        if of_phase == phase
    }
    return compare_with_reference(hits, "random")
