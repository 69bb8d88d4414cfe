"""Other campaigns that are measured on the same protected validation file: nothing adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.files.artifacts import campaigns_of
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign import Campaign
from dpal.runs.progress_logging import notify


def tell_of_other_measurements(campaign: Campaign) -> None:
    """Says what campaigns of this artifacts folder promise the same validation records together."""
    own = campaign.certified.summary().get("validation")
    if own is None:
        return
    file = _measured_in(with_absolute_paths(campaign.config).data.model_dump(mode="json"))
    measured = {
        folder.name: plan
        for folder in campaigns_of(campaign.runtime.artifacts)
        if folder.name != campaign.config.name
        and (plan := _measured_on(folder.read_record(), file)) is not None
    }
    openly = [name for name, plan in measured.items() if "validation" not in plan]
    others = {name: plan for name, plan in measured.items() if "validation" in plan}
    if openly:
        notify(
            f"note: figures on {file} leave without noise in {', '.join(openly)}: no epsilon holds "
            "for its records, whatever is promised here"
        )
    if others:
        epsilon = own["epsilon"] + sum(plan["validation"]["epsilon"] for plan in others.values())
        delta = campaign.plan.target.delta + sum(plan["delta"] for plan in others.values())
        notify(
            f"note: {file} was measured on by {', '.join(others)} as well: its records may lose "
            f"epsilon {epsilon:.4f} at delta {delta:.3g} in all, and nothing limits that"
        )


def _measured_on(record: Mapping[str, Any], file: str) -> Mapping[str, Any] | None:
    """The plan of a campaign that is measured on a file; None of any other."""
    plan: Mapping[str, Any] = record.get("plan", {})
    data = record.get("config", {}).get("data", {})
    return plan if data and _measured_in(data) == file else None


def _measured_in(data: Mapping[str, Any]) -> str:
    """The file that figures are of: its own, or the pool's of which a share is held out."""
    place = data.get("validation") or data.get("pool")
    return ", ".join(place) if isinstance(place, list) else str(place)
