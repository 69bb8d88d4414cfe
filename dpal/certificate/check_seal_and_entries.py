"""Checks of a certificate by itself: its digest, its entries, its releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from dpal.canonical import digest
from dpal.certificate.check_outcome import Check, check_from_faults
from dpal.certificate.evidence import LedgerEvidence
from dpal.certificate.read_and_seal import FORMATS, entry_digest, is_same_json, sealed_certificate
from dpal.errors import LedgerTampered
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.entries import GENESIS, EntryKind
from dpal.ledger.hold_entry import HOLD_KEYS
from dpal.ledger.model_choice_and_stopping import STATED_KEYS, statement_faults

BESIDES = ("inputs", "drawer")  # of a reservation: what decides on it, and who draws

# What these entries may say: more would be a statement that nothing here checks.
_SAY = {EntryKind.HOLD: HOLD_KEYS, EntryKind.END: {"releases", "data"} | STATED_KEYS}


def check_seal(document: Mapping[str, Any]) -> Check:
    """Whether the certificate is of a known format and carries its own digest."""
    return check_from_faults(
        "certificate", _seal_faults(document), f"digest {document.get('digest')}"
    )


def _seal_faults(document: Mapping[str, Any]) -> Iterator[str]:
    if not any(is_same_json(document.get("format"), form) for form in FORMATS):
        readable = " and ".join(map(str, FORMATS))
        yield f"format {document.get('format')!r} is unknown here (this version reads {readable})"
    if not is_same_json(sealed_certificate(document)["digest"], document.get("digest")):
        yield "its content does not match its digest: the file was changed after it was written"


def foreign_plan_faults(evidence: LedgerEvidence) -> Iterator[str]:
    """Whether a plan is another one than was held, or was made for another promise."""
    plan, held = evidence.plan, evidence.hold.body
    if digest(plan) != held["plan"]:
        yield "the plan is not the one whose digest was held before the start"
    promised = {key: held[key] for key in ("epsilon", "delta", "adjacency", "unit")}
    if not is_same_json(plan["spec"]["target"], promised):
        yield "the plan was made for another promise than the one held"


def check_entries(evidence: LedgerEvidence, stated: Mapping[str, Any]) -> Check:
    """Whether every entry is as it was written, and follows from the one before."""
    last = evidence.entries[-1]
    count = f"{len(evidence.entries)} entries, head: entry {last.sequence}, {last.digest[:12]}"
    return check_from_faults("ledger entries", _entry_faults(evidence, stated), count)


def _entry_faults(evidence: LedgerEvidence, stated: Mapping[str, Any]) -> Iterator[str]:
    in_order = evidence.in_order
    first = evidence.opening or evidence.entries[0]
    if first.sequence != 1 or first.previous != GENESIS:
        yield "the ledger's first entry is missing"
    for entry in in_order:
        if entry_digest(entry) != entry.digest:
            yield f"entry {entry.sequence} was altered: {LedgerTampered.ANOTHER_CONTENT}"
        if entry.body.keys() - _SAY.get(entry.kind, entry.body.keys()):
            yield f"entry {entry.sequence} says more than a {entry.kind} of the ledger does"
        if entry.kind is EntryKind.END:
            yield from statement_faults(entry.body, len(evidence.models))
    if first.digest != evidence.identity:
        yield "the first entry is not the one that the ledger's identity names"
    adoptions = evidence.adoptions or ()
    for listed in (in_order, evidence.entries, adoptions):
        for earlier, later in pairwise(listed):
            if later.sequence <= earlier.sequence:
                yield f"entry {later.sequence} is out of order, or stands twice"
    for earlier, later in pairwise(in_order):
        if later.sequence == earlier.sequence + 1 and later.previous != earlier.digest:
            yield f"entry {later.sequence} does not follow from entry {earlier.sequence}"
    for adoption in adoptions:
        if adoption.kind is not EntryKind.ADOPT or adoption.campaign:
            yield f"entry {adoption.sequence} stands among the adoptions, and is none"
    names = {entry.campaign for entry in evidence.entries}
    if names != {evidence.hold.campaign}:
        yield f"entries of several campaigns are mixed: {', '.join(sorted(names))}"
    last = evidence.entries[-1]
    if not is_same_json(stated["head"], {"sequence": last.sequence, "digest": last.digest}):
        yield "the head is not the last entry: entries are missing, or the head was changed"


def check_releases(evidence: LedgerEvidence, *, is_open: bool = False) -> Check:
    """Whether everything held was reserved as held, and everything reserved is on disk.

    Args:
      evidence: entries and plan.
      is_open: whether releases are made when somebody asks, so that none of them is missing.
    """
    fine = f"{len(evidence.releases)} reserved, all as held, each with its commit"
    left = len(evidence.hold.body["releases"]) - len(evidence.releases)
    if is_open and left:
        fine += f"; {left} more may be asked for"
    return check_from_faults("releases", _release_faults(evidence, is_open=is_open), fine)


def _release_faults(evidence: LedgerEvidence, *, is_open: bool) -> Iterator[str]:
    held = {record["release"]: record for record in evidence.hold.body["releases"]}
    reserves = [entry for entry in evidence.entries if entry.kind is EntryKind.RESERVE]
    for entry in reserves:
        release = {key: value for key, value in entry.body.items() if key not in BESIDES}
        planned = planned_name(entry.release)
        if release["release"] != entry.release:
            yield f"entry {entry.sequence} reserves another release than it says"
        elif not is_same_json({**release, "release": planned}, held.get(planned)):
            yield f"{entry.release} was reserved with other charges than the plan held"
    done = {
        planned_name(entry.release) for entry in evidence.entries if entry.kind is EntryKind.COMMIT
    }
    made = {planned_name(entry.release) for entry in reserves}
    ends = [entry for entry in evidence.entries if entry.kind is EntryKind.END]
    for name in made - done:
        yield f"{name} was reserved and never committed: what was drawn is not under a digest"
    for name in done - made:
        yield f"{name} was committed and never reserved: it was not charged"
    for end in ends:
        if not is_same_json(end.body["releases"], [entry.release for entry in reserves]):
            yield "the campaign ended with other releases than are listed here"
    for name in () if ends or is_open else held.keys() - made:
        yield f"{name} is in the held plan and among no entries: the campaign goes on"
    if len({entry.release for entry in reserves}) != len(reserves):
        yield "a release was reserved twice under one name"
