from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest

from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from tests.ledger.owning import LIMIT, Owner
from tests.ledger.racing import RACERS
from tests.ledger.raw import fill
from tests.postgres import postgres, postgres_server  # noqa: F401


@pytest.hookimpl(tryfirst=True)  # before tests that are not asked for are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with many variants, all but one of those on Postgres are slow."""
    seen = set()
    for item in items:
        variant = getattr(item, "callspec", None)
        if variant is None or variant.params.get("place") != "postgres":
            continue
        test = item.nodeid.partition("[")[0]
        if test in seen:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            seen.add(test)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[CampaignLedger]:
    folder = tmp_path / "planned"
    store = LedgerStore(tmp_path / "ledger.sqlite")
    with lock_folder(folder):
        yield CampaignLedger(store, "planned", folder)
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a ledger may be: a file that is not there yet, and an empty database."""
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.fixture
def opened(place: Path | str, tmp_path: Path) -> Iterator[Callable[..., LedgerStore]]:
    """Opens the ledger at that place, as often as wanted; with anchors unless told otherwise."""
    stores: list[LedgerStore] = []

    def open_one(
        *, anchors: str | None = "anchors", where: Path | str = place, **options: Any
    ) -> LedgerStore:
        folder = None if anchors is None else tmp_path / anchors
        stores.append(LedgerStore(where, anchors=folder, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def filled(opened: Callable[..., LedgerStore]) -> LedgerStore:
    store = opened()
    fill(store, "a", "b")
    return store


@pytest.fixture(scope="module")
def racers() -> Iterator[Pool]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.ledger.racing"])
    with context.Pool(RACERS) as pool:
        yield pool


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    one = Owner(tmp_path)
    one.registry.register("clinic", LIMIT)
    one.add("first", 600, "a")
    yield one
    one.store.close()
