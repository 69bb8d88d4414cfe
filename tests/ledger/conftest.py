from __future__ import annotations

import multiprocessing

import pytest

from dpal.ledger.campaign_lock import claim
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore
from tests.ledger.owning import LIMIT, Owner
from tests.ledger.racing import RACERS
from tests.ledger.raw import fill
from tests.postgres import postgres, postgres_server  # noqa: F401


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "planned"
    store = LedgerStore(tmp_path / "ledger.sqlite")
    with claim(folder):
        yield CampaignLedger(store, "planned", folder)
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a ledger may be: a file that is not there yet, and an empty database."""
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    return request.getfixturevalue("postgres")


@pytest.fixture
def opened(place, tmp_path):
    """Opens the ledger at that place, as often as wanted; with anchors unless told otherwise."""
    stores = []

    def open_one(*, anchors="anchors", where=place, **options):
        folder = None if anchors is None else tmp_path / anchors
        stores.append(LedgerStore(where, anchors=folder, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def filled(opened):
    store = opened()
    fill(store, "a", "b")
    return store


@pytest.fixture(scope="module")
def racers():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.ledger.racing"])
    with context.Pool(RACERS) as pool:
        yield pool


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path)
    one.registry.register("clinic", LIMIT)
    one.add("first", 600, "a")
    yield one
    one.store.close()
