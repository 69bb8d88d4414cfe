"""Workers on machines that share a ledger and nothing else: one of them is given up for lost."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa

from dpal.errors import CampaignBusy
from dpal.ledger import database
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from tests.conftest import nothing_released
from tests.ledger.stepping import NAME, STEPS, Training, begin


@pytest.fixture
def machine(tmp_path):
    """Makes machines with folders of their own; all draw for one process, which ordered them."""
    with ExitStack() as stores:

        def make(place, name: str) -> CampaignLedger:
            store = stores.enter_context(closing(LedgerStore(place)))
            folder = tmp_path / name / "planned"
            return CampaignLedger(store, "planned", folder, acting_for="whoever leads")

        yield make


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


def test_who_was_given_up_for_lost_persists_nothing_more(machine, tmp_path):
    """Without any lock between them: the ledger itself shows who went on."""
    place = tmp_path / "ledger.sqlite"
    lost, other = machine(place, "lost"), machine(place, "other")

    def take_over() -> None:
        with lock_folder(other.folder):
            begin(other).release_once(Training())

    with lock_folder(lost.folder):
        one = begin(lost)
        with pytest.raises(CampaignBusy, match=f"another process .*{NAME}"):
            one.release_once(TakenOver(take_over))
    assert not list(lost.folder.rglob("*.safetensors"))
    kinds = [entry.kind for entry in other.entries()]
    assert kinds.count(EntryKind.RESERVE) == kinds.count(EntryKind.COMMIT) == 1
    assert other.persisted_steps(NAME) == 0  # committed
    assert sum(kind is EntryKind.CHECKPOINT for kind in kinds) == (STEPS - 1) // 2


def test_on_postgres_nobody_draws_beside_another(machine, postgres, monkeypatch):
    monkeypatch.setattr(database, "_FENCE_SECONDS", 0.5)
    first, second = machine(postgres, "first"), machine(postgres, "second")
    refused = []

    def take_over() -> None:
        with lock_folder(second.folder), pytest.raises(CampaignBusy) as busy:
            begin(second).release_once(Training())
        refused.append(busy.value)

    with lock_folder(first.folder):
        begin(first).release_once(TakenOver(take_over))
    assert len(refused) == 1
    assert "draws for" in str(refused[0])
    assert nothing_released(refused[0])


def test_on_postgres_a_lost_connection_ends_the_right_to_persist(machine, postgres):
    ledger = machine(postgres, "partitioned")

    def cut() -> None:
        url = sa.make_url(postgres).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            held = connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            ).all()
        engine.dispose()
        assert len(held) == 1

    with lock_folder(ledger.folder):
        one = begin(ledger)
        with pytest.raises(CampaignBusy, match="taken over"):
            one.release_once(TakenOver(cut))
        assert not list(ledger.folder.rglob("*.safetensors"))
        one.release_once(Training())  # as it does when it is run again
