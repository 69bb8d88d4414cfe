from __future__ import annotations

from pathlib import Path

import pytest

from dpal.ledger.entries import Entry
from dpal.planning.plan import Plan
from tests.certificate.certifying import certified, plan_of, run


class Finished:
    """A campaign that is done, in a ledger that another campaign uses, too."""

    def __init__(self, place: Path, plan: Plan, file: Path, entries: list[Entry]) -> None:
        self.place, self.plan, self.file, self.entries = place, plan, file, entries
        self.document = certified(entries, plan)

    def __repr__(self) -> str:  # a failing property would print all of it
        return f"Finished({self.place.name})"


def finished(place: Path, mode: str) -> Finished:
    plan = plan_of(mode)
    run(place, plan, campaign="other")
    file, entries = run(place, plan)
    return Finished(place, plan, file, entries)


@pytest.fixture(scope="session")
def visible(tmp_path_factory):
    """One finished campaign, for tests that any mode serves."""
    return finished(tmp_path_factory.mktemp("visible"), "visible")


@pytest.fixture(scope="session", params=["hidden", "visible", "paper"])
def campaign(request, tmp_path_factory, visible):
    """A finished campaign of every mode."""
    if request.param == "visible":
        return visible
    return finished(tmp_path_factory.mktemp(request.param), request.param)
