"""The certificate of what an ensemble of teachers has told, and may still tell.

It holds the plan of the account and all its ledger entries. The promise covers every block
that was held, released or not; what was released so far stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dpal.accounting import oracle_votes
from dpal.accounting.before import Before, total_epsilon, total_second_opinion
from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import (
    NoisyMajorities,
    NoisyVotes,
    Release,
    VotesWithin,
    to_record,
)
from dpal.canonical import digest
from dpal.certificate.document import FORMAT, sealed_certificate
from dpal.certificate.sources import Sources, ledger_record, promise_record, sources_in
from dpal.certificate.words import statements
from dpal.errors import CertificateError
from dpal.ledger.entries import Entry
from dpal.ledger.holding import before_from
from dpal.ledger.releases import release_from
from dpal.privacy import PrivacyTarget

KIND = "voting"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All that the certificate is made of.

    Attributes:
      sources: the account's entries and its plan.
      model: file and digest of a student; None where there is none.
    """

    sources: Sources
    model: Mapping[str, str] | None


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
      CertificateError: there is no finite epsilon to certify.
    """
    sources = sources_in(ledger, name, plan)
    content = derived(Parts(sources=sources, model=model), form)
    kept = content["epsilon"][content["promise"]["accountant"]]
    if not (math.isfinite(kept) and kept <= sources.target.epsilon):
        raise CertificateError(
            f"the votes of {name} cost epsilon {kept:.4f} and {sources.target.epsilon:g} was "
            "promised; they are not certified"
        )
    return sealed_certificate({**content, "versions": dict(versions)})


def derived(parts: Parts, form: int = FORMAT) -> dict[str, Any]:
    """All of a certificate but its versions and its digest."""
    sources = parts.sources
    target, spec = sources.target, sources.plan["spec"]
    held = [release_from(one) for one in sources.hold.body["releases"]]
    before = before_from(sources.hold.body.get("before")) or Before()
    total = epsilons(held, target, before)
    whole = list(sources.releases) == held
    content = {
        "format": form,
        "kind": KIND,
        "campaign": sources.hold.campaign,
        "promise": promise_record(target, sources.accountant),
        "epsilon": total,
        "spent": total if whole else epsilons(sources.releases, target, before),
        "before": before.campaign,
        "rule": spec["rule"],
        "teachers": spec["teachers"],
        "blocks": list(spec["blocks"]),
        "summary_sigma": spec["summary_sigma"],
        "bound": spec["bound"],
        "released": [
            {"release": one.name, **to_record(charge.event)}
            for one in sources.releases
            for charge in one.charges
        ],
        "statements": statements(KIND, form),
        "plan": {"digest": digest(sources.plan), "content": sources.plan},
        "ledger": ledger_record(sources, form),
    }
    if parts.model is None:
        return content
    student = {"release": "student", **parts.model}
    return {**content, "model": student, "models": [student]}


def epsilons(
    releases: Sequence[Release], target: PrivacyTarget, before: Before
) -> dict[str, float]:
    """What releases cost by both accountants, and by programs that share nothing with ours.

    `pld` and `dp_accounting` count as if the noisy counts themselves were released;
    `rdp` and `renyi_oracle` count what was.
    """
    return dict(_totals(tuple(releases), target, before))


@lru_cache(maxsize=32)
def _totals(
    releases: tuple[Release, ...], target: PrivacyTarget, before: Before
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
        "renyi_oracle": oracle_votes.epsilon_of_votes(events, delta=target.delta),
    }


def votes_in(releases: Iterable[Release]) -> list[NoisyVotes | NoisyMajorities | VotesWithin]:
    """The events of releases, all of which are votes.

    Raises:
      CertificateError: one is none.
    """
    found = [charge.event for one in releases for charge in one.charges]
    votes = [one for one in found if isinstance(one, NoisyVotes | NoisyMajorities | VotesWithin)]
    if len(votes) != len(found):
        raise CertificateError("an account of teachers releases votes only")
    return votes
