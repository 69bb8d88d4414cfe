"""What a vote between sites costs: one account for each site, over all who ask.

A batch is one release. It charges every enrolled site alike, whether it was there or not, as if
all labels of the largest batch had been asked: what it costs is settled beforehand, and one cohort
of the ledger, "0", is the records of each site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import (
    VOTING,
    Charge,
    Release,
    SkellamCounts,
    SkellamMajorities,
    SkellamScaledCounts,
    SkellamScaledMajorities,
)
from dpal.accounting.events.skellam_votes import LEAST_SIGMA, MOST_SIGMA
from dpal.accounting.votes.scaled_ballots import MOST_SCALED_SIGMA
from dpal.canonical import plain
from dpal.capc.messages import (
    GuardianAnswer,
    HiddenQuery,
    HiddenWeights,
    LastDeal,
    MaskedBallot,
    MaskedMargin,
    MaskedOutcome,
    Message,
    PaddedCounts,
    PaddedVotes,
    QuerierBallotDeal,
    QuerierDeal,
    SharesCounted,
    SiteBallotDeal,
    SiteBegins,
    SiteDeal,
    WantedShares,
)
from dpal.capc.strict_messages import (
    BatchCharged,
    SiteReady,
    kinds_to_querier,
    kinds_to_site,
)
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, Terms, batch_of
from dpal.planning.release_list import CertifiedList, ListedPlan, ListedSpec, certify_list
from dpal.privacy import Accountant, PrivacyTarget


def batch_name(number: int) -> str:
    """The release of a batch."""
    return f"votes/{number}"


def batch_event(terms: Terms) -> SkellamCounts | SkellamScaledCounts:
    """What a batch tells those who may collude, of the counts that one ballot can change.

    Where noisy counts are released, these. Else, without colluding sites, the answers. The site
    that deals the last comparison could tell who asks the noisy counts, and any may be it, so that
    otherwise these are charged. So they are in strict mode, where the guardian may do the same.
    """
    tells = terms.colluding or terms.tells_counts or terms.is_strict
    if terms.rule.entries:
        return _scaled_event(terms, tells=bool(tells))
    event = SkellamCounts if tells else SkellamMajorities
    return event(answers=terms.queries * terms.rule.changed, sigma=terms.charged_sigma)


def _scaled_event(terms: Terms, *, tells: bool) -> SkellamScaledCounts:
    """The same of scaled ballots: by the dearest change that one can make."""
    event = SkellamScaledCounts if tells else SkellamScaledMajorities
    rule = terms.rule
    return event(
        queries=terms.queries, entries=rule.entries, parts=rule.parts, sigma=terms.charged_sigma
    )


def batch_release(terms: Terms, number: int) -> Release:
    """A batch, and whom it charges."""
    charge = Charge(cohorts=("0",), event=batch_event(terms))
    return Release(name=batch_name(number), kind=VOTING, phase=0, charges=(charge,))


def certified_account(name: str, terms: Terms) -> CertifiedList:
    """All batches that may ever be asked, and the proof that they keep the promise.

    Raises:
      PlanRejected: they cost more than is promised.
    """
    releases = [batch_release(terms, number) for number in range(1, terms.batches + 1)]
    target = PrivacyTarget(epsilon=terms.epsilon, delta=terms.delta)
    tighter = batch_event(terms).renyi_is_tighter
    spec = ListedSpec(
        name=name,
        target=target,
        accountant=Accountant.RDP if tighter else Accountant.PLD,
        settings={"pool_size": len(terms.sites), "terms": plain(terms), **_holds_against(terms)},
    )
    return certify_list(ListedPlan.of(spec, releases))


def _holds_against(terms: Terms) -> dict[str, str]:
    """Who may collude; not in helper mode, whose certificates stay what they were."""
    if terms.has_shares:
        return {
            "assumes": "when sites' models were evaluated, the guardian colluded neither with who "
            "asks nor with a site"
        }
    if not terms.is_strict:
        return {}
    others = f", who asks and {terms.colluding} sites" if terms.colluding else " and who asks"
    return {"holds_against": f"the guardian{others} together: they find noisy counts"}


def epsilon_of_batches(terms: Terms, *, colluding: int) -> float | None:
    """What all batches would cost with so many colluding sites, at the same noise in all.

    Each site draws what these terms say; fewer honest sites have less noise together.

    Returns:
      Epsilon; None where there are too few sites, or noise is too little or too much to say.
    """
    honest = len(terms.sites) - colluding - terms.absent
    variance = terms.share_variance * max(0, honest) / terms.rule.parts**2
    sigma = (variance if terms.tells_counts else 2 * variance) ** 0.5
    most = MOST_SCALED_SIGMA if terms.rule.entries else MOST_SIGMA
    if honest < 2 or not LEAST_SIGMA <= (2 * variance) ** 0.5 <= most:
        return None
    other = replace(terms, colluding=colluding, sigma=sigma)
    many = [batch_release(other, number) for number in range(terms.batches)]
    accountant = Accountant.RDP if batch_event(other).renyi_is_tighter else Accountant.PLD
    target = PrivacyTarget(epsilon=terms.epsilon, delta=terms.delta)
    return campaign_epsilon(many, target, accountant=accountant)


def bytes_of_batch(terms: Terms) -> dict[str, tuple[int, int]]:
    """Bytes that a party receives and sends for one full batch: guardian, querier, and "site"."""
    batch = batch_of(terms, 1, terms.queries, terms.sites)
    sites = len(terms.sites)

    def size(*kinds: type[Message]) -> int:
        return sum(kind.size(batch) for kind in kinds)

    from_sites, to_sites = (size(*kinds) for kinds in _between(batch))
    to_querier, site_deal, to_guardian = 0, 0, size(PaddedVotes)
    if terms.is_strict:
        site_deal, to_guardian = size(BatchCharged), to_guardian + size(SiteReady)
    elif not terms.has_shares:
        to_querier, site_deal = size(QuerierDeal), size(SiteDeal)
    if terms.rule.second is not None and not terms.is_strict:
        to_querier += size(QuerierBallotDeal)
        site_deal += size(SiteBallotDeal)
    compared = () if terms.tells_counts else (LastDeal, MaskedMargin)
    answer = size(PaddedCounts if terms.tells_counts else GuardianAnswer)
    return {
        QUERIER: (
            to_querier + size(*compared[:1]) + answer + sites * from_sites,
            size(*compared[1:]) + sites * to_sites,
        ),
        GUARDIAN: (
            size(*compared) + sites * to_guardian,
            to_querier + answer + sites * site_deal,
        ),
        "site": (site_deal + to_sites, from_sites + to_guardian),
    }


def bytes_passed_on(terms: Terms) -> int:
    """Bytes of one full batch that the guardian gets for somebody else, and passes on."""
    batch = batch_of(terms, 1, terms.queries, terms.sites)
    pair = sum(kind.size(batch) for kinds in _between(batch) for kind in kinds)
    dealt = 0 if terms.tells_counts else LastDeal.size(batch)  # from the dealing site to who asks
    return len(terms.sites) * pair + dealt


def _between(batch: QueryBatch) -> tuple[Sequence[type[Message]], Sequence[type[Message]]]:
    """Messages from each site to who asks, and back."""
    if batch.is_strict:
        return kinds_to_querier(batch), kinds_to_site(batch)
    ballots = () if batch.rule.second is None else (MaskedBallot,)
    if batch.has_shares:
        return (SiteBegins, *(ballots or (SharesCounted,))), (WantedShares, *ballots)
    return (HiddenWeights, MaskedOutcome, *ballots), (HiddenQuery, *ballots)
