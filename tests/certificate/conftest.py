from __future__ import annotations

from pathlib import Path

import pytest

from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.ledger.entries import Entry
from dpal.ledger.signing_key import SigningKey
from dpal.planning.campaign_plan import Plan
from tests.certificate.certifying import certified, plan_of, run
from tests.certificate.kinds import KINDS, MAKERS, Certified


class Finished:
    """A campaign that is done, in a ledger that another campaign uses, too."""

    def __init__(self, place: Path, plan: Plan, file: Path, entries: list[Entry]) -> None:
        self.place, self.plan, self.file, self.entries = place, plan, file, entries
        self.document = certified(entries, plan)
        self.signer = SigningKey(place / "anchors")
        self.key = self.signer.public_key()

    def __repr__(self) -> str:  # a failing property would print all of it
        return f"Finished({self.place.name})"

    @property
    def signature(self) -> str:
        """By the key that the ledger was opened with."""
        return sign_statement(certificate_statement(self.document, self.key), self.signer)


def finished(place: Path, mode: str) -> Finished:
    plan = plan_of(mode)
    run(place, plan, campaign="other")
    file, entries = run(place, plan)
    return Finished(place, plan, file, entries)


@pytest.fixture(scope="session")
def visible(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One finished campaign, for tests that any mode serves."""
    return finished(tmp_path_factory.mktemp("visible"), "visible")


@pytest.fixture(scope="session", params=["hidden", "visible", "paper"])
def campaign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, visible: Finished
) -> Finished:
    """A finished campaign of every mode."""
    if request.param == "visible":
        return visible
    return finished(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session")
def all_kinds(tmp_path_factory: pytest.TempPathFactory, visible: Finished) -> dict[str, Certified]:
    """A certificate of every kind, by name."""
    found = {name: make(tmp_path_factory.mktemp(name)) for name, make in MAKERS.items()}
    model = visible.place / "small" / "phase-2" / "model.safetensors"
    done = Certified(
        kind="campaign",
        place=visible.place,
        entries=visible.entries,
        document=visible.document,
        model=model,
    )
    return {"campaign": done, **found}


@pytest.fixture(params=KINDS)
def certificate(request: pytest.FixtureRequest, all_kinds: dict[str, Certified]) -> Certified:
    """A certificate of every kind, one after the other."""
    return all_kinds[request.param]
