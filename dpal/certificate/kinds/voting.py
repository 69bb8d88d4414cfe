"""The certificate of what an ensemble of teachers has told, and may still tell.

It holds the plan of the account and all its ledger entries. The promise covers every block
that was held, released or not; what was released so far stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dpal.accounting.budget_cohort_names import about_budget, budget_cohort, budget_cohorts_in
from dpal.accounting.events import Event, Release, to_record
from dpal.accounting.prior_spend import PriorSpend, total_epsilon, total_second_opinion
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.near_records import NearRecords, require_near
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import require_fallback, require_told
from dpal.accounting.votes.outcome_charges import OutcomeCharges, require_charges
from dpal.accounting.votes.public_consensus import PublicConsensus, require_consensus
from dpal.accounting.votes.teacher_budgets import (
    TeacherBudget,
    require_budgets,
    stretch_charges,
)
from dpal.accounting.votes.voting_rule import VotingRule, summary_event
from dpal.canonical import digest, plain
from dpal.certificate.check_outcome import Check, check_from_faults
from dpal.certificate.check_seal_and_entries import BESIDES, check_entries, foreign_plan_faults
from dpal.certificate.compare_with_derived import Difference, Place
from dpal.certificate.data_set_limit_checks import by_dp_accounting_within, check_shares
from dpal.certificate.evidence import LedgerEvidence, evidence_from, evidence_in
from dpal.certificate.kinds.certificate_kind import CertificateKind
from dpal.certificate.promise_checks import VOTES
from dpal.certificate.read_and_seal import FORMAT, is_same_json
from dpal.certificate.recomputed_epsilons import SAME_ENGINE
from dpal.certificate.sentences import vote_statements
from dpal.errors import CertificateError, ParameterError
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.hold_entry import before_from
from dpal.ledger.release_json import release_from
from dpal.privacy import Accountant, PrivacyTarget

_RENYI_GRIDS = 0.05  # two grids of orders, both upper bounds: relative


@dataclass(frozen=True, kw_only=True)
class VotingEvidence:
    """What the certificate is made of.

    Attributes:
      own: the account's entries and its plan.
      model: file and digest of a student; None where there is none.
    """

    own: LedgerEvidence
    model: Mapping[str, str] | None

    @property
    def name(self) -> str:
        """Of the account."""
        return self.own.name

    @property
    def target(self) -> PrivacyTarget:
        """What was promised."""
        return self.own.target

    @property
    def accountant(self) -> Accountant:
        """The accountant by which the promise is kept."""
        return self.own.accountant

    @property
    def plan(self) -> Mapping[str, Any]:
        """The plan as JSON."""
        return self.own.plan

    @property
    def charged(self) -> tuple[Release, ...]:
        """What the total is of: every block that was held, released or not."""
        return tuple(release_from(record) for record in self.own.hold.body["releases"])

    @property
    def before(self) -> PriorSpend:
        """An earlier account that counts."""
        return before_from(self.own.hold.body.get("before")) or PriorSpend()


class Voting(CertificateKind[VotingEvidence]):
    """Accounts of teachers: what their votes told, and may still tell."""

    name = "voting"
    bounds = VOTES

    def read(self, document: Mapping[str, Any]) -> VotingEvidence:
        """Reads the account's entries, and its student if there is one."""
        model = None
        if "model" in document:
            model = {key: str(document["model"][key]) for key in ("file", "sha256")}
        return VotingEvidence(own=evidence_from(document), model=model)

    def content(self, evidence: VotingEvidence, form: int) -> dict[str, Any]:
        """The rule, what it costs for all blocks, what was released so far, a student."""
        own, target, before = evidence.own, evidence.target, evidence.before
        spec, held = own.plan["spec"], evidence.charged
        total = epsilons(held, target, before)
        content = {
            "kind": self.name,
            "epsilon": total,
            "spent": total if own.releases == held else epsilons(own.releases, target, before),
            "before": before.campaign,
            "rule": spec["rule"],
            "teachers": spec["teachers"],
            "blocks": list(spec["blocks"]),
            "summary_sigma": spec["summary_sigma"],
            "bound": spec["bound"],
            **({"charges": spec["charges"]} if spec.get("charges") else {}),
            **({"near": spec["near"]} if spec.get("near") else {}),
            **({"budgets": _budgets(evidence)} if spec.get("budgets") else {}),
            **({"consensus": spec["consensus"]} if spec.get("consensus") else {}),
            "released": [
                {"release": release.name, **to_record(charge.event)}
                for release in own.releases
                for charge in release.charges
            ],
            "statements": vote_statements(
                form,
                near=spec.get("near"),
                unit=target.unit,
                budgets=bool(spec.get("budgets")),
                consensus=bool(spec.get("consensus")),
            ),
        }
        if evidence.model is None:
            return content
        student = {"release": "student", **evidence.model}
        return {**content, "model": student, "models": [student]}

    def check_evidence(
        self,
        evidence: VotingEvidence,
        document: Mapping[str, Any],
        ledger: Sequence[Entry] | None,
    ) -> list[Check]:
        """Entries, blocks that were released, and whether the rule is what is charged."""
        del ledger
        own = evidence.own
        fine = f"digest {digest(own.plan)[:12]}, its rule is what is charged"
        released = check_from_faults(
            "releases", _release_faults(own), "each as held, each with its commit"
        )
        return [
            check_entries(own, document["ledger"]),
            released,
            check_from_faults("plan", _plan_faults(own), fine),
        ]

    def room(self, place: Place, apart: float) -> float | None:
        """Figures of all blocks, and of those released so far."""
        figures = place and place[-2:-1] == ("epsilon",) and place[0] == "budgets"
        if figures or (len(place) == 2 and place[0] in ("epsilon", "spent")):
            return apart if place[-1] in ("dp_accounting", "renyi_oracle") else SAME_ENGINE
        return None

    def check_statements(
        self, mismatches: Sequence[Difference], follows: Mapping[str, Any]
    ) -> list[Check]:
        """All in one line."""
        del follows
        fine = "rule, blocks, what was released"
        return [check_from_faults("statements", (mismatch.says for mismatch in mismatches), fine)]

    def check_figures(
        self,
        document: Mapping[str, Any],
        follows: Mapping[str, Any],
        evidence: VotingEvidence,
        mismatches: Sequence[Difference],
        apart: float,
    ) -> list[Check]:
        """What is released by Renyi divergences, and the noisy counts by PLD."""
        del document, evidence
        costs = follows["epsilon"]
        every = [costs, *(budget["epsilon"] for budget in follows.get("budgets", ()))]
        return [
            check_from_faults(
                "epsilon, our accountant",
                (mismatch.says for mismatch in mismatches),
                f"{costs['rdp']:.4f} by RDP of what is released, {costs['pld']:.4f} by PLD of "
                "the noisy counts, as stated",
            ),
            check_from_faults(
                "epsilon, dp-accounting",
                (fault for figures in every for fault in _second_faults(figures, apart)),
                f"{costs['renyi_oracle']:.4f} for what is released, "
                f"{costs['dp_accounting']:.4f} for the noisy counts",
            ),
        ]

    def second_opinions(
        self, evidence: VotingEvidence, costs: Mapping[str, float], apart: float
    ) -> dict[str, float]:
        """By the figure that keeps the promise: answers, or counts."""
        by_rdp = evidence.accountant is Accountant.RDP
        return {"renyi_oracle": _rounding(costs)} if by_rdp else {"dp_accounting": apart}

    def check_blocks(self, evidence: VotingEvidence, own: LedgerEvidence) -> Check:
        """Its part of a data set covers all blocks of queries, released or not."""
        # Answers cost less than the counts that dp-accounting knows of.
        by_rdp = evidence.accountant is Accountant.RDP
        second = _by_renyi_sums if by_rdp else by_dp_accounting_within
        return check_shares(own, releases=evidence.charged, second=second)

    def covered(self, own: LedgerEvidence, ledger: Sequence[Entry]) -> LedgerEvidence:
        """Also what was released since, where it was held: the promise covers it already."""
        later = [
            entry
            for entry in ledger
            if entry.campaign == own.name
            and entry.sequence > own.entries[-1].sequence
            and entry.kind in (EntryKind.RESERVE, EntryKind.COMMIT)
        ]
        extended = replace(own, entries=[*own.entries, *later])
        return own if list(_release_faults(extended)) else extended


VOTING = Voting()


def voting_certificate(
    ledger: Sequence[Entry],
    name: str,
    plan: Mapping[str, Any],
    *,
    model: Mapping[str, str] | None,
    versions: Mapping[str, str],
    form: int = FORMAT,
) -> dict[str, Any]:
    """Certifies an account of teachers.

    Args:
      ledger: all entries of the ledger.
      name: of the account.
      plan: its plan as JSON.
      model: file and digest of a student.
      versions: of the programs; informative.
      form: number of the format.

    Raises:
      CertificateError: the ledger has nothing of it, or it cost more than was promised.
    """
    evidence = VotingEvidence(own=evidence_in(ledger, name, plan), model=model)
    return VOTING.build(evidence, versions=versions, form=form)


def epsilons(
    releases: Sequence[Release], target: PrivacyTarget, before: PriorSpend
) -> dict[str, float]:
    """What releases cost by both accountants, and by programs that share nothing with ours.

    `pld` and `dp_accounting` count as if the noisy counts themselves were released;
    `rdp` and `renyi_oracle` count what was.
    """
    return dict(_totals(tuple(releases), target, before))


@lru_cache(maxsize=32)
def _totals(
    releases: tuple[Release, ...], target: PrivacyTarget, before: PriorSpend
) -> dict[str, float]:
    if not releases:
        return dict.fromkeys(("pld", "rdp", "dp_accounting", "renyi_oracle"), 0.0)
    events = votes_in([*before.releases, *releases])
    by_renyi = total_epsilon(before, releases, target, accountant=Accountant.RDP)
    by_pld = float(total_epsilon(before, releases, target))
    # The second opinion is sought up to about twice the target, and counts cost more.
    wide = replace(target, epsilon=max(target.epsilon, by_pld))
    return {
        "pld": by_pld,
        "rdp": float(by_renyi),
        "dp_accounting": float(total_second_opinion(before, releases, wide)),
        "renyi_oracle": _by_renyi(events, target),
    }


def votes_in(releases: Iterable[Release]) -> list[Event]:
    """The events of releases, all of which are votes.

    Raises:
      CertificateError: one is none.
    """
    events = [charge.event for release in releases for charge in release.charges]
    if not all(event.is_vote for event in events):
        raise CertificateError("an account of teachers releases votes only")
    return events


def _release_faults(evidence: LedgerEvidence) -> Iterator[str]:
    held = {record["release"]: record for record in evidence.hold.body["releases"]}
    reserves = [entry for entry in evidence.entries if entry.kind is EntryKind.RESERVE]
    done = {entry.release for entry in evidence.entries if entry.kind is EntryKind.COMMIT}
    for entry in reserves:
        charged = {key: value for key, value in entry.body.items() if key not in BESIDES}
        if (
            not is_same_json(charged, held.get(entry.release))
            or charged["release"] != entry.release
        ):
            yield f"{entry.release} was reserved with other charges than were held"
        if entry.release not in done:
            yield f"{entry.release} was reserved and never committed"
    names = [entry.release for entry in reserves]
    if len(set(names)) != len(names):
        yield "a release was reserved twice under one name"
    for name in done - set(names):
        yield f"{name} was committed and never reserved: it was not charged"


def _plan_faults(evidence: LedgerEvidence) -> Iterator[str]:
    plan, held = evidence.plan, evidence.hold.body
    yield from foreign_plan_faults(evidence)
    before = before_from(held.get("before")) or PriorSpend()
    if budget_cohorts_in(before.releases):
        yield f"some teachers of {before.campaign} promise less, and vote on all of these queries"
    rule, blocks = rule_from(plan["spec"]["rule"]), plan["spec"]["blocks"]
    told = plan["spec"]["bound"]
    bound = None if told is None else CostBound(**told)
    if bound is not None:
        require_told(rule)
        yield from _fallback_faults(rule, [int(queries) for queries in blocks], bound)
    charges = (
        None if plan["spec"].get("charges") is None else (OutcomeCharges(**plan["spec"]["charges"]))
    )
    if charges is not None:
        yield from _charge_faults(rule, charges)
    near = None if plan["spec"].get("near") is None else NearRecords(**plan["spec"]["near"])
    if near is not None:
        yield from _near_faults(rule)
    consensus = None
    if plan["spec"].get("consensus") is not None:
        consensus = PublicConsensus(**plan["spec"]["consensus"])
        yield from _consensus_faults(rule, consensus, plan["spec"])
    budgets = budgets_from(plan["spec"].get("budgets"))
    if budgets:
        yield from _budget_faults(rule, budgets, evidence)
        return
    held_at_once = bound or charges
    costs: list[list[Any]]
    if near is not None:
        sizes = [int(queries) for queries in blocks]
        if near.blocks > len(sizes):
            yield "more blocks are for campaigns than the plan has"
            return
        costs = [[event] for event in near.events(rule, evidence.target.adjacency, sizes)]
    elif consensus is not None:
        costs = [list(consensus.events(rule)) for _ in blocks]
    else:
        costs = [
            [held_at_once.event] if held_at_once is not None else list(rule.events(int(queries)))
            for queries in blocks
        ]
    if plan["spec"]["summary_sigma"] is not None:
        costs.insert(0, [summary_event(rule, float(plan["spec"]["summary_sigma"]))])
    if len(costs) != len(held["releases"]):
        yield "the plan has other blocks than were held"
        return
    for cost, record in zip(costs, held["releases"], strict=True):
        if [charge.event for charge in release_from(record).charges] != cost:
            yield f"{record['release']} is charged otherwise than its rule costs"
    if not is_same_json(
        plain(before_from(held.get("before")) or PriorSpend()), plan["spec"]["before"]
    ):
        yield "the plan counts another history than was held"


def _budgets(evidence: VotingEvidence) -> list[dict[str, Any]]:
    """What is promised to the records of teachers with less, and what they are charged."""
    return [
        {
            "promised": budget.epsilon,
            "teachers": list(budget.teachers),
            "queries": list(budget.queries),
            "epsilon": epsilons(
                about_budget(evidence.charged, budget_cohort(number)),
                evidence.target,
                PriorSpend(),
            ),
        }
        for number, budget in enumerate(budgets_from(evidence.plan["spec"]["budgets"]))
    ]


def budgets_from(records: Sequence[Mapping[str, Any]] | None) -> tuple[TeacherBudget, ...]:
    """Reads budgets of teachers from a plan as JSON; none where it has none."""
    return tuple(
        TeacherBudget(
            epsilon=float(record["epsilon"]),
            teachers=tuple(map(int, record["teachers"])),
            queries=tuple(map(int, record["queries"])),
        )
        for record in records or ()
    )


def _budget_faults(
    rule: VotingRule, budgets: Sequence[TeacherBudget], evidence: LedgerEvidence
) -> Iterator[str]:
    """Teachers with less vote as long as the plan says, are charged for it, and keep to it."""
    spec = evidence.plan["spec"]
    sizes = [int(queries) for queries in spec["blocks"]]
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    others = ("near", "bound", "gate", "charges", "summary_sigma")
    if any(spec.get(key) is not None for key in others) or evidence.hold.body.get("before"):
        yield "teachers with budgets of their own are charged for whole answers alone"
        return
    try:
        require_budgets(rule, budgets, sizes)
    except ParameterError as error:
        yield str(error)
        return
    if len(held) != len(sizes):
        yield "the plan has other blocks than were held"
        return
    for number, (size, release) in enumerate(zip(sizes, held, strict=True), start=1):
        if release.charges != stretch_charges(rule, budgets, number, size):
            yield f"{release.name} is charged otherwise than its rule costs"
    for number, budget in enumerate(budgets):
        own = about_budget(held, budget_cohort(number))
        if not own:
            continue
        epsilon = total_epsilon(PriorSpend(), own, evidence.target, accountant=evidence.accountant)
        if not epsilon <= budget.epsilon:
            yield (f"teachers that promise epsilon {budget.epsilon:g} are charged {epsilon:.4f}")


def _fallback_faults(rule: VotingRule, blocks: Sequence[int], bound: CostBound) -> Iterator[str]:
    """Answers above the limit of a bound cost no more than it, by both programs."""
    if bound.fallback_sigma is None:
        return
    noisier = replace(rule, sigma=bound.fallback_sigma).charged(by_answers=True)
    for queries in sorted(set(blocks)):
        try:
            require_fallback(rule, queries, bound)
        except ParameterError as error:
            yield str(error)
        order = np.array([bound.order])
        again = sum(float(event.second_renyi(order)[0]) for event in noisier.events(queries))
        if not again <= bound.limit * (1 + _RENYI_GRIDS):
            yield (
                f"by another program answers with noise {bound.fallback_sigma:g} cost {again:.4g}, "
                f"and the limit of the bound is {bound.limit:.4g}"
            )


def _near_faults(rule: VotingRule) -> Iterator[str]:
    """Records that vote themselves name one class each, or say yes or no on each label."""
    try:
        require_near(rule)
    except ParameterError as error:
        yield str(error)


def _consensus_faults(
    rule: VotingRule, consensus: PublicConsensus, spec: Mapping[str, Any]
) -> Iterator[str]:
    """Teachers name one class and answer all their objections, in one block and in no other way."""
    others = ("near", "bound", "gate", "charges", "summary_sigma", "budgets")
    if any(spec.get(key) is not None for key in others) or len(spec["blocks"]) != 1:
        yield "teachers object to a public model in one block, and in no other way"
    try:
        require_consensus(rule, consensus)
    except ParameterError as error:
        yield str(error)


def _charge_faults(rule: VotingRule, charges: OutcomeCharges) -> Iterator[str]:
    """Charges cover both outcomes; by another program an answer covers what either may tell."""
    try:
        require_charges(rule, charges)
    except ParameterError as error:
        yield str(error)
    order = np.array([charges.order])
    again = sum(float(event.second_renyi(order)[0]) for event in rule.events(1))
    if not again <= charges.answered * (1 + _RENYI_GRIDS):
        yield (
            f"by another program a query may cost {again:.4g}, and an answer is charged "
            f"{charges.answered:.4g}"
        )


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


def _rounding(costs: Mapping[str, float]) -> float:
    return _RENYI_GRIDS * (1 + costs["rdp"])


def _by_renyi(events: Sequence[Event], target: PrivacyTarget) -> float:
    from dpal.accounting.votes.second_opinion import epsilon_of_votes  # imports dp-accounting

    return epsilon_of_votes(events, delta=target.delta)


def _by_renyi_sums(releases: tuple[Release, ...], target: PrivacyTarget) -> tuple[float, float]:
    epsilon = _by_renyi(votes_in(releases), target)
    return epsilon, _RENYI_GRIDS * (1 + epsilon)


def _second_faults(costs: Mapping[str, float], apart: float) -> Iterator[str]:
    # Only too little is a fault: far above any promise our sums round up by more than theirs.
    if not costs["dp_accounting"] <= costs["pld"] + apart:
        yield "the noisy counts cost something else by dp-accounting"
    if not abs(costs["rdp"] - costs["renyi_oracle"]) <= _rounding(costs):
        yield "what is released costs something else by plain sums of Rényi divergences"
