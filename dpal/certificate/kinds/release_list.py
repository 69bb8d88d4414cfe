"""The certificate of a run whose plan is a list of releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.canonical import digest
from dpal.certificate.check_outcome import Check, check_from_faults
from dpal.certificate.check_seal_and_entries import (
    check_entries,
    check_releases,
    foreign_plan_faults,
)
from dpal.certificate.compare_with_derived import Difference, Place
from dpal.certificate.evidence import LedgerEvidence, evidence_from
from dpal.certificate.kinds.certificate_kind import CertificateKind
from dpal.certificate.read_and_seal import is_same_json
from dpal.certificate.recomputed_epsilons import SAME_ENGINE, by_dp_accounting
from dpal.certificate.sentences import DATA_SET, NO_DATA_SET, statements
from dpal.ledger.entries import Entry, EntryKind
from dpal.privacy import Accountant

_MODEL = ".safetensors"


class ListedCertificate(CertificateKind[LedgerEvidence]):
    """Runs of any kind that release what a list says."""

    name = "listed"

    def read(self, document: Mapping[str, Any]) -> LedgerEvidence:
        """Reads its entries and its plan."""
        return evidence_from(document)

    def content(self, evidence: LedgerEvidence, form: int) -> dict[str, Any]:
        """What was released, what that cost, models, what is assumed."""
        releases, target, held = evidence.releases, evidence.target, evidence.hold.body
        models = _models(evidence)
        return {
            "kind": self.name,
            "epsilon": {
                "pld": campaign_epsilon(releases, target),
                "rdp": campaign_epsilon(releases, target, accountant=Accountant.RDP),
                "dp_accounting": by_dp_accounting(releases, target),
            },
            "pool": {"size": evidence.plan["spec"]["settings"]["pool_size"],
                     "commitment": held["pool"]},
            "data": held.get("data"),
            "other_campaigns": DATA_SET if held.get("data") else NO_DATA_SET,
            **({"models": models, "model": models[-1]} if models else {}),
            "statements": statements(self.name, form),
        }  # fmt: skip

    def check_evidence(
        self,
        evidence: LedgerEvidence,
        document: Mapping[str, Any],
        ledger: Sequence[Entry] | None,
    ) -> list[Check]:
        """Entries, releases, and whether what was held is the plan's list."""
        del ledger
        fine = f"digest {digest(evidence.plan)[:12]}, its list is what was held"
        return [
            check_entries(evidence, document["ledger"]),
            check_releases(evidence, is_open="terms" in evidence.plan["spec"]["settings"]),
            check_from_faults("plan", _plan_faults(evidence), fine),
        ]

    def room(self, place: Place, apart: float) -> float | None:
        """The figures of the total."""
        if len(place) == 2 and place[0] == "epsilon":
            return apart if place[1] == "dp_accounting" else SAME_ENGINE
        return None

    def check_statements(
        self, mismatches: Sequence[Difference], follows: Mapping[str, Any]
    ) -> list[Check]:
        """All in one line."""
        del follows
        return [
            check_from_faults(
                "statements", (mismatch.says for mismatch in mismatches), "promise, pool, models"
            )
        ]

    def check_figures(
        self,
        document: Mapping[str, Any],
        follows: Mapping[str, Any],
        evidence: LedgerEvidence,
        mismatches: Sequence[Difference],
        apart: float,
    ) -> list[Check]:
        """The total by our accountants and by dp-accounting."""
        del document, evidence
        costs = follows["epsilon"]
        second = abs(costs["pld"] - costs["dp_accounting"])
        return [
            check_from_faults(
                "epsilon, our accountant",
                (mismatch.says for mismatch in mismatches),
                f"{costs['pld']:.4f} by PLD, {costs['rdp']:.4f} by RDP, as stated",
            ),
            check_from_faults(
                "epsilon, dp-accounting",
                () if second <= apart else ["it costs something else by dp-accounting"],
                f"{costs['dp_accounting']:.4f} by PLD",
            ),
        ]


LISTED = ListedCertificate()


def _models(evidence: LedgerEvidence) -> list[dict[str, str]]:
    """Weights among what was committed, by release."""
    return [
        {"release": entry.release, "file": name, "sha256": sha256}
        for entry in evidence.entries
        if entry.kind is EntryKind.COMMIT
        for name, sha256 in sorted(entry.body["artifacts"].items())
        if name.endswith(_MODEL)
    ]


def _plan_faults(evidence: LedgerEvidence) -> Iterator[str]:
    plan, held = evidence.plan, evidence.hold.body
    yield from foreign_plan_faults(evidence)
    if not is_same_json(plan["listed"], held["releases"]):
        yield "the plan lists other releases than were held"
    if plan["spec"]["accountant"] != held["accountant"]:
        yield "the plan is kept by another accountant than the one held"
    if held.get("before") is not None:
        yield "the hold counts what was released before, and this kind of certificate does not"
