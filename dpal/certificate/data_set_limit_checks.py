"""Checks of what a campaign takes of a registered data set, next to other campaigns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.events import Release, scale_sampling_rate
from dpal.certificate.check_outcome import Check, check_from_faults, unchecked
from dpal.certificate.evidence import LedgerEvidence
from dpal.certificate.recomputed_epsilons import by_dp_accounting
from dpal.certificate.sentences import NO_DATA_SET
from dpal.ledger.data_set_accounts import Basis, BlockShare, Limit, data_sets, limit_of, shares_in
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.release_json import release_from
from dpal.privacy import PrivacyTarget

# Epsilon of releases by another program, and by how much it may be above ours.
SecondOpinion = Callable[[tuple[Release, ...], PrivacyTarget], tuple[float, float]]


def by_dp_accounting_within(
    releases: tuple[Release, ...], target: PrivacyTarget
) -> tuple[float, float]:
    """The opinion of dp-accounting's loss distributions."""
    return by_dp_accounting(releases, target), tolerance(releases, target)


def check_shares(
    evidence: LedgerEvidence,
    *,
    releases: tuple[Release, ...] | None = None,
    second: SecondOpinion = by_dp_accounting_within,
) -> Check:
    """Whether a campaign's part of every block is as large as its events make it.

    Args:
      evidence: the campaign's entries.
      releases: those that are certified; None for what was reserved.
      second: an opinion that shares nothing with our accountants.
    """
    data = evidence.hold.body.get("data")
    if data is None:
        return unchecked("blocks of the data set", NO_DATA_SET)
    limit, shares = limit_of(data["limit"]), shares_in(evidence.hold.body)
    certified = evidence.releases if releases is None else releases
    parts = ", ".join(f"block {share.block}: {_taken(share, limit):.4f}" for share in shares)
    return check_from_faults(
        "blocks of the data set",
        _share_faults(evidence, limit, certified, second),
        f"{data['name']}, epsilon at delta {limit.filter.delta:.4g}: {parts}; the limit is "
        f"{limit.filter.epsilon:g}",
    )


def check_together(evidence: LedgerEvidence, ledger: Sequence[Entry] | None) -> Check:
    """Whether all campaigns of the ledger together keep the limit of the data set."""
    data = evidence.hold.body.get("data")
    if data is None:
        return unchecked("other campaigns", NO_DATA_SET)
    if ledger is None:
        return unchecked("other campaigns", "no ledger given (--ledger)")
    fine = f"all campaigns on {data['name']} together stay within its limit"
    return check_from_faults("other campaigns", _sum_faults(data["name"], ledger), fine)


def _taken(share: BlockShare, limit: Limit) -> float:
    sole = share.basis is Basis.SOLE
    return share.epsilon if sole else limit.filter.epsilon_of(share.amount)


def _share_faults(
    evidence: LedgerEvidence, limit: Limit, releases: tuple[Release, ...], second: SecondOpinion
) -> Iterator[str]:
    target = evidence.target
    if (limit.adjacency, limit.unit) != (target.adjacency, target.unit):
        yield "the campaign and the data set's limit speak of different changes of the data"
    planned = [release_from(record) for record in evidence.hold.body["releases"]]
    cost = _Cost(target=target, planned=planned, releases=releases, second=second)
    stated = [evidence.hold, *(entry for entry in evidence.entries if entry.kind is EntryKind.END)]
    for entry in stated:
        name = "held" if entry.kind is EntryKind.HOLD else "used"
        for share in shares_in(entry.body):
            yield from _too_small(share, cost, limit, name)
            if share.basis is Basis.RENYI and not share.amount.within(limit.filter.limit):
                yield f"block {share.block}: more is {name} than its whole limit"


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """What is certified, and who says what it costs."""

    target: PrivacyTarget
    planned: Sequence[Release]
    releases: tuple[Release, ...]
    second: SecondOpinion


def _too_small(share: BlockShare, cost: _Cost, limit: Limit, name: str) -> Iterator[str]:
    """A share below what the events cost, by our accountant or by another program."""
    target = cost.target
    met = tuple(scale_sampling_rate(release, share.participation) for release in cost.releases)
    taken, allowed = _taken(share, limit), limit.filter
    if share.basis is Basis.RENYI:
        needed = allowed.charge_of_ended(
            cost.planned, cost.releases, target.adjacency, participation=share.participation
        )
        if not needed.within(share.amount):
            yield f"block {share.block}: less is {name} than the events take of it"
    elif not taken <= allowed.epsilon:
        yield f"block {share.block}: its only campaign takes more than the limit"
    at_limit = replace(target, epsilon=max(taken, 1e-3), delta=allowed.delta)
    epsilon, apart = cost.second(met, at_limit)
    if not epsilon <= taken + apart:
        yield (
            f"block {share.block}: epsilon {taken:.4f} is {name}, dp-accounting finds "
            f"{epsilon:.4f}: too little"
        )


def _sum_faults(name: str, ledger: Sequence[Entry]) -> Iterator[str]:
    registered = data_sets(ledger)
    if name not in registered:
        yield f"data set {name} is not registered in this ledger"
        return
    limit = registered[name].limit
    for block in registered[name].blocks:
        if block.sole is not None:
            if set(block.campaigns) != {block.sole}:
                yield f"block {block.block} was taken whole by {block.sole}, and by others, too"
            elif not block.epsilon_taken(limit) <= limit.filter.epsilon:
                yield f"block {block.block}: its only campaign takes more than the limit"
        elif not block.taken.within(limit.filter.limit):
            yield f"block {block.block}: {', '.join(block.campaigns)} take more than its limit"
