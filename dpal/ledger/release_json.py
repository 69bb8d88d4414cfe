"""Releases as they stand in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.accounting.events import FIGURES, Charge, Release, from_record, to_record
from dpal.ledger.entries import Entry


def release_of(entry: Entry) -> Release:
    """Reads the release of a reservation."""
    return release_from(entry.body)


def release_from(record: dict[str, Any]) -> Release:
    """Reads what `release_record` wrote."""
    return Release(
        name=record["release"],
        kind=record["kind"],
        phase=record["phase"],
        charges=tuple(
            Charge(cohorts=tuple(charge["cohorts"]), event=from_record(charge["event"]))
            for charge in record["charges"]
        ),
    )


def measures_protected(held: Mapping[str, Any]) -> bool:
    """Whether what a hold sets aside is measured on a protected validation set."""
    return any(record["kind"] == FIGURES for record in held.get("releases", ()))


def release_record(release: Release) -> dict[str, Any]:
    """Writes a release as JSON values, every event with its mechanism and parameters."""
    return {
        "release": release.name,
        "kind": release.kind,
        "phase": release.phase,
        "charges": [
            {"cohorts": list(charge.cohorts), "event": to_record(charge.event)}
            for charge in release.charges
        ],
    }
