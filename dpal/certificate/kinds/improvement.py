"""The certificate of a model that was improved with public records.

It holds the start's certificate whole (or what was declared of the start), the ledger entries of
whatever was released about private records beyond it, and the digest of the improved weights.
Fine-tuning on public records is post-processing: no entry stands for it, and the digest of its
weights is this certificate's own statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from dpal.accounting.events import GUIDANCE, Charge, NoisyCounts, NoisyMoments, Release, to_record
from dpal.accounting.prior_spend import (
    Declared,
    PriorSpend,
    declared_of,
    total_epsilon,
    total_second_opinion,
)
from dpal.canonical import digest
from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import Check, CheckOutcome, check_from_faults, unchecked
from dpal.certificate.check_seal_and_entries import check_entries, check_releases
from dpal.certificate.compare_with_derived import Difference, Place
from dpal.certificate.evidence import LedgerEvidence, evidence_from
from dpal.certificate.kinds.campaign import CAMPAIGN
from dpal.certificate.kinds.certificate_kind import CertificateKind
from dpal.certificate.promise_checks import is_paper, pool_size_of
from dpal.certificate.read_and_seal import is_same_json, parse_entry
from dpal.certificate.recomputed_epsilons import SAME_ENGINE
from dpal.certificate.sentences import statements
from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.entries import GENESIS, Entry, EntryKind
from dpal.ledger.hold_entry import before_from, before_record
from dpal.ledger.release_json import release_record
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit

CHOSEN = {
    "free": "nothing was released beyond the start",
    "beforehand": "the noise was fixed before the start released anything",
    "afterwards": "the noise was fixed after the start was released; the total assumes that "
    "what the start released had no say in it",
}


@dataclass(frozen=True, kw_only=True)
class ImprovementEvidence:
    """What an improvement's certificate is made of.

    Attributes:
      name: of the improvement.
      target: what was promised, the start included.
      accountant: by which.
      start: the start's certificate; None where its cost was declared.
      declared: what was declared instead.
      start_model: digest of the weights that were improved.
      own: the improvement's own ledger entries; None where nothing was released.
      plan: the plan as JSON.
      model: file and digest of the improved weights.
    """

    name: str
    target: PrivacyTarget
    accountant: Accountant
    start: Mapping[str, Any] | None
    declared: Declared | None
    start_model: str
    own: LedgerEvidence | None
    plan: Mapping[str, Any]
    model: Mapping[str, str]

    @property
    def before(self) -> PriorSpend:
        """What the start cost, as its own certificate's entries say."""
        if self.start is None:
            return PriorSpend(declared=self.declared)
        entries = [parse_entry(record) for record in self.start["ledger"]["entries"]]
        charged = counted_releases(entries)
        return PriorSpend(campaign=str(self.start["campaign"]), releases=charged)

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was released beyond the start, in order."""
        return () if self.own is None else self.own.releases

    @property
    def charged(self) -> tuple[Release, ...]:
        """What the total is of: the start's releases, and those beyond it."""
        return (*self.before.releases, *self.releases)


class ImprovementCertificate(CertificateKind[ImprovementEvidence]):
    """Improvements: a start, and what was chosen and learned from public records since."""

    name = "improvement"

    def read(self, document: Mapping[str, Any]) -> ImprovementEvidence:
        """Reads the start, its own entries if it has any, and what was learned."""
        promise, start = document["promise"], document["start"]
        return ImprovementEvidence(
            name=str(document["campaign"]),
            target=PrivacyTarget(
                epsilon=promise["epsilon"],
                delta=promise["delta"],
                adjacency=Adjacency(promise["adjacency"]),
                unit=Unit(promise["unit"]),
            ),
            accountant=Accountant(promise["accountant"]),
            start=start["certificate"],
            declared=declared_of(start["declared"]),
            start_model=str(start["model"]),
            own=evidence_from(document) if document["ledger"]["entries"] else None,
            plan=document["plan"]["content"],
            model={key: str(document["model"][key]) for key in ("file", "sha256")},
        )

    def content(self, evidence: ImprovementEvidence, form: int) -> dict[str, Any]:
        """The start's certificate whole, what was released beyond it, and the weights."""
        target, before, releases = evidence.target, evidence.before, evidence.releases
        choice = evidence.plan["spec"]["choice"]
        paper = is_paper(target.delta, pool_size_of(evidence.start or {}))
        declared = evidence.declared
        learned = {"release": "fine-tuning", **evidence.model}
        return {
            "kind": self.name,
            "epsilon": _epsilons(before, releases, target),
            "start": {
                "model": evidence.start_model,
                "epsilon": _epsilons(before, (), target),
                "declared": None if declared is None else asdict(declared),
                "certificate": evidence.start,
            },
            "method": choice["method"],
            "labels": choice["labels"],
            "released": [
                {
                    "release": release.name,
                    **to_record(charge.event),
                    "cohorts": list(charge.cohorts),
                }
                for release in releases
                for charge in release.charges
            ],
            "noise_chosen": CHOSEN[_chosen(evidence)],
            "statements": statements(self.name, form, paper=paper),
            "model": learned,
            "models": [learned],
        }

    def ledger(self, evidence: ImprovementEvidence, form: int) -> dict[str, Any]:
        """Its own entries; the start's head where there are none."""
        if evidence.own is not None:
            return super().ledger(evidence, form)
        head = {"sequence": 0, "digest": GENESIS}
        if evidence.start is not None:
            head = dict(evidence.start["ledger"]["head"])
        nothing: dict[str, Any] = {"identity": None, "opening": None, "head": head, "entries": []}
        return nothing if form == 1 else {**nothing, "adoptions": []}

    def check_evidence(
        self,
        evidence: ImprovementEvidence,
        document: Mapping[str, Any],
        ledger: Sequence[Entry] | None,
    ) -> list[Check]:
        """All checks of the start's certificate, and those of what lies beyond it."""
        checks = _start_checks(evidence, ledger)
        if evidence.own is None:
            faults = _free_faults(evidence, ledger)
            checks.append(check_from_faults("releases", faults, "none beyond the start"))
        else:
            checks.append(check_entries(evidence.own, document["ledger"]))
            checks.append(check_releases(evidence.own))
        fine = f"digest {digest(evidence.plan)[:12]}, its promise and its noise are what is charged"
        return [*checks, check_from_faults("plan", _plan_faults(document, evidence), fine)]

    def room(self, place: Place, apart: float) -> float | None:
        """Figures of the total and of the start."""
        if place[:-1] in (("epsilon",), ("start", "epsilon")):
            return apart if place[-1] == "dp_accounting" else SAME_ENGINE
        return None

    def check_statements(
        self, mismatches: Sequence[Difference], follows: Mapping[str, Any]
    ) -> list[Check]:
        """All in one line."""
        fine = f"{follows['method']}, {follows['labels']:,} labels; {follows['noise_chosen']}"
        return [check_from_faults("statements", (mismatch.says for mismatch in mismatches), fine)]

    def check_figures(
        self,
        document: Mapping[str, Any],
        follows: Mapping[str, Any],
        evidence: ImprovementEvidence,
        mismatches: Sequence[Difference],
        apart: float,
    ) -> list[Check]:
        """The total, and the start alone."""
        del document, evidence, apart
        costs = follows["epsilon"]
        return [
            check_from_faults(
                "epsilon, start and all",
                (mismatch.says for mismatch in mismatches),
                f"{costs['pld']:.4f} by PLD, {costs['rdp']:.4f} by RDP, "
                f"{costs['dp_accounting']:.4f} by dp-accounting; the start alone "
                f"{follows['start']['epsilon']['pld']:.4f} by PLD",
            )
        ]


IMPROVEMENT = ImprovementCertificate()


def _epsilons(
    before: PriorSpend, releases: Sequence[Release], target: PrivacyTarget
) -> dict[str, float]:
    return dict(_totals(before, tuple(releases), target))


@lru_cache(maxsize=32)
def _totals(
    before: PriorSpend, releases: tuple[Release, ...], target: PrivacyTarget
) -> dict[str, float]:
    return {
        "pld": float(total_epsilon(before, releases, target)),
        "rdp": float(total_epsilon(before, releases, target, accountant=Accountant.RDP)),
        "dp_accounting": float(total_second_opinion(before, releases, target)),
    }


def _chosen(evidence: ImprovementEvidence) -> str:
    """When the noise of what was released was fixed, by the numbers of the entries."""
    own = evidence.own
    if own is None:
        return "free"
    if evidence.start is None:
        return "afterwards"
    first = min(
        (
            int(entry["sequence"])
            for entry in evidence.start["ledger"]["entries"]
            if EntryKind(entry["kind"]) is EntryKind.RESERVE
        ),
        default=0,
    )
    same_ledger = evidence.start["ledger"]["identity"] == own.identity
    return "beforehand" if same_ledger and own.hold.sequence < first else "afterwards"


def _start_checks(evidence: ImprovementEvidence, ledger: Sequence[Entry] | None) -> list[Check]:
    """All checks of the start's own certificate."""
    if evidence.start is not None and evidence.declared is not None:
        detail = "a certificate and a declared cost of the start exclude each other"
        return [Check(name="start", outcome=CheckOutcome.FAILED, detail=detail)]
    if evidence.start is None:
        if evidence.declared is None:
            detail = "neither a certificate nor a declared cost of the start is here"
            return [Check(name="start", outcome=CheckOutcome.FAILED, detail=detail)]
        told = (
            f"epsilon {evidence.declared.epsilon:g} at delta {evidence.declared.delta:.4g} is "
            "declared, and cannot be checked"
        )
        return [unchecked("start", told)]
    checks = CAMPAIGN.verify(
        evidence.start,
        ledger=ledger,
        model=Model(sha256=evidence.start_model),
        no_pool="dpal verify the start's own certificate with --data",
    )
    return [Check(name=f"start: {check.name}", outcome=check.outcome, detail=check.detail)
            for check in checks]  # fmt: skip


def _free_faults(evidence: ImprovementEvidence, ledger: Sequence[Entry] | None) -> Iterator[str]:
    if ledger is not None:
        try:
            verify_chain(ledger)
        except LedgerTampered as error:
            yield str(error)
    if evidence.plan["spec"]["guidance"] is not None:
        yield "the plan releases something about private records, and no entry charges it"
    for entry in ledger or ():
        if entry.campaign == evidence.name:
            yield f"entry {entry.sequence} of the ledger is not covered by the certificate"
            return


def _plan_faults(document: Mapping[str, Any], evidence: ImprovementEvidence) -> Iterator[str]:
    spec, own = evidence.plan["spec"], evidence.own
    promised = {key: document["promise"][key] for key in ("epsilon", "delta", "adjacency", "unit")}
    if not is_same_json(spec["target"], promised):
        yield "the plan was made for another promise"
    if not is_same_json(spec["accountant"], evidence.accountant.value):
        yield "the plan was made for another accountant"
    if not is_same_json(spec["name"], document["campaign"]):
        yield "the plan is one of another improvement"
    if spec["start_model"] not in (None, evidence.start_model):
        yield "the plan improves other weights than the certificate says"
    adjacency = {evidence.target.adjacency.value}
    if evidence.start is not None:
        adjacency.add(evidence.start["promise"]["adjacency"])
        if evidence.start["promise"]["unit"] != evidence.target.unit.value:
            yield "the start protects another unit"
    if len(adjacency) != 1:
        yield "the start was certified under another adjacency"
    if own is None:
        return
    held = own.hold.body
    if own.hold.campaign != evidence.name:
        yield "another improvement was held"
    if digest(evidence.plan) != held["plan"]:
        yield "the plan is not the one whose digest was held"
    if not is_same_json({key: held[key] for key in promised}, promised):
        yield "another promise was held"
    if not is_same_json(held["accountant"], evidence.accountant.value):
        yield "another accountant was held"
    if before_from(held.get("before")) is None:
        yield "the hold does not say what was spent before"
    elif not _covers(before_from(held["before"]), evidence.before):
        yield "the hold counts another history of the start than its certificate"
    before = before_from(held["before"]) or evidence.before
    charged = [release_record(release) for release in evidence.releases]
    if not is_same_json(
        charged, [release_record(release) for release in _planned(spec["guidance"], before)]
    ):
        yield "the charges are not those of the plan, for everybody whom it reads"
    alone = spec["guidance"]["voters"] == "threshold" and spec["target"]["adjacency"] == "zero_out"
    if spec["guidance"]["support"]["moved"] != (1 if alone else 2):
        yield "the votes are charged for fewer counts than one record can move"


def _planned(guidance: Mapping[str, Any], before: PriorSpend) -> Iterator[Release]:
    """What a plan releases: both about everybody whom the start knew, in its last phase."""
    events = {
        "near-private/components": NoisyMoments.of_record(guidance["components"]),
        "near-private/support": NoisyCounts.of_record(guidance["support"]),
    }
    for name, event in events.items():
        charges = (Charge(cohorts=before.cohorts, event=event),)
        yield Release(name=name, kind=GUIDANCE, phase=before.last_phase, charges=charges)


def _covers(held: PriorSpend | None, certified: PriorSpend) -> bool:
    """Whether a hold counted all that the start's certificate lists, but for later attempts."""
    if held is None or held.campaign != certified.campaign or held.declared != certified.declared:
        return False
    counted = [before_record(PriorSpend(releases=(release,))) for release in held.releases]
    names = {release.name for release in held.releases}
    return all(
        before_record(PriorSpend(releases=(release,))) in counted
        for release in certified.releases
        if release.name in names
    ) and names <= {release.name for release in certified.releases}
