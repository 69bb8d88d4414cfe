"""Checks of a certificate by itself: its entries, its plan, its releases, its statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dpal.accounting.events import NEVER_SELECTED, PhaseExposure, Release, to_record
from dpal.canonical import digest
from dpal.certificate.checks import Check, judged
from dpal.certificate.derive import Sources, cohorts_of
from dpal.certificate.document import (
    FORMAT,
    INFORMATIVE,
    entry_digest,
    same,
    sealed_certificate,
)
from dpal.ledger.attempts import planned_name
from dpal.ledger.entries import GENESIS, Entry, Kind
from dpal.ledger.releases import release_from

_BESIDES = ("inputs", "drawer")  # of a reservation: what decides on it, and who draws
_FIGURES = ("selection_epsilon", "epsilon_rdp", "epsilon_pld")


def check_seal(document: Mapping[str, Any]) -> Check:
    """Whether the certificate is of a known format and carries its own digest."""
    return judged("certificate", _seal_faults(document), f"digest {document.get('digest')}")


def _seal_faults(document: Mapping[str, Any]) -> Iterator[str]:
    if not same(document.get("format"), FORMAT):
        yield f"format {document.get('format')!r} is unknown here (this version reads {FORMAT})"
    if not same(sealed_certificate(document)["digest"], document.get("digest")):
        yield "its content does not match its digest: the file was changed after it was written"


def check_entries(sources: Sources, stated: Mapping[str, Any]) -> Check:
    """Whether every entry is as it was written, and follows from the one before."""
    count = f"{len(sources.entries)} entries, head {sources.entries[-1].digest[:12]}"
    return judged("ledger entries", _entry_faults(sources, stated), count)


def _entry_faults(sources: Sources, stated: Mapping[str, Any]) -> Iterator[str]:
    before: Entry | None = sources.opening
    first = before or sources.entries[0]
    if first.sequence != 1 or first.previous != GENESIS:
        yield "the ledger's first entry is missing"
    known = [*([before] if before else []), *sources.entries]
    for entry in known:
        if entry_digest(entry) != entry.digest:
            yield f"entry {entry.sequence} was altered: its content does not match its digest"
    if first.digest != sources.identity:
        yield "the first entry is not the one that the ledger's identity names"
    for earlier, later in pairwise(known):
        if later.sequence <= earlier.sequence:
            yield f"entry {later.sequence} is out of order"
        elif later.sequence == earlier.sequence + 1 and later.previous != earlier.digest:
            yield f"entry {later.sequence} does not follow from entry {earlier.sequence}"
    names = {entry.campaign for entry in sources.entries}
    if names != {sources.hold.campaign}:
        yield f"entries of several campaigns are mixed: {', '.join(sorted(names))}"
    last = sources.entries[-1]
    if not same(stated["head"], {"sequence": last.sequence, "digest": last.digest}):
        yield "the head is not the last entry: entries are missing, or the head was changed"


def check_plan(sources: Sources) -> Check:
    """Whether the plan is the one that was held, and what was held is what it does."""
    held = sources.hold.body["plan"]
    return judged("plan", _plan_faults(sources), f"digest {held[:12]}, held before the start")


def _plan_faults(sources: Sources) -> Iterator[str]:
    plan, held = sources.plan, sources.hold.body
    if digest(plan) != held["plan"]:
        yield "the plan is not the one whose digest was held before the start"
    promised = {key: held[key] for key in ("epsilon", "delta", "adjacency", "unit")}
    if not same(plan["spec"]["target"], promised):
        yield "the plan was made for another promise than the one held"
    releases = [release_from(record) for record in held["releases"]]
    for phase in plan["phases"]:
        yield from _uncovered(phase, plan["spec"], cohorts_of(plan), releases, sources.mode)


def _uncovered(
    phase: Mapping[str, Any],
    spec: Mapping[str, Any],
    cohorts: Sequence[str],
    releases: Sequence[Release],
    mode: str,
) -> Iterator[str]:
    """What a phase does to a cohort and no held release charges."""
    index, first = phase["index"], 0 if spec["carries_labels"] else 1
    mine = [release for release in releases if release.phase == index]
    steps = [phase["selection"][key] for key in ("scores", "threshold", "answers")
             if key in phase["selection"]]  # fmt: skip
    # A gate counts records that entered earlier, but for a first cohort that was drawn by chance.
    asked = cohorts[first:] if mode == "hidden" else cohorts[index:]
    for cohort in cohorts:
        charged = [
            (release.selects, charge.event)
            for release in mine
            for charge in release.charges
            if cohort in charge.cohorts
        ]
        selected = [to_record(event) for selects, event in charged if selects]
        for step in steps if cohort in asked else []:
            if not any(same(step, _without_mechanism(record)) for record in selected):
                yield f"phase {index} selects from cohort {cohort} and does not charge it"
        exposed = [e for selects, e in charged if not selects and isinstance(e, PhaseExposure)]
        for steps_, noise, rate in _trained(phase, cohort):
            paid = [
                one
                for one in exposed
                if one.steps >= steps_ and one.noise_multiplier <= noise and one.sample_rate >= rate
            ]
            if not paid:
                yield f"phase {index} trains on cohort {cohort} and does not charge all of it"
            else:
                exposed.remove(min(paid, key=lambda one: one.sample_rate))


def _without_mechanism(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "mechanism"}


def _trained(phase: Mapping[str, Any], cohort: str) -> list[tuple[int, float, float]]:
    """Steps, noise and rate at which a phase trains on a cohort; the costlier first."""
    if cohort == NEVER_SELECTED or int(cohort) > phase["index"]:
        return []
    rate = "sample_rate_new" if int(cohort) == phase["index"] else "sample_rate_old"
    parts = [part for part in (phase["catch_up"], phase["training"]) if part is not None]
    found = [(part["steps"], part["noise_multiplier"], part[rate]) for part in parts if part[rate]]
    return sorted(found, key=lambda one: one[2], reverse=True)


def check_releases(sources: Sources) -> Check:
    """Whether everything held was reserved as held, and everything reserved is on disk."""
    fine = f"{len(sources.releases)} reserved, all as held, each with its commit"
    return judged("releases", _release_faults(sources), fine)


def _release_faults(sources: Sources) -> Iterator[str]:
    held = {record["release"]: record for record in sources.hold.body["releases"]}
    reserves = [entry for entry in sources.entries if entry.kind is Kind.RESERVE]
    for entry in reserves:
        release = {key: value for key, value in entry.body.items() if key not in _BESIDES}
        planned = planned_name(entry.release)
        if release["release"] != entry.release:
            yield f"entry {entry.sequence} reserves another release than it says"
        elif not same({**release, "release": planned}, held.get(planned)):
            yield f"{entry.release} was reserved with other charges than the plan held"
    done = {planned_name(one.release) for one in sources.entries if one.kind is Kind.COMMIT}
    made = {planned_name(entry.release) for entry in reserves}
    ends = [entry for entry in sources.entries if entry.kind is Kind.END]
    for name in made - done:
        yield f"{name} was reserved and never committed: what was drawn is not under a digest"
    for name in done - made:
        yield f"{name} was committed and never reserved: it was not charged"
    for end in ends:
        if not same(end.body["releases"], [entry.release for entry in reserves]):
            yield "the campaign ended with other releases than are listed here"
    for name in () if ends else held.keys() - made:
        yield f"{name} is in the held plan and among no entries: the campaign goes on"
    if len({entry.release for entry in reserves}) != len(reserves):
        yield "a release was reserved twice under one name"


def check_statements(document: Mapping[str, Any], derived: Mapping[str, Any]) -> list[Check]:
    """Whether the certificate says what follows from its entries, and nothing else."""
    said, follows = _without_figures(document), _without_figures(derived)
    return [
        judged(
            "events by cohort",
            _event_faults(document["cohorts"], derived["cohorts"]),
            f"{sum(len(one['events']) for one in derived['cohorts'])} events of "
            f"{len(derived['cohorts'])} cohorts, as in the entries",
        ),
        judged(
            "statements",
            (
                f"{key}: the certificate says something else than its entries"
                for key in sorted(said.keys() | follows.keys())
                if key not in said or key not in follows or not same(said[key], follows[key])
            ),
            "promise, who sees the selection, pool, models, assumptions, exceptions",
        ),
    ]


def _event_faults(
    stated: Sequence[Mapping[str, Any]], derived: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    if not same([one["cohort"] for one in stated], [one["cohort"] for one in derived]):
        yield "cohorts are missing, added or out of order"
        return
    for one, other in zip(stated, derived, strict=True):
        if not same(one["events"], other["events"]):
            yield f"cohort {one['cohort']} lists other events than the entries charge it"


def _without_figures(document: Mapping[str, Any]) -> dict[str, Any]:
    """All that must be the same to the letter. Figures are compared as numbers."""
    rest = {
        key: value
        for key, value in document.items()
        if key not in (*INFORMATIVE, "digest", "epsilon", "cohorts")
    }
    cohorts = [
        {key: value for key, value in one.items() if key not in (*_FIGURES, "events")}
        for one in document["cohorts"]
    ]
    return {**rest, "cohorts": cohorts}
