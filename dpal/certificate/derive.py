"""Everything that a certificate states, derived from ledger entries and the plan they name.

Whoever writes a certificate and whoever checks one run this, so that a certificate can say
nothing but what follows from the entries. No planner is asked: the plan is read as JSON,
and matters only as far as the digest that was held before the start commits to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpal.accounting.events import NEVER_SELECTED, Release, to_record
from dpal.certificate.document import FORMAT
from dpal.certificate.figures import figures_of
from dpal.certificate.promise import is_paper
from dpal.certificate.sources import Sources, ledger_record, promise_record
from dpal.certificate.words import DATA_SET, NO_DATA_SET, WHO_SEES, statements
from dpal.errors import CertificateError
from dpal.ledger.entries import Kind

_MODEL = "model.safetensors"


def cohorts_of(plan: dict[str, Any]) -> tuple[str, ...]:
    """Names of all cohorts in order of entry, the never-selected last."""
    return (*(str(phase["index"]) for phase in plan["phases"]), NEVER_SELECTED)


def events_of(cohort: str, releases: Sequence[Release]) -> list[dict[str, Any]]:
    """Everything that happened to a cohort, in order, with mechanism and parameters."""
    return [
        {"release": release.name, **to_record(charge.event)}
        for release in releases
        for charge in release.charges
        if cohort in charge.cohorts
    ]


def derived(sources: Sources, form: int = FORMAT) -> dict[str, Any]:
    """All of a certificate but its versions and its digest.

    Args:
      sources: entries and plan.
      form: number of the format.

    Raises:
      CertificateError: the entries are not those of one campaign.
    """
    held, target, plan = sources.hold.body, sources.target, sources.plan
    releases, names = sources.releases, cohorts_of(plan)
    figures = figures_of(releases, target, names)
    models = _models(sources)
    return {
        "format": form,
        "campaign": sources.hold.campaign,
        "promise": promise_record(target, sources.accountant),
        "epsilon": figures.campaign,
        "selection": {"mode": sources.mode, "seen_by": WHO_SEES[sources.mode]},
        "pool": {"size": plan["spec"]["pool_size"], "commitment": held["pool"]},
        "data": held.get("data"),
        "other_campaigns": DATA_SET if held.get("data") else NO_DATA_SET,
        "cohorts": [
            {
                "cohort": name,
                "planned_size": size,
                **figures.cohorts[name],
                "events": events_of(name, releases),
            }
            for name, size in zip(names, _sizes(plan), strict=True)
        ],
        "models": models,
        "model": models[-1],
        **statements("campaign", form, paper=is_paper(target.delta, plan["spec"]["pool_size"])),
        "plan": {"digest": held["plan"], "content": plan},
        "ledger": ledger_record(sources, form),
    }


def _sizes(plan: dict[str, Any]) -> list[int]:
    """Planned sizes of cohorts; how many a hidden selection found stands nowhere."""
    entered = [phase["cohort_size"] for phase in plan["phases"]]
    return [*entered, plan["spec"]["pool_size"] - sum(entered)]


def _models(sources: Sources) -> list[dict[str, str]]:
    """Every committed model: its release, its file, the digest of its weights."""
    models = [
        {"release": entry.release, "file": name, "sha256": digest}
        for entry in sources.entries
        if entry.kind is Kind.COMMIT
        for name, digest in entry.body["artifacts"].items()
        if name.rpartition("/")[2] == _MODEL
    ]
    if not models:
        raise CertificateError("no model was committed, so there is nothing to certify yet")
    return models
