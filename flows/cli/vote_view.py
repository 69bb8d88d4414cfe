"""What `dpal vote` shows: a plan, a sweep, advice, or what was released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpal.accounting.votes.cost_analysis import Mode, analyse, claim_of
from dpal.errors import ConfigError
from dpal.planning.vote_thresholds import choose_threshold
from dpal.planning.voting_plan import equal_blocks, least_sigma, most_queries, total_of
from dpal.reports.report import Table
from dpal.reports.vote_report import (
    PRIVATE_NOTE,
    modes_table,
    rule_words,
    sweep_table,
    vote_cost_table,
)
from dpal.runs.vote_request import VoteRequest
from dpal.voting.ballots import votes_for
from dpal.voting.flip_rate import turned_by_noise
from flows.cli.sweep_values import sweep_values

_SWEPT = ("sigma", "limit", "epsilon", "queries", "answer_from")


@dataclass(frozen=True)
class VoteCostView:
    """What is printed, and the same as JSON."""

    record: Mapping[str, Any]
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()


def vote_cost_view(request: VoteRequest, *, private: bool) -> VoteCostView:
    """What the queries would cost. Releases nothing."""
    summary = request.certified().summary()
    rows, notes = modes_of(request, private)
    return VoteCostView(
        record={**summary, "modes": rows, **({"private": PRIVATE_NOTE} if private else {})},
        tables=(vote_cost_table(summary), table_of_modes(rows)),
        lines=(
            rule_words(summary),
            *notes,
            "nothing was released; give the account a --name to release",
        ),
    )


def vote_sweep_view(request: VoteRequest, text: str, *, private: bool) -> VoteCostView:
    """Costs over the values of one setting. Releases nothing."""
    key, values = sweep_values(text)
    if key not in _SWEPT:
        raise ConfigError.before_release(f"--sweep {key} is none of {', '.join(_SWEPT)}")
    if not all(isinstance(value, int | float) for value in values):
        raise ConfigError.before_release(f"--sweep {key} takes numbers")
    rows = [_point(request, key, float(value), private) for value in values]
    lines = [PRIVATE_NOTE] if private else []
    return VoteCostView(
        record={"key": key, "rows": rows, **({"private": PRIVATE_NOTE} if private else {})},
        tables=(sweep_table(key, rows),),
        lines=(*lines, "nothing was released"),
    )


def _point(request: VoteRequest, key: str, value: float, private: bool) -> dict[str, Any]:
    queries = request.ballots.queries
    if key == "queries":
        queries = int(value)
        swept_request = request
    else:
        changed: dict[str, Any] = {key: value}
        swept_request = request.changed(**changed)
    spec = replace(swept_request.spec, blocks=equal_blocks(queries, request.blocks or 1))
    if swept_request.answer_from is not None:
        if key == "queries":  # of others than the request's own, which are fitted already
            spec = replace(spec, rule=choose_threshold(spec, swept_request.answer_from))
    elif request.sigma is None and key != "sigma":
        spec = replace(spec, rule=replace(spec.rule, sigma=least_sigma(spec, sum(spec.blocks))))
    row: dict[str, Any] = {
        "value": value,
        "sigma": spec.rule.sigma,
        "epsilon": total_of(spec),
        "fit": most_queries(spec),
        "unanimous": spec.rule.unanimous_flip_probability,
    }
    if spec.rule.confidence is not None:
        checked = spec.rule.confidence
        row |= {"threshold": checked.threshold, "threshold_sigma": checked.sigma}
    if private:
        asked = request.ballots.rows(slice(0, queries))
        votes = votes_for(spec.rule, asked)
        row["turned"] = turned_by_noise(spec.rule, asked)
        for mode in (Mode.EXACT, Mode.PAPERNOT):
            analysis = analyse(spec.rule, votes, mode=mode, delta=spec.target.delta)
            row[mode.value] = float(analysis.epsilons[-1]) if analysis.epsilons.size else 0.0
    return row


def modes_of(request: VoteRequest, private: bool) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The same queries, counted in several ways; and what must be said beside it."""
    spec = request.spec
    votes = votes_for(spec.rule, request.ballots)
    modes = [Mode.DATA_INDEPENDENT, Mode.SHARPENED]
    modes += [Mode.EXACT, Mode.PAPERNOT] if private else []
    rows = []
    for mode in modes:
        analysis = analyse(spec.rule, votes, mode=mode, delta=spec.target.delta)
        epsilon = float(analysis.epsilons[-1]) if analysis.epsilons.size else 0.0
        rows.append({"mode": mode.value, "epsilon": epsilon,
                     "claim": str(claim_of(mode, spec.rule))})  # fmt: skip
    return rows, (PRIVATE_NOTE,) if private else ()


def table_of_modes(rows: list[dict[str, Any]]) -> Table:
    """Those as a table."""
    return modes_table([(row["mode"], row["epsilon"], row["claim"]) for row in rows])
