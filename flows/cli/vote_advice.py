"""What `dpal vote --explain` says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.data.ballot_files import public_labels, read_ballots
from dpal.errors import ConfigError, PlanRejected
from dpal.planning.vote_thresholds import answer_chance, choose_threshold
from dpal.planning.voting_plan import least_summary_sigma
from dpal.reports.report import Table
from dpal.reports.vote_report import (
    absence_table,
    advice_table,
    gate_table,
    recognition_words,
    threshold_table,
    vote_cost_table,
)
from dpal.runs.vote_request import VoteRequest
from dpal.voting.agreement_quantiles import shares_between, shares_of_public
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.gate_label_options import FOLLOWS, absent_together, gate_options
from dpal.voting.mechanism_advice import LabelStatistics, from_public, options
from flows.cli.vote_view import VoteCostView

_ANSWER_FROM = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the teachers
_MATRIX, _GATES = 12, 5  # labels of a matrix that is shown, and gates
_SOME_GUESS = 0.9
_TOO_MANY = 0.1  # of the teachers: noise that moves a share by a tenth


def mechanism_advice(
    request: VoteRequest, public: Path | None, consensus: float, pay: float | None
) -> VoteCostView:
    """Which mechanism to choose, from public records or a summary that is paid for."""
    ballots = request.ballots
    if not isinstance(ballots, Ballots):
        if public is not None and pay is not None:
            raise ConfigError.before_release(
                "--explain of classes guesses how far teachers agree from ballots on public "
                "records (--public FILE) or from quantiles that are paid for (--pay EPSILON --name "
                "ACCOUNT); give one of them, or neither"
            )
        return _advice_on_classes(request, public, pay)
    if (public is None) == (pay is None):
        raise ConfigError.before_release(
            "--explain reads public labels (--public FILE) or a summary of the ballots that is "
            "paid for (--pay EPSILON --name ACCOUNT); give one of them"
        )
    lines: list[str] = []
    bought: dict[str, Any] = {}
    dependencies = VoteCostView(record={})
    if public is not None:
        labels = public_labels(public)
        if labels.shape[1] != ballots.labels:
            raise ConfigError(
                f"{public} has {labels.shape[1]} labels and the ballots {ballots.labels}; give "
                "public records with the same labels"
            )
        statistics = from_public(labels, consensus=consensus)
        lines.append(f"from {len(labels):,} public records, at a consensus of {consensus:.0%}")
        dependencies = _dependencies(labels.astype(np.int64), request)
    else:
        summary, bought = _paid_summary(request, float(pay or 0.0))
        if not isinstance(summary, LabelStatistics):  # ballots are sets of labels here
            raise ConfigError.before_release(f"{bought['name']} holds a summary of classes")
        statistics = summary
        lines += _paid_words(bought)
        if bought["summary_sigma"] > _TOO_MANY * ballots.teachers:
            lines.append(
                f"that is much noise beside {ballots.teachers} teachers: such a summary says "
                "little, and the options below are little more than a guess"
            )
    target = request.target
    choices = options(
        statistics, teachers=ballots.teachers, epsilon=target.epsilon, delta=target.delta
    )
    record = [
        {"mechanism": choice.rule.mechanism.value, "limit": choice.rule.limit,
         "sigma": choice.rule.sigma, "queries": choice.queries, "why": choice.why}
        for choice in choices
    ]  # fmt: skip
    best = choices[0]
    limit = "" if best.rule.limit is None else f" --limit {best.rule.limit:g}"
    lines.append(
        f"choose --mechanism {best.rule.mechanism}{limit} --sigma {best.rule.sigma:.3g}: "
        f"{best.queries:,} queries at epsilon {target.epsilon:g}, delta {target.delta:.3g}; "
        f"{best.why} (estimates: they choose settings and prove nothing)"
    )
    return VoteCostView(
        record={
            "options": record,
            "source": statistics.source,
            "consensus": statistics.consensus,
            **({"paid": bought} if bought else {}),
            **dependencies.record,
        },
        tables=(advice_table(record), *dependencies.tables),
        lines=(*lines, *dependencies.lines),
    )


def _dependencies(labels: NDArray[np.int64], request: VoteRequest) -> VoteCostView:
    """Which labels are absent together on public records, and which gates save questions."""
    if labels.shape[1] < 2:
        return VoteCostView(record={})
    shares, names = absent_together(labels), request.cast.names
    names = names or tuple(map(str, range(labels.shape[1])))
    found = [
        {"gate": option.dependencies.gate, "dependents": list(option.dependencies.dependents),
         "times": option.times, "lost": option.lost}
        for option in gate_options(labels)
    ]  # fmt: skip
    shown = [absence_table(names, shares)] if len(names) <= _MATRIX else []
    return VoteCostView(
        record={
            "absent_together": [
                [None if np.isnan(share) else share for share in row] for row in shares.tolist()
            ],
            "gates": found,
        },
        tables=(*shown, gate_table(found[:_GATES], names)) if found else tuple(shown),
        lines=(
            f"a gate is asked first, and labels that {FOLLOWS:.0%} of the records without it lack "
            "are 0 without it (--gate, --dependents): what it loses is not asked for; where labels "
            "are rare any gate seems to do, and loses most of them",
        ),
    )


def _advice_on_classes(
    request: VoteRequest, public: Path | None, pay: float | None
) -> VoteCostView:
    """Thresholds, and a told bound where there is a guess of how far teachers agree."""
    thresholds = _threshold_advice(request)
    if public is None and pay is None:
        return thresholds
    lines: list[str] = []
    bought: dict[str, Any] = {}
    if public is not None:
        shares = shares_of_public(_public_choices(public, request))
        lines.append(f"agreement as of the ballots in {public}, which are taken to be public")
    else:
        # What contradicts any guess is refused before one is paid for.
        with suppress(PlanRejected):
            request.changed(agreement=_SOME_GUESS).certified()
        found, bought = _paid_summary(request, float(pay or 0.0))
        if isinstance(found, LabelStatistics):
            raise ConfigError.before_release(f"{bought['name']} holds a summary of label sets")
        shares = shares_between(found)
        lines += _paid_words(bought)
        # What was paid counts in the promise from here on.
        request = request.changed(name=None, after=str(bought["name"]))
    counted = "" if request.after is None else f" --after {request.after}"
    typed = ",".join(f"{share:g}" for share in shares)
    try:
        summary = request.changed(agreement=shares).certified().summary()
    except PlanRejected as rejected:
        if not bought:
            raise
        # Not raised: it would say that nothing was released.
        lines.append(f"beside it these queries do not fit: {rejected.args[0]}")
        record = {"agreement": {"shares": list(shares)}, "rejected": rejected.args[0]}
        costs: tuple[Table, ...] = ()
    else:
        lines.append(
            f"to answer within a told bound: --agreement {typed}{counted}"
            if summary["bound"] is not None
            else f"a told bound would save no noise: sigma {summary['sigma']:.4g} is enough "
            "without one"
        )
        record = {key: summary[key] for key in ("agreement", "sigma", "bound")}
        costs = (vote_cost_table(summary),)
    return VoteCostView(
        record={**thresholds.record, **record, **({"paid": bought} if bought else {})},
        tables=(*thresholds.tables, *costs),
        lines=(*thresholds.lines[:-1], *lines),
    )


def _public_choices(path: Path, request: VoteRequest) -> Choices:
    """Ballots of an ensemble that was trained on public records.

    Raises:
      ConfigError: they name no classes, or others than the private ones do.
    """
    cast = read_ballots((path,), cut=request.cut)
    classes = request.ballots.labels
    if not cast.single_label or int(cast.votes.max(initial=0)) >= classes:
        raise ConfigError.before_release(
            f"--public {path} must have ballots that name one of the same {classes} classes each"
        )
    return Choices(cast.votes.astype("int64"), classes)


def _threshold_advice(request: VoteRequest) -> VoteCostView:
    """Which threshold to choose for votes on classes; looks at no vote."""
    spec, rows = request.spec, []
    for answer_from in _ANSWER_FROM:
        try:
            rule = choose_threshold(spec, answer_from)
        except PlanRejected:
            continue
        checked = rule.confidence
        if checked is not None and rule.sigma < spec.rule.sigma:
            rows.append(
                {
                    "answer_from": answer_from,
                    "sigma": rule.sigma,
                    "threshold": checked.threshold,
                    "threshold_sigma": checked.sigma,
                    "unanimous": rule.unanimous_flip_probability,
                    "answered": {
                        f"{share:g}": answer_chance(rule, share) for share in _ANSWER_FROM
                    },
                }
            )
    queries, target = sum(spec.blocks), spec.target
    plain = (
        f"without a threshold {queries:,} queries at epsilon {target.epsilon:g}, delta "
        f"{target.delta:.3g} need sigma {spec.rule.sigma:.4g}"
    )
    advice = (
        "choose --answer-from by how far you expect teachers to agree: what is less agreed upon is "
        "mostly left out, and what is answered is turned by less noise"
        if rows
        else "no threshold needs less: ask fewer queries, or have more teachers"
    )
    return VoteCostView(
        record={"plain_sigma": spec.rule.sigma, "thresholds": rows},
        tables=(threshold_table(rows),) if rows else (),
        lines=(plain, advice, "no vote was looked at, and nothing was released"),
    )


def _paid_words(bought: Mapping[str, Any]) -> list[str]:
    """What was released for a price, and how to count it."""
    return [
        f"a summary was released for epsilon {bought['epsilon']:.4f}, noise "
        f"{bought['summary_sigma']:.3g} votes on each of its numbers; count it in the promise "
        f"of the votes with --after {bought['name']}",
        *recognition_words(bought["other_teachers"]),
    ]


def _paid_summary(
    request: VoteRequest, pay: float
) -> tuple[LabelStatistics | tuple[float, ...], dict[str, Any]]:
    if request.name is None:
        raise ConfigError("--pay releases something: give its account a --name of its own")
    if not pay < request.epsilon:
        raise ConfigError.before_release(
            f"--pay {pay:g} is a part of --epsilon {request.epsilon:g}, which covers the votes, "
            "too; pay less, or promise more"
        )
    spec = replace(
        request.spec,
        target=replace(request.target, epsilon=pay),
        blocks=(),
        summary_sigma=1.0,
        bound=None,
        agreement=(),
    )
    spec = replace(spec, summary_sigma=least_summary_sigma(spec))
    # Held, drawn and kept where whoever only looks need not load it.
    from dpal.runs.vote_release import release_summary

    account, statistics = release_summary(request, spec)
    return statistics, {
        **account.certified.summary(),
        "summary_sigma": spec.summary_sigma,
        "other_teachers": account.folder.read_record()["other_teachers"],
    }
