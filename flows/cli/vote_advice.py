"""What `dpal vote --explain` says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dpal.data.ballot_files import public_labels
from dpal.errors import ConfigError, PlanRejected
from dpal.planning.vote_thresholds import answer_chance, choose_threshold
from dpal.planning.voting_plan import least_summary_sigma
from dpal.reports.vote_report import advice_table, recognition_words, threshold_table
from dpal.runs.vote_request import VoteRequest
from dpal.voting.ballots import Ballots
from dpal.voting.mechanism_advice import LabelStatistics, from_public, options
from flows.cli.vote_view import VoteCostView

_ANSWER_FROM = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the teachers
_TOO_MANY = 0.1  # of the teachers: noise that moves a share by a tenth


def mechanism_advice(
    request: VoteRequest, public: Path | None, consensus: float, pay: float | None
) -> VoteCostView:
    """Which mechanism to choose, from public records or a summary that is paid for."""
    ballots = request.ballots
    if not isinstance(ballots, Ballots):
        if public is not None or pay is not None:
            raise ConfigError.before_release(
                "teachers that name one class each are counted by gnmax; --explain shows their "
                "thresholds and needs neither --public nor --pay"
            )
        return _threshold_advice(request)
    if (public is None) == (pay is None):
        raise ConfigError.before_release(
            "--explain reads public labels (--public FILE) or a summary of the ballots that is "
            "paid for (--pay EPSILON --name ACCOUNT); give one of them"
        )
    lines: list[str] = []
    bought: dict[str, Any] = {}
    if public is not None:
        labels = public_labels(public)
        if labels.shape[1] != ballots.labels:
            raise ConfigError(
                f"{public} has {labels.shape[1]} labels and the ballots {ballots.labels}; give "
                "public records with the same labels"
            )
        statistics = from_public(labels, consensus=consensus)
        lines.append(f"from {len(labels):,} public records, at a consensus of {consensus:.0%}")
    else:
        statistics, bought = _paid_summary(request, ballots, float(pay or 0.0))
        lines.append(
            f"a summary was released for epsilon {bought['epsilon']:.4f}, noise "
            f"{bought['summary_sigma']:.3g} votes on each of its numbers; count it in the promise "
            f"of the votes with --after {bought['name']}"
        )
        lines += recognition_words(bought["other_teachers"])
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
        },
        tables=(advice_table(record),),
        lines=tuple(lines),
    )


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


def _paid_summary(
    request: VoteRequest, ballots: Ballots, pay: float
) -> tuple[LabelStatistics, dict[str, Any]]:
    if request.name is None:
        raise ConfigError("--pay releases something: give its account a --name of its own")
    spec = replace(
        request.spec,
        target=replace(request.target, epsilon=pay),
        blocks=(),
        summary_sigma=1.0,
    )
    spec = replace(spec, summary_sigma=least_summary_sigma(spec))
    # Held, drawn and kept where whoever only looks need not load it.
    from dpal.runs.vote_release import release_summary

    account, statistics = release_summary(request, spec, ballots)
    return statistics, {
        **account.certified.summary(),
        "summary_sigma": spec.summary_sigma,
        "other_teachers": account.folder.read_record()["other_teachers"],
    }
