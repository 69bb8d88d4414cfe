"""Checks of a certificate by itself: its entries, its plan, its releases, its statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dpal.accounting.events import NEVER_SELECTED, PhaseExposure, Release, to_record
from dpal.canonical import digest
from dpal.certificate.checks import Check, judged
from dpal.certificate.compare import Difference
from dpal.certificate.derive import cohorts_of
from dpal.certificate.document import FORMATS, entry_digest, same, sealed_certificate
from dpal.certificate.sources import Sources
from dpal.ledger.attempts import planned_name
from dpal.ledger.entries import GENESIS, Kind
from dpal.ledger.holding import HOLD_KEYS
from dpal.ledger.releases import release_from

_BESIDES = ("inputs", "drawer")  # of a reservation: what decides on it, and who draws

# What these entries may say: more would be a statement that nothing here checks.
_SAY = {Kind.HOLD: HOLD_KEYS, Kind.END: {"releases", "data"}}


def check_seal(document: Mapping[str, Any]) -> Check:
    """Whether the certificate is of a known format and carries its own digest."""
    return judged("certificate", _seal_faults(document), f"digest {document.get('digest')}")


def _seal_faults(document: Mapping[str, Any]) -> Iterator[str]:
    if not any(same(document.get("format"), one) for one in FORMATS):
        known = " and ".join(map(str, FORMATS))
        yield f"format {document.get('format')!r} is unknown here (this version reads {known})"
    if not same(sealed_certificate(document)["digest"], document.get("digest")):
        yield "its content does not match its digest: the file was changed after it was written"


def check_entries(sources: Sources, stated: Mapping[str, Any]) -> Check:
    """Whether every entry is as it was written, and follows from the one before."""
    last = sources.entries[-1]
    count = f"{len(sources.entries)} entries, head: entry {last.sequence}, {last.digest[:12]}"
    return judged("ledger entries", _entry_faults(sources, stated), count)


def _entry_faults(sources: Sources, stated: Mapping[str, Any]) -> Iterator[str]:
    known = sources.in_order
    first = sources.opening or sources.entries[0]
    if first.sequence != 1 or first.previous != GENESIS:
        yield "the ledger's first entry is missing"
    for entry in known:
        if entry_digest(entry) != entry.digest:
            yield f"entry {entry.sequence} was altered: its content does not match its digest"
        if entry.body.keys() - _SAY.get(entry.kind, entry.body.keys()):
            yield f"entry {entry.sequence} says more than a {entry.kind} of the ledger does"
    if first.digest != sources.identity:
        yield "the first entry is not the one that the ledger's identity names"
    adoptions = sources.adoptions or ()
    for listed in (known, sources.entries, adoptions):
        for earlier, later in pairwise(listed):
            if later.sequence <= earlier.sequence:
                yield f"entry {later.sequence} is out of order, or stands twice"
    for earlier, later in pairwise(known):
        if later.sequence == earlier.sequence + 1 and later.previous != earlier.digest:
            yield f"entry {later.sequence} does not follow from entry {earlier.sequence}"
    for one in adoptions:
        if one.kind is not Kind.ADOPT or one.campaign:
            yield f"entry {one.sequence} stands among the adoptions, and is none"
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
    if not same(plan["spec"].get("accountant", held["accountant"]), held["accountant"]):
        yield "the plan was made for another accountant than the one held"
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


def check_statements(found: Sequence[Difference], derived: Mapping[str, Any]) -> list[Check]:
    """Whether the certificate of a campaign says what follows from its entries, and no more.

    Args:
      found: differences between the two, but for those in figures.
      derived: the certificate from its entries.
    """
    events = [one for one in found if _about_events(one)]
    count = sum(len(one["events"]) for one in derived["cohorts"])
    return [
        judged(
            "events by cohort",
            (_other_events(one) for one in events),
            f"{count} events of {len(derived['cohorts'])} cohorts, as in the entries",
        ),
        judged(
            "statements",
            (one.says for one in found if one not in events),
            "promise, who sees the selection, pool, models, assumptions, exceptions",
        ),
    ]


def _about_events(one: Difference) -> bool:
    where = one.place[2:3]
    return one.place[:1] == ("cohorts",) and where in ((), ("events",), ("cohort",))


def _other_events(one: Difference) -> str:
    if one.place[2:3] != ("events",):
        return "cohorts are missing, added or out of order"
    return f"cohort {one.place[1]} lists other events than the entries charge it ({one.says})"
