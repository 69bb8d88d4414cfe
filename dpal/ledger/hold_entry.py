"""What a hold says: the promise, the plan's releases, what was spent before, blocks taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dpal.accounting.events import Release
from dpal.accounting.prior_spend import PriorSpend, declared_of
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry
from dpal.ledger.release_json import release_from, release_record
from dpal.privacy import Accountant, PrivacyTarget

# All that a hold of any version says; certificates with another key in theirs are refused.
HOLD_KEYS = frozenset(
    {"plan", "pool", "epsilon", "delta", "adjacency", "unit", "accountant", "releases", "data"}
    | {"before"}
)


def hold_body(
    target: PrivacyTarget,
    plan_digest: str,
    pool_commitment: str,
    planned: Sequence[Release],
    *,
    accountant: Accountant,
    data: DataHold | None,
    before: PriorSpend | None,
) -> dict[str, Any]:
    """The body of a hold, as JSON values; see `CampaignLedger.hold`."""
    body = {
        "plan": plan_digest,
        "pool": pool_commitment,
        "epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": accountant.value,
        "releases": [release_record(release) for release in planned],
        "data": None if data is None else data.record(),
    }
    return body if before is None else {**body, "before": before_record(before)}


def before_record(before: PriorSpend) -> dict[str, Any]:
    """What was spent before, as JSON values."""
    return {
        "campaign": before.campaign,
        "releases": [release_record(release) for release in before.releases],
        "declared": None if before.declared is None else asdict(before.declared),
    }


def before_from(record: Mapping[str, Any] | None) -> PriorSpend | None:
    """Reads what `before_record` wrote."""
    if record is None:
        return None
    return PriorSpend(
        campaign=record["campaign"],
        releases=tuple(release_from(release) for release in record["releases"]),
        declared=declared_of(record["declared"]),
    )


def started_from(held: Mapping[str, Any]) -> str:
    """The campaign whose spending a hold counts as well; empty where there is none."""
    return str((held.get("before") or {}).get("campaign") or "")


def spent_before(held: Mapping[str, Any] | None, entries: Iterable[Entry]) -> PriorSpend | None:
    """What was spent before a hold, with what its campaign was charged in the meantime.

    A start may still be trained when its improvement is held. Whatever it was charged that the
    hold did not count, such as a training that was thrown away and begun again, counts as well.
    """
    before = before_from((held or {}).get("before"))
    if before is None or before.campaign is None:
        return before
    own = [entry for entry in entries if entry.campaign == before.campaign]
    return before.with_more(counted_releases(own))
