"""What a run's total is of: everything that it could have released by the time it ended."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.accounting.events import Release
from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.model_choice_and_stopping import is_stopped
from dpal.ledger.release_json import release_from, release_of
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit


def counted_releases(
    entries: Sequence[Entry], *, before: PriorSpend | None = None
) -> tuple[Release, ...]:
    """What was reserved; and where a run stopped by its rule, also what it could have gone on to.

    When to stop was decided in view of what was released. A tight epsilon of what was reserved
    would hold if nobody had looked; that of all that the plan could release holds whoever looks
    (docs/guarantee.md, "The end chosen by a rule").

    Args:
      entries: of one run, in order.
      before: what was spent before, and counts towards its promise.
    """
    reserved = tuple(release_of(entry) for entry in entries if entry.kind is EntryKind.RESERVE)
    ends = [entry for entry in entries if entry.kind is EntryKind.END]
    if not any(is_stopped(entry.body) for entry in ends):
        return reserved
    held = next(entry.body for entry in entries if entry.kind is EntryKind.HOLD)
    planned = [release_from(record) for record in held["releases"]]
    begun = {planned_name(release.name) for release in reserved}
    rest = [release for release in planned if release.name not in begun]
    if {release.name for release in reserved} <= begun:
        return (*reserved, *rest)
    # A training that was drawn twice takes its room from the end of the plan: what no longer fits
    # into the promise would have been refused.
    target = PrivacyTarget(
        epsilon=held["epsilon"],
        delta=held["delta"],
        adjacency=Adjacency(held["adjacency"]),
        unit=Unit(held["unit"]),
    )
    accountant = Accountant(held["accountant"])
    while rest:
        whole = (*reserved, *rest)
        if total_epsilon(before, whole, target, accountant=accountant) <= target.epsilon:
            break
        rest.pop()
    return (*reserved, *rest)
