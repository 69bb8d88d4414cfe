"""What `dpal vote` shows: a plan, a sweep, advice, or what was released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.cost_analysis import (
    ORDERS,
    Mode,
    VoteCostKind,
    analyse,
    claim_of,
)
from dpal.errors import ConfigError, ParameterError
from dpal.planning.vote_thresholds import choose_threshold
from dpal.planning.voting_plan import VotingSpec, equal_blocks, least_sigma, most_queries, total_of
from dpal.reports.report import Table
from dpal.reports.vote_report import (
    EXPECTED_NOTE,
    PRIVATE_NOTE,
    expected_table,
    modes_table,
    rule_words,
    sweep_table,
    vote_cost_table,
)
from dpal.runs.vote_request import VoteRequest
from dpal.voting.ballots import Ballots, votes_for
from dpal.voting.expected_answers import expected_answers, expected_with_gate
from dpal.voting.flip_rate import turned_by_noise
from dpal.voting.gate_label_first import Dependencies
from flows.cli.sweep_values import sweep_values

_SWEPT = ("sigma", "limit", "epsilon", "queries", "answer_from", "threshold", "threshold_sigma")
_CHECK = ("threshold", "threshold_sigma")
_MOST_POINTS = 100
Truth = NDArray[np.int64]


@dataclass(frozen=True)
class VoteCostView:
    """What is printed, and the same as JSON."""

    record: Mapping[str, Any]
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()


def vote_cost_view(
    request: VoteRequest, *, private: bool, truth: Truth | None = None
) -> VoteCostView:
    """What the queries would cost. Releases nothing."""
    summary = request.certified().summary()
    rows, notes = modes_of(request, private)
    record = {**summary, "modes": rows}
    tables = [vote_cost_table(summary), table_of_modes(rows)]
    if private:
        expected = _expected(request, request.spec, request.ballots.queries, truth)
        record |= {"private": PRIVATE_NOTE, "expected": expected}
        tables.append(expected_table([expected]))
        notes = (*notes, EXPECTED_NOTE)
    return VoteCostView(
        record=record,
        tables=tuple(tables),
        lines=(
            rule_words(summary),
            *notes,
            "nothing was released; give the account a --name to release",
        ),
    )


def vote_sweep_view(
    request: VoteRequest, texts: Sequence[str], *, private: bool, truth: Truth | None = None
) -> VoteCostView:
    """Costs over the values of one setting, or of several together. Releases nothing."""
    swept = dict(map(sweep_values, texts))
    if len(swept) < len(texts):
        raise ConfigError.before_release("--sweep names one setting twice")
    for key, values in swept.items():
        if key not in _SWEPT:
            raise ConfigError.before_release(f"--sweep {key} is none of {', '.join(_SWEPT)}")
        if not all(isinstance(value, int | float) for value in values):
            raise ConfigError.before_release(f"--sweep {key} takes numbers")
    if "answer_from" in swept and set(_CHECK) & set(swept):
        raise ConfigError.before_release(
            "answer_from chooses the threshold and its noise; sweep one or the other"
        )
    checked = [key for key in _CHECK if key in swept or getattr(request, key) is not None]
    if len(checked) == 1:
        raise ConfigError.before_release(
            "a threshold and its noise belong together; give the other one, too, as an option or "
            "as a --sweep of its own"
        )
    points = prod(map(len, swept.values()))
    if points > _MOST_POINTS:
        raise ConfigError.before_release(
            f"--sweep asks for {points:,} combinations, and {_MOST_POINTS} at most are shown"
        )
    rows = [
        _point(request, dict(zip(swept, map(float, values), strict=True)), private, truth)
        for values in product(*swept.values())
    ]
    record: dict[str, Any] = {"keys": list(swept), "rows": rows}
    tables = [sweep_table(tuple(swept), rows)]
    if len(swept) == 1:
        record["key"] = next(iter(swept))
    if private:
        record |= {"private": PRIVATE_NOTE, "expected": EXPECTED_NOTE}
        found, settings = ([row[name] for row in rows] for name in ("expected", "values"))
        tables.append(expected_table(found, settings))
    return VoteCostView(
        record=record,
        tables=tuple(tables),
        lines=(*((PRIVATE_NOTE, EXPECTED_NOTE) if private else ()), "nothing was released"),
    )


def _point(
    request: VoteRequest, values: Mapping[str, float], private: bool, truth: Truth | None
) -> dict[str, Any]:
    queries = int(values.get("queries", request.ballots.queries))
    changed: dict[str, Any] = {key: one for key, one in values.items() if key != "queries"}
    swept_request = request.changed(**changed) if changed else request
    spec = swept_request.spec
    if "queries" in values or spec.gate is None:
        spec = replace(spec, blocks=equal_blocks(queries, request.blocks or 1))
    if swept_request.answer_from is not None:
        if "queries" in values:  # of others than the request's own, which are fitted already
            spec = replace(spec, rule=choose_threshold(spec, swept_request.answer_from))
    elif swept_request.sigma is None:
        spec = replace(spec, rule=replace(spec.rule, sigma=least_sigma(spec, sum(spec.blocks))))
    row: dict[str, Any] = {
        **({"value": next(iter(values.values()))} if len(values) == 1 else {}),
        "values": dict(values),
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
        row["turned"] = turned_by_noise(spec.rule, asked)
        row["expected"] = _expected(swept_request, spec, queries, truth)
        row |= row["expected"].pop("epsilons")
    return row


def _expected(
    request: VoteRequest, spec: VotingSpec, queries: int, truth: Truth | None
) -> dict[str, Any]:
    """What the leading queries cost by these votes, how many epsilon pays for, and their answers.

    Answers are those of queries that are paid for by `exact`. Private.
    """
    if spec.gate is not None:
        return _expected_with_gate(request, spec, truth)
    asked = request.ballots.rows(slice(0, queries))
    votes, target = votes_for(spec.rule, asked), spec.target
    earlier = [charge.event for release in spec.before.releases for charge in release.charges]
    epsilons, paid_for = {}, {}
    for mode in (Mode.EXACT, Mode.PAPERNOT):
        analysis = analyse(spec.rule, votes, mode=mode, delta=target.delta)
        epsilons[mode.value] = float(analysis.epsilons[-1]) if analysis.epsilons.size else 0.0
        if earlier:
            delta = target.delta - sum(event.delta for event in earlier)
            spent = sum((event.second_renyi(ORDERS) for event in earlier), np.zeros(ORDERS.size))
            analysis = analyse(spec.rule, votes, mode=mode, delta=delta, spent=spent)
        paid_for[mode.value] = analysis.within(target.epsilon)
    some = slice(0, paid_for[Mode.EXACT.value])
    figures = expected_answers(spec.rule, asked.rows(some), None if truth is None else truth[some])
    found = asdict(figures)
    if truth is None:
        found = {"answers": figures.answers}
    elif request.cast.single_label:
        del found["average_precision"]
    return {
        "kind": VoteCostKind.EXPECTATION.value,
        "epsilon": target.epsilon,
        "asked": len(votes),
        "epsilons": epsilons,
        "paid_for": paid_for,
        **found,
    }


def _expected_with_gate(
    request: VoteRequest, spec: VotingSpec, truth: Truth | None
) -> dict[str, Any]:
    """How many queries a gate has answered by what one block is sure to pay for. Private."""
    ballots = request.ballots
    if spec.gate is None or not isinstance(ballots, Ballots):
        raise ParameterError("only labels have a gate")
    dependencies = Dependencies(gate=spec.gate, dependents=spec.dependents)
    answers = spec.blocks[0] * spec.rule.labels
    queries, figures = expected_with_gate(spec.rule, ballots, dependencies, answers, truth)
    return {
        "kind": VoteCostKind.EXPECTATION.value,
        "epsilon": spec.target.epsilon,
        "asked": ballots.queries,
        "queries": queries,
        "epsilons": {},
        "paid_for": {"without a gate, whatever the votes are": spec.blocks[0]},
        **({"answers": figures.answers} if truth is None else asdict(figures)),
    }


def modes_of(request: VoteRequest, private: bool) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The same queries, counted in several ways; and what must be said beside it."""
    spec = request.spec
    # With a gate fewer labels are asked than all of these, so that their own cost says nothing.
    gated = spec.gate is not None
    ballots = request.ballots.rows(slice(0, spec.blocks[0])) if gated else request.ballots
    votes = votes_for(spec.rule, ballots)
    modes = [Mode.DATA_INDEPENDENT, Mode.SHARPENED]
    modes += [Mode.EXACT, Mode.PAPERNOT] if private and not gated else []
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
