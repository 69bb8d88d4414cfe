"""Verifying the certificate of an account of teachers: its plan, its entries, its total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpal.accounting.agreement import tolerance
from dpal.accounting.before import Before
from dpal.accounting.cohorts import Accountant
from dpal.accounting.told_costs import require_told
from dpal.accounting.voting_rules import Bound, Confidence, Mechanism, VotingRule, summary_event
from dpal.canonical import digest, plain
from dpal.certificate.checks import Check, Outcome, judged, refuted, unchecked
from dpal.certificate.derive import Sources
from dpal.certificate.document import INFORMATIVE, entry_of, same
from dpal.certificate.figures import SAME_ENGINE
from dpal.certificate.inside import check_entries, check_seal
from dpal.certificate.outside import Model, check_ledger, check_model
from dpal.certificate.voting import Parts, derived
from dpal.errors import DpalError
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.holding import before_from
from dpal.ledger.releases import release_from

MALFORMED = (DpalError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

_BESIDES = ("inputs", "drawer")
_FIGURES = ("epsilon", "spent")
_RENYI_GRIDS = 0.05  # two grids of orders, both upper bounds: relative


def verify_voting(
    document: Mapping[str, Any],
    *,
    ledger: Sequence[Entry] | None = None,
    model: Model | None = None,
) -> list[Check]:
    """Checks an account's certificate; one line a check."""
    seal = check_seal(document)
    try:
        parts = _parts(document)
        sources = parts.sources
        checks = [
            check_entries(sources, document["ledger"]),
            judged("releases", _release_faults(sources), "each as held, each with its commit"),
            judged(
                "plan",
                _plan_faults(sources),
                f"digest {digest(sources.plan)[:12]}, its rule is what is charged",
            ),
        ]
        if refuted([seal, *checks]):
            return [seal, *checks, unchecked("epsilon", "the entries are not sound")]
        follows = derived(parts)
        checks.append(judged("statements", _statement_faults(document, follows), "as entries say"))
        checks += _figures(document, follows, sources)
        checks.append(check_ledger(_with_later(sources, ledger or ()), ledger))
        if parts.model is not None:
            checks.append(check_model({**follows, "digest": document.get("digest")}, model))
    except MALFORMED as error:
        said = str(error) if isinstance(error, DpalError) else f"{type(error).__name__}: {error}"
        detail = f"not what a certificate has there ({said})"
        return [seal, Check(name="voting", outcome=Outcome.FAILED, detail=detail)]
    return [seal, *checks]


def _parts(document: Mapping[str, Any]) -> Parts:
    ledger = document["ledger"]
    opening = ledger["opening"]
    sources = Sources(
        entries=[entry_of(record) for record in ledger["entries"]],
        opening=None if opening is None else entry_of(opening),
        identity=ledger["identity"],
        plan=document["plan"]["content"],
    )
    _ = sources.hold
    given = document.get("model")
    kept = None if given is None else {key: str(given[key]) for key in ("file", "sha256")}
    return Parts(sources=sources, model=kept)


def _release_faults(sources: Sources) -> Iterator[str]:
    held = {one["release"]: one for one in sources.hold.body["releases"]}
    reserves = [entry for entry in sources.entries if entry.kind is Kind.RESERVE]
    done = {entry.release for entry in sources.entries if entry.kind is Kind.COMMIT}
    for entry in reserves:
        charged = {key: value for key, value in entry.body.items() if key not in _BESIDES}
        if not same(charged, held.get(entry.release)) or charged["release"] != entry.release:
            yield f"{entry.release} was reserved with other charges than were held"
        if entry.release not in done:
            yield f"{entry.release} was reserved and never committed"
    names = [entry.release for entry in reserves]
    if len(set(names)) != len(names):
        yield "a release was reserved twice under one name"
    for name in done - set(names):
        yield f"{name} was committed and never reserved: it was not charged"


def _with_later(sources: Sources, ledger: Sequence[Entry]) -> Sources:
    """Also what was released since, where it was held: the promise covers every block already."""
    later = [
        entry
        for entry in ledger
        if entry.campaign == sources.hold.campaign
        and entry.sequence > sources.entries[-1].sequence
        and entry.kind in (Kind.RESERVE, Kind.COMMIT)
    ]
    found = replace(sources, entries=[*sources.entries, *later])
    return sources if list(_release_faults(found)) else found


def _plan_faults(sources: Sources) -> Iterator[str]:
    plan, held = sources.plan, sources.hold.body
    if digest(plan) != held["plan"]:
        yield "the plan is not the one whose digest was held before the start"
    promised = {key: held[key] for key in ("epsilon", "delta", "adjacency", "unit")}
    if not same(plan["spec"]["target"], promised):
        yield "the plan was made for another promise than the one held"
    rule, blocks = rule_from(plan["spec"]["rule"]), plan["spec"]["blocks"]
    told = plan["spec"]["bound"]
    bound = None if told is None else Bound(**told)
    if bound is not None:
        require_told(rule)
    costs: list[list[Any]] = [
        list(rule.events(int(queries))) if bound is None else [bound.event] for queries in blocks
    ]
    if plan["spec"]["summary_sigma"] is not None:
        costs.insert(0, [summary_event(rule.labels, float(plan["spec"]["summary_sigma"]))])
    if len(costs) != len(held["releases"]):
        yield "the plan has other blocks than were held"
        return
    for cost, record in zip(costs, held["releases"], strict=True):
        if [charge.event for charge in release_from(record).charges] != cost:
            yield f"{record['release']} is charged otherwise than its rule costs"
    if not same(plain(before_from(held.get("before")) or Before()), plan["spec"]["before"]):
        yield "the plan counts another history than was held"


def rule_from(record: Mapping[str, Any]) -> VotingRule:
    """Reads a rule from a plan as JSON."""
    checked = record["confidence"]
    return VotingRule(
        **{
            **record,
            "mechanism": Mechanism(record["mechanism"]),
            "confidence": None if checked is None else Confidence(**checked),
        }
    )


def _statement_faults(document: Mapping[str, Any], follows: Mapping[str, Any]) -> Iterator[str]:
    said = {key for key in document if key not in (*INFORMATIVE, "digest", *_FIGURES)}
    for key in sorted(said | (follows.keys() - set(_FIGURES))):
        if key not in document or key not in follows or not same(document[key], follows[key]):
            yield f"{key}: the certificate says something else than its entries"


def _figures(
    document: Mapping[str, Any], follows: Mapping[str, Any], sources: Sources
) -> Iterator[Check]:
    held = tuple(release_from(one) for one in sources.hold.body["releases"])
    target, found = sources.target, follows["epsilon"]
    apart = tolerance(held, target)
    yield judged(
        "epsilon, our accountant",
        (
            f"{which} {name} is stated as {document[which][name]} and costs {value:.6f}"
            for which in _FIGURES
            for name, value in follows[which].items()
            if abs(float(document[which][name]) - value) > max(apart, SAME_ENGINE)
        ),
        f"{found['rdp']:.4f} by RDP of the answers, {found['pld']:.4f} by PLD of noisy counts",
    )
    yield judged(
        "epsilon, dp-accounting",
        _second_faults(found, apart),
        f"{found['dp_accounting']:.4f} of the counts, {found['renyi_oracle']:.4f} of the answers",
    )
    kept = found["rdp" if sources.accountant is Accountant.RDP else "pld"]
    yield judged(
        "promise",
        (
            f"epsilon {kept:.4f} is above the {target.epsilon:g} promised"
            for _ in range(1)
            if not kept <= target.epsilon + SAME_ENGINE
        ),
        f"epsilon {target.epsilon:g} at delta {target.delta:.4g}, adjacency {target.adjacency}, "
        f"unit {target.unit}; kept",
    )


def _second_faults(found: Mapping[str, float], apart: float) -> Iterator[str]:
    if abs(found["pld"] - found["dp_accounting"]) > apart:
        yield "the noisy counts cost something else by dp-accounting"
    if abs(found["rdp"] - found["renyi_oracle"]) > _RENYI_GRIDS * (1 + found["rdp"]):
        yield "the answers cost something else by plain sums"
