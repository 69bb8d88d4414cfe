"""Workers on machines that share a ledger and nothing else: one of them is given up for lost."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dpal.errors import CampaignBusy
from dpal.ledger import database
from dpal.ledger.campaign_lock import claim
from dpal.ledger.entries import Kind
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore
from tests.conftest import nothing_released
from tests.ledger.stepping import NAME, STEPS, Training, begin


def machine(place, tmp_path, name: str) -> CampaignLedger:
    """A machine with its own folder; both draw for the same process, which ordered them."""
    folder = tmp_path / name / "planned"
    return CampaignLedger(LedgerStore(place), "planned", folder, acting_for="whoever leads")


class TakenOver(Training):
    """Half way, the machine is given up for lost and another one does all of the phase."""

    def __init__(self, take_over, **options) -> None:
        super().__init__(**options)
        self.take_over = take_over

    def __call__(self, steps):
        require = steps.require

        def on_the_way(step: int) -> None:
            if step == 2:
                self.take_over()
            require(step)

        steps.require = on_the_way
        return super().__call__(steps)


def test_who_was_given_up_for_lost_persists_nothing_more(tmp_path):
    """Without any lock between them: the ledger itself shows who went on."""
    place = tmp_path / "ledger.sqlite"
    lost, other = machine(place, tmp_path, "lost"), machine(place, tmp_path, "other")

    def take_over() -> None:
        with claim(other.folder):
            begin(other).settle(Training())

    with claim(lost.folder):
        one = begin(lost)
        with pytest.raises(CampaignBusy, match=f"another process has gone on with {NAME}"):
            one.settle(TakenOver(take_over))
    assert not list(lost.folder.rglob("*.safetensors"))
    kinds = [entry.kind for entry in other.entries()]
    assert kinds.count(Kind.RESERVE) == kinds.count(Kind.COMMIT) == 1
    assert other.persisted_steps(NAME) == 0  # committed
    assert sum(kind is Kind.CHECKPOINT for kind in kinds) == (STEPS - 1) // 2


def test_on_postgres_nobody_draws_beside_another(tmp_path, postgres, monkeypatch):
    monkeypatch.setattr(database, "_FENCE_SECONDS", 0.5)
    first, second = machine(postgres, tmp_path, "first"), machine(postgres, tmp_path, "second")
    refused = []

    def take_over() -> None:
        with claim(second.folder), pytest.raises(CampaignBusy) as busy:
            begin(second).settle(Training())
        refused.append(busy.value)

    with claim(first.folder):
        begin(first).settle(TakenOver(take_over))
    assert len(refused) == 1
    assert "draws for it in this ledger" in str(refused[0])
    assert nothing_released(refused[0])


def test_on_postgres_a_lost_connection_ends_the_right_to_persist(tmp_path, postgres):
    ledger = machine(postgres, tmp_path, "partitioned")

    def cut() -> None:
        url = sa.make_url(postgres).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            held = connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            ).all()
        engine.dispose()
        assert len(held) == 1

    with claim(ledger.folder):
        one = begin(ledger)
        with pytest.raises(CampaignBusy, match="was lost, and another one may have taken over"):
            one.settle(TakenOver(cut))
        assert not list(ledger.folder.rglob("*.safetensors"))
        one.settle(Training())  # as it does when it is run again
