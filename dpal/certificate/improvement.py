"""The certificate of a model that was improved with public records.

It holds the start's certificate whole (or what was declared of the start), the ledger entries of
whatever was released about private records beyond it, and the digest of the improved weights.
Fine-tuning on public records is post-processing: no entry stands for it, and the digest of its
weights is this certificate's own statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from dpal.accounting.before import (
    Before,
    Declared,
    total_epsilon,
    total_second_opinion,
)
from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import Release, to_record
from dpal.canonical import digest
from dpal.certificate.document import FORMAT, entry_of, sealed_certificate
from dpal.certificate.promise import is_paper, pool_size_of
from dpal.certificate.sources import Sources, ledger_record, promise_record
from dpal.certificate.words import statements
from dpal.errors import CertificateError
from dpal.ledger.entries import GENESIS, Kind
from dpal.ledger.releases import release_of
from dpal.privacy import PrivacyTarget

KIND = "improvement"

CHOSEN = {
    "free": "nothing was released beyond the start",
    "beforehand": "the noise was fixed before the start released anything",
    "afterwards": "the noise was fixed after the start was released; the total assumes that "
    "what the start released had no say in it",
}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All that an improvement's certificate is made of.

    Attributes:
      name: of the improvement.
      promise: what was promised, the start included.
      accountant: by which.
      start: the start's certificate; None where its cost was declared.
      declared: what was declared instead.
      start_model: digest of the weights that were improved.
      sources: the improvement's own ledger entries; None where nothing was released.
      plan: the plan as JSON.
      model: file and digest of the improved weights.
    """

    name: str
    promise: PrivacyTarget
    accountant: Accountant
    start: Mapping[str, Any] | None
    declared: Declared | None
    start_model: str
    sources: Sources | None
    plan: Mapping[str, Any]
    model: Mapping[str, str]

    @property
    def before(self) -> Before:
        """What the start cost, as its own certificate's entries say."""
        if self.start is None:
            return Before(declared=self.declared)
        entries = [entry_of(record) for record in self.start["ledger"]["entries"]]
        charged = tuple(release_of(entry) for entry in entries if entry.kind is Kind.RESERVE)
        return Before(campaign=str(self.start["campaign"]), releases=charged)

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was released beyond the start, in order."""
        return () if self.sources is None else self.sources.releases


def improvement_certificate(
    parts: Parts, *, versions: Mapping[str, str], form: int = FORMAT
) -> dict[str, Any]:
    """Certifies an improved model.

    Args:
      parts: what it is made of.
      versions: of the programs; informative.
      form: number of the format.

    Raises:
      CertificateError: there is no finite epsilon to certify.
    """
    content = derived(parts, form)
    if not all(math.isfinite(value) for value in content["epsilon"].values()):
        raise CertificateError(f"improvement {parts.name} has no finite epsilon to certify")
    kept_by = "rdp" if parts.accountant is Accountant.RDP else "pld"
    if not content["epsilon"][kept_by] <= parts.promise.epsilon:
        raise CertificateError(
            f"improvement {parts.name} and its start have spent {content['epsilon'][kept_by]:.4f} "
            f"and {parts.promise.epsilon:g} was promised; it is not certified, do not use it"
        )
    return sealed_certificate({**content, "versions": dict(versions)})


def derived(parts: Parts, form: int = FORMAT) -> dict[str, Any]:
    """All of a certificate but its versions and its digest."""
    target, before, releases = parts.promise, parts.before, parts.releases
    choice = parts.plan["spec"]["choice"]
    paper = is_paper(target.delta, pool_size_of(parts.start or {}))
    return {
        "format": form,
        "kind": KIND,
        "campaign": parts.name,
        "promise": promise_record(target, parts.accountant),
        "epsilon": _epsilons(before, releases, target),
        "start": {
            "model": parts.start_model,
            "epsilon": _epsilons(before, (), target),
            "declared": None if parts.declared is None else asdict(parts.declared),
            "certificate": parts.start,
        },
        "method": choice["method"],
        "labels": choice["labels"],
        "released": [
            {"release": one.name, **to_record(charge.event), "cohorts": list(charge.cohorts)}
            for one in releases
            for charge in one.charges
        ],
        "noise_chosen": CHOSEN[_chosen(parts)],
        "statements": statements(KIND, form, paper=paper),
        "model": {"release": "fine-tuning", **parts.model},
        "models": [{"release": "fine-tuning", **parts.model}],
        "plan": {"digest": digest(parts.plan), "content": parts.plan},
        "ledger": _ledger(parts, form),
    }


def _epsilons(
    before: Before, releases: Sequence[Release], target: PrivacyTarget
) -> dict[str, float]:
    return dict(_totals(before, tuple(releases), target))


@lru_cache(maxsize=32)
def _totals(
    before: Before, releases: tuple[Release, ...], target: PrivacyTarget
) -> dict[str, float]:
    return {
        "pld": float(total_epsilon(before, releases, target)),
        "rdp": float(total_epsilon(before, releases, target, accountant=Accountant.RDP)),
        "dp_accounting": float(total_second_opinion(before, releases, target)),
    }


def _chosen(parts: Parts) -> str:
    """When the noise of what was released was fixed, by the numbers of the entries."""
    sources = parts.sources
    if sources is None:
        return "free"
    if parts.start is None:
        return "afterwards"
    first = min(
        (
            int(one["sequence"])
            for one in parts.start["ledger"]["entries"]
            if one["kind"] == Kind.RESERVE.value
        ),
        default=0,
    )
    same_ledger = parts.start["ledger"]["identity"] == sources.identity
    return "beforehand" if same_ledger and sources.hold.sequence < first else "afterwards"


def _ledger(parts: Parts, form: int) -> dict[str, Any]:
    sources = parts.sources
    if sources is not None:
        return ledger_record(sources, form)
    head = {"sequence": 0, "digest": GENESIS}
    if parts.start is not None:
        head = dict(parts.start["ledger"]["head"])
    nothing: dict[str, Any] = {"identity": None, "opening": None, "head": head, "entries": []}
    return nothing if form == 1 else {**nothing, "adoptions": []}
