"""Everything that a certificate states, derived from ledger entries and the plan they name.

Whoever writes a certificate and whoever checks one run this, so that a certificate can say
nothing but what follows from the entries. No planner is asked: the plan is read as JSON,
and matters only as far as the digest that was held before the start commits to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import NEVER_SELECTED, Release, to_record
from dpal.certificate.document import FORMAT, entry_record
from dpal.certificate.figures import figures_of
from dpal.certificate.words import DATA_SET, NO_DATA_SET, STATEMENTS, WHO_SEES
from dpal.errors import CertificateError
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.releases import release_from, release_of
from dpal.privacy import Adjacency, PrivacyTarget, Unit

_MODEL = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All that a certificate is made of.

    Attributes:
      entries: the campaign's ledger entries, in order.
      opening: the ledger's first entry, where it is not the campaign's own.
      identity: digest of the ledger's first entry.
      plan: the plan as JSON; the held digest commits to it.
    """

    entries: Sequence[Entry]
    opening: Entry | None
    identity: str
    plan: dict[str, Any]

    @property
    def hold(self) -> Entry:
        """The entry by which the plan was set aside.

        Raises:
          CertificateError: there is none, or there are several.
        """
        holds = [entry for entry in self.entries if entry.kind is Kind.HOLD]
        if len(holds) != 1:
            raise CertificateError(f"the campaign holds {len(holds)} plans where one is expected")
        return holds[0]

    @property
    def target(self) -> PrivacyTarget:
        """What was promised."""
        held = self.hold.body
        return PrivacyTarget(
            epsilon=held["epsilon"],
            delta=held["delta"],
            adjacency=Adjacency(held["adjacency"]),
            unit=Unit(held["unit"]),
        )

    @property
    def accountant(self) -> Accountant:
        """The accountant by which the promise is kept."""
        return Accountant(self.hold.body["accountant"])

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was reserved, in order; further attempts at a release are releases, too."""
        return tuple(release_of(entry) for entry in self.entries if entry.kind is Kind.RESERVE)

    @property
    def mode(self) -> str:
        """Who can see the selection, in one word."""
        if not any(release.selects for release in map(release_from, self.hold.body["releases"])):
            return "random"
        return str(self.plan["spec"]["selection"])


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


def derived(sources: Sources) -> dict[str, Any]:
    """All of a certificate but its versions and its digest.

    Raises:
      CertificateError: the entries are not those of one campaign.
    """
    held, target, plan = sources.hold.body, sources.target, sources.plan
    releases, names = sources.releases, cohorts_of(plan)
    figures = figures_of(releases, target, names)
    models = _models(sources)
    return {
        "format": FORMAT,
        "campaign": sources.hold.campaign,
        "promise": {
            "epsilon": target.epsilon,
            "delta": target.delta,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "accountant": sources.accountant.value,
        },
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
        **STATEMENTS,
        "plan": {"digest": held["plan"], "content": plan},
        "ledger": {
            "identity": sources.identity,
            "opening": None if sources.opening is None else entry_record(sources.opening),
            "head": {
                "sequence": sources.entries[-1].sequence,
                "digest": sources.entries[-1].digest,
            },
            "entries": [entry_record(entry) for entry in sources.entries],
        },
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
