"""One builder and one verifier of certificates; a kind says only what is special in its own.

Whoever writes a certificate and whoever checks one derive it by the same code from the same
evidence, so that a certificate can say nothing but what follows from its ledger entries and from
the plan whose digest was held before the start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.events import Release
from dpal.canonical import digest
from dpal.certificate.check_against import (
    Model,
    PoolCommitment,
    check_ledger,
    check_model,
    check_pool,
)
from dpal.certificate.check_outcome import MALFORMED, Check, any_failed, unchecked, unreadable_check
from dpal.certificate.check_seal_and_entries import check_seal
from dpal.certificate.compare_with_derived import Difference, Place, differences
from dpal.certificate.data_set_limit_checks import check_shares, check_together
from dpal.certificate.evidence import LedgerEvidence, ledger_record, promise_record
from dpal.certificate.promise_checks import CAMPAIGN, Figure, check_promise, pool_size_of
from dpal.certificate.read_and_seal import FORMAT, sealed_certificate
from dpal.errors import CertificateError
from dpal.ledger.entries import Entry
from dpal.privacy import Accountant, PrivacyTarget


class Evidence(Protocol):
    """What a certificate is made of: from the ledger to write it, from itself to check it."""

    @property
    def name(self) -> str:
        """Of the run."""

    @property
    def target(self) -> PrivacyTarget:
        """What it promised."""

    @property
    def accountant(self) -> Accountant:
        """By which the promise is kept."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """Its plan as JSON."""

    @property
    def own(self) -> LedgerEvidence | None:
        """Its entries of the ledger; None where it released nothing."""

    @property
    def charged(self) -> tuple[Release, ...]:
        """Everything that its total is of."""


E = TypeVar("E", bound=Evidence)


class CertificateKind(ABC, Generic[E]):
    """One kind of certificate.

    Attributes:
      name: as certificates say it.
      bounds: what each accountant bounds.
      can_start: whether an improvement may start from the model that it is about.
    """

    name: ClassVar[str]
    can_start: ClassVar[bool] = False
    bounds: ClassVar[Mapping[Accountant, Figure]] = CAMPAIGN

    @abstractmethod
    def read(self, document: Mapping[str, Any]) -> E:
        """Reads the evidence from a certificate; nothing is believed yet."""

    @abstractmethod
    def content(self, evidence: E, form: int) -> dict[str, Any]:
        """What this kind states beside promise, plan and ledger; with the figures as `epsilon`."""

    @abstractmethod
    def check_evidence(
        self, evidence: E, document: Mapping[str, Any], ledger: Sequence[Entry] | None
    ) -> list[Check]:
        """Whether entries, releases and plan fit each other, before anything is added up."""

    @abstractmethod
    def room(self, place: Place, apart: float) -> float | None:
        """How far the figure at a place may lie apart; None where none stands."""

    @abstractmethod
    def check_statements(
        self, mismatches: Sequence[Difference], follows: Mapping[str, Any]
    ) -> list[Check]:
        """Whether it says what follows, and no more."""

    @abstractmethod
    def check_figures(
        self,
        document: Mapping[str, Any],
        follows: Mapping[str, Any],
        evidence: E,
        mismatches: Sequence[Difference],
        apart: float,
    ) -> list[Check]:
        """Whether its epsilons are what the events cost, by two accountants."""

    def ledger(self, evidence: E, form: int) -> dict[str, Any]:
        """What is shown of the ledger: all of the run's entries.

        Raises:
          CertificateError: it has none.
        """
        if evidence.own is None:
            raise CertificateError(f"{evidence.name} has no entries to certify")
        return ledger_record(evidence.own, form)

    def second_opinions(
        self, evidence: E, costs: Mapping[str, float], apart: float
    ) -> dict[str, float]:
        """How far other programs' figures may lie above the promise, by their names."""
        del evidence, costs
        return {"dp_accounting": apart}

    def check_blocks(self, evidence: E, own: LedgerEvidence) -> Check:
        """Whether its part of a data set is as large as its events make it."""
        del evidence
        return check_shares(own)

    def covered(self, own: LedgerEvidence, ledger: Sequence[Entry]) -> LedgerEvidence:
        """What of the ledger it covers."""
        del ledger
        return own

    def derive(self, evidence: E, form: int = FORMAT) -> dict[str, Any]:
        """All of a certificate but its versions and its digest.

        Args:
          evidence: that it follows from.
          form: number of the format.

        Raises:
          CertificateError: the evidence is not that of one run.
        """
        return {
            "format": form,
            "campaign": evidence.name,
            "promise": promise_record(evidence.target, evidence.accountant),
            **self.content(evidence, form),
            "plan": {"digest": digest(evidence.plan), "content": evidence.plan},
            "ledger": self.ledger(evidence, form),
        }

    def build(
        self, evidence: E, *, versions: Mapping[str, str], form: int = FORMAT
    ) -> dict[str, Any]:
        """Certifies a run.

        Args:
          evidence: that the certificate follows from.
          versions: of the programs that ran it; informative.
          form: number of the format.

        Returns:
          A sealed certificate.

        Raises:
          CertificateError: it cost more than was promised, or no finite epsilon.
        """
        content = self.derive(evidence, form)
        costs, promised = content["epsilon"], evidence.target.epsilon
        if not all(map(math.isfinite, costs.values())):
            raise CertificateError(f"{evidence.name} has no finite epsilon to certify")
        kept = costs[self.bounds[evidence.accountant].key]
        if not kept <= promised:
            raise CertificateError(
                f"{evidence.name} cost epsilon {kept:.4f} and {promised:g} was promised; it is "
                "not certified, do not use it"
            )
        return sealed_certificate({**content, "versions": dict(versions)})

    def verify(
        self,
        document: Mapping[str, Any],
        *,
        ledger: Sequence[Entry] | None = None,
        model: Model | None = None,
        pool: PoolCommitment | None = None,
        no_pool: str = "no pool given (--data)",
    ) -> list[Check]:
        """Checks a certificate, alone and against whatever it can be held against.

        Without the ledger this proves that the certificate agrees with itself and that its
        events keep its promise; that these were all events, only the ledger can show.

        Args:
          document: from `read_certificate`.
          ledger: all entries of the ledger, of all runs.
          model: a model that came with it.
          pool: the pool's file.
          no_pool: why there is no `pool`.

        Returns:
          One line a check. What could not be checked says why; nothing may be inferred from it.
        """
        seal = check_seal(document)
        try:
            evidence = self.read(document)
        except MALFORMED as error:
            return [seal, unreadable_check("ledger entries", error)]
        try:
            checks = self.check_evidence(evidence, document, ledger)
        except MALFORMED as error:
            return [seal, unreadable_check("plan", error)]
        if any_failed(checks):
            reason = "its entries and its plan are not sound, so there is nothing to add up"
            return [seal, *checks, unchecked("epsilon", reason)]
        try:
            follows = self.derive(evidence, document["format"])
            checks += self._check_content(document, follows, evidence)
            sealed = {**follows, "digest": document.get("digest")}
            checks += self._check_against(sealed, evidence, ledger, model)
            if "pool" in follows:
                checks.append(check_pool(follows, pool, no_pool))
        except MALFORMED as error:
            checks.append(unreadable_check("statements", error))
        return [seal, *checks]

    def _check_content(
        self, document: Mapping[str, Any], follows: Mapping[str, Any], evidence: E
    ) -> list[Check]:
        apart = tolerance(evidence.charged, evidence.target)
        mismatches, figures = differences(document, follows, lambda place: self.room(place, apart))
        costs = follows["epsilon"]
        return [
            *self.check_statements(mismatches, follows),
            *self.check_figures(document, follows, evidence, figures, apart),
            check_promise(
                costs,
                evidence.target,
                evidence.accountant,
                self.bounds,
                second=self.second_opinions(evidence, costs, apart),
                pool_size=pool_size_of(follows),
            ),
        ]

    def _check_against(
        self,
        sealed: Mapping[str, Any],
        evidence: E,
        ledger: Sequence[Entry] | None,
        model: Model | None,
    ) -> list[Check]:
        own, checks = evidence.own, []
        if own is not None:
            takes = own.hold.body.get("data") is not None
            if takes:
                checks.append(self.check_blocks(evidence, own))
            checks.append(check_ledger(self.covered(own, ledger or ()), ledger))
            if takes or "other_campaigns" in sealed:
                checks.append(check_together(own, ledger))
        if "model" in sealed or model is not None:
            checks.append(check_model(sealed, model))
        return checks
