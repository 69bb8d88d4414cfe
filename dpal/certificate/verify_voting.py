"""Verifying the certificate of an account of teachers: its plan, its entries, its total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpal.accounting import oracle_votes
from dpal.accounting.agreement import tolerance
from dpal.accounting.before import Before
from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import Release
from dpal.accounting.told_costs import require_told
from dpal.accounting.voting_rules import Bound, Confidence, Mechanism, VotingRule, summary_event
from dpal.canonical import digest, plain
from dpal.certificate.checks import MALFORMED, Check, judged, refuted, unchecked, unreadable
from dpal.certificate.compare import Difference, Place, Room, compared
from dpal.certificate.data_set import by_dp_accounting_within, check_shares, check_together
from dpal.certificate.document import same
from dpal.certificate.figures import SAME_ENGINE
from dpal.certificate.inside import check_entries, check_seal
from dpal.certificate.outside import Model, check_ledger, check_model
from dpal.certificate.promise import VOTES, check_promise, pool_size_of
from dpal.certificate.sources import Sources, sources_from
from dpal.certificate.voting import Parts, derived, votes_in
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.holding import before_from
from dpal.ledger.releases import release_from
from dpal.privacy import PrivacyTarget

_BESIDES = ("inputs", "drawer")
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
        parts = Parts(sources=sources_from(document), model=_student(document))
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
        if refuted(checks):
            return [seal, *checks, unchecked("epsilon", "the entries are not sound")]
        follows = derived(parts, document["format"])
        held = tuple(release_from(one) for one in sources.hold.body["releases"])
        apart = tolerance(held, sources.target)
        found, figures = compared(document, follows, _room_for_figures(apart))
        checks.append(
            judged("statements", (one.says for one in found), "rule, blocks, what was released")
        )
        checks += _figure_checks(follows, sources, figures, apart)
        if sources.hold.body.get("data") is not None:
            checks += [check_part(sources, held), check_together(sources, ledger)]
        checks.append(check_ledger(_with_later(sources, ledger or ()), ledger))
        if parts.model is not None:
            checks.append(check_model({**follows, "digest": document.get("digest")}, model))
        elif model is not None:
            checks.append(judged("model", ["votes are certified here, and no model"], ""))
    except MALFORMED as error:
        return [seal, unreadable("voting", error)]
    return [seal, *checks]


def _student(document: Mapping[str, Any]) -> dict[str, str] | None:
    if "model" not in document:
        return None
    return {key: str(document["model"][key]) for key in ("file", "sha256")}


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


def _room_for_figures(apart: float) -> Room:
    """Where figures stand; another version of dp-accounting may overstate more or less."""

    def room(place: Place) -> float | None:
        if len(place) == 2 and place[0] in ("epsilon", "spent"):
            return apart if place[1] in ("dp_accounting", "renyi_oracle") else SAME_ENGINE
        return None

    return room


def _figure_checks(
    follows: Mapping[str, Any], sources: Sources, found: Sequence[Difference], apart: float
) -> list[Check]:
    costs = follows["epsilon"]
    rounding = _RENYI_GRIDS * (1 + costs["rdp"])
    by_rdp = sources.accountant is Accountant.RDP
    second = {"renyi_oracle": rounding} if by_rdp else {"dp_accounting": apart}
    return [
        judged(
            "epsilon, our accountant",
            (one.says for one in found),
            f"{costs['rdp']:.4f} by RDP of the released answers, {costs['pld']:.4f} by PLD of the "
            "noisy counts, as stated",
        ),
        judged(
            "epsilon, dp-accounting",
            _second_faults(costs, apart, rounding),
            f"{costs['renyi_oracle']:.4f} for the released answers, {costs['dp_accounting']:.4f} "
            "for the noisy counts",
        ),
        check_promise(
            costs,
            sources.target,
            sources.accountant,
            VOTES,
            second=second,
            pool_size=pool_size_of(follows),
        ),
    ]


def check_part(sources: Sources, held: tuple[Release, ...]) -> Check:
    """Whether an account's part of a data set covers all its blocks, released or not."""
    # Answers cost less than the counts that dp-accounting knows of.
    told = sources.accountant is Accountant.RDP
    second = _by_renyi_sums if told else by_dp_accounting_within
    return check_shares(sources, releases=held, second=second)


def _by_renyi_sums(releases: tuple[Release, ...], target: PrivacyTarget) -> tuple[float, float]:
    found = oracle_votes.epsilon_of_votes(votes_in(releases), delta=target.delta)
    return found, _RENYI_GRIDS * (1 + found)


def _second_faults(found: Mapping[str, float], apart: float, rounding: float) -> Iterator[str]:
    if not abs(found["pld"] - found["dp_accounting"]) <= apart:
        yield "the noisy counts cost something else by dp-accounting"
    if not abs(found["rdp"] - found["renyi_oracle"]) <= rounding:
        yield "the answers cost something else by plain sums of Rényi divergences"
