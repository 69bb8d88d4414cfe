"""What every ledger does, in SQLite and in Postgres."""

from __future__ import annotations

import pickle
import time

import pytest
import sqlalchemy as sa

from dpal.errors import (
    AnchorError,
    BudgetExceeded,
    LedgerError,
    LedgerTampered,
    ParameterError,
)
from dpal.ledger.entries import EntryKind, row_digest
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import having, nothing_released
from tests.ledger.raw import fill, run
from tests.ledger.raw import rows as raw_rows


def test_the_first_entry_opens_the_ledger(opened):
    store = opened()
    assert store.verified() == []
    fill(store, "a")
    first, second = store.entries()
    assert (first.kind, first.campaign, first.release) == (EntryKind.OPEN, "", "")
    assert set(first.body) == {"identity", "anchor_key"}
    assert len(bytes.fromhex(first.body["identity"])) == 16
    assert second.previous == first.digest
    assert store.entries("c") == [second]
    assert store.verified() == [first, second]


def test_two_ledgers_are_never_the_same_one(tmp_path):
    def identity(name: str) -> str:
        store = LedgerStore(tmp_path / name)
        fill(store, "a")
        return store.entries()[0].body["identity"]

    assert identity("one") != identity("two")


def test_what_was_written_is_read_by_others(opened):
    store = opened()
    entry = store.append(
        campaign="c", kind=EntryKind.HOLD, release="", body={"epsilon": 8.0, "é": [1, None, "\x00"]}
    )
    assert opened(create=False).entries("c") == [entry]


def test_a_body_is_decided_on_all_entries_so_far(opened):
    store = opened()
    fill(store, "a", "b")
    seen = []

    def body(entries):
        seen.extend(entries)
        return {"count": len(entries)}

    entry = store.append(campaign="d", kind=EntryKind.RESERVE, release="x", body=body)
    assert entry.body == {"count": 3}
    assert seen == store.entries()[:-1]


def test_a_refused_body_leaves_nothing(opened):
    store = opened()

    def refuse(_entries):
        raise BudgetExceeded("a", 9, 8)

    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            store.append(campaign="c", kind=EntryKind.RESERVE, release="a", body=refuse)
    assert store.entries() == []
    fill(store, "a")
    with pytest.raises(BudgetExceeded):
        store.append(campaign="c", kind=EntryKind.RESERVE, release="b", body=refuse)
    assert len(store.verified()) == 2


def test_a_second_time_is_refused(opened):
    store = opened()
    fill(store, "a")
    with pytest.raises(LedgerError, match="reserve of a in campaign c"):
        fill(store, "a")
    fill(store, "b")
    assert len(store.verified()) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = '{}'",
        "UPDATE entries SET body = '{}' WHERE sequence = 99",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "INSERT INTO entries VALUES (9, 'c', 'hold', '', '{}', '', '', 'x')",
        "INSERT OR REPLACE INTO entries VALUES (2, 'c', 'hold', '', '{}', '', '', 'x')",
        "INSERT INTO entries VALUES (3, 'c', 'reserve', 'a', '{}', '', '', 'x') "
        "ON CONFLICT (campaign, kind, release) DO UPDATE SET body = '{}'",
    ],
)
def test_the_database_refuses_all_but_the_next_entry(opened, place, statement):
    store = opened()
    fill(store, "a")
    before = store.entries()
    try:
        run(place, statement, guarded=True)
    except sa.exc.DBAPIError as error:
        known = ("append-only", "grows at its end", "syntax error")
        assert any(words in str(error.orig) for words in known)
    assert store.entries() == before


def test_the_append_only_table_can_be_appended_to(opened, place):
    """The refusals above are not those of a table that refuses everything."""
    fill(opened(), "a")
    run(place, "INSERT INTO entries VALUES (3, 'c', 'hold', '', '{}', '', '', 'x')", guarded=True)


def test_who_waits_too_long_is_told_so(opened, place, tmp_path):
    store = opened(busy_seconds=0.2)
    fill(store, "a")
    other = opened()

    def dawdle(_entries):
        begun = time.monotonic()
        with pytest.raises(LedgerError, match="used now", check=nothing_released):
            fill(store, "b")
        assert 0.15 < time.monotonic() - begun < 3
        return {}

    other.append(campaign="c", kind=EntryKind.RESERVE, release="slow", body=dawdle)
    fill(store, "b")  # the lock was let go
    assert len(store.verified()) == 4


def test_opening_is_quick_when_nothing_is_to_do(opened):
    fill(opened(), "a")
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        opened()
        times.append(time.perf_counter() - begun)
    assert min(times) < 0.05


def test_a_missing_ledger_is_not_made_by_looking(opened, place):
    with pytest.raises(LedgerError, match="there is no ledger at"):
        opened(create=False)
    if not isinstance(place, str):
        assert not place.exists()


def test_a_url_may_name_a_file(tmp_path):
    fill(LedgerStore(tmp_path / "ledger.sqlite"), "a")
    assert len(LedgerStore(f"sqlite:///{tmp_path}/ledger.sqlite", create=False).entries()) == 2
    assert len(LedgerStore(str(tmp_path / "ledger.sqlite"), create=False).entries()) == 2


@pytest.mark.parametrize("url", ["mysql://u:secret@h/x", "sqlite://", "nothing://:", "://"])
def test_other_databases_are_refused(url):
    with pytest.raises(ParameterError, match="SQLite file") as refused:
        LedgerStore(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:secret@127.0.0.1:1/x", "postgresql+psycopg://u@127.0.0.1:1/x?password=secret"],
)
def test_a_server_that_is_not_there_is_one_sentence_without_a_password(url):
    with pytest.raises(LedgerError, match=r"127.0.0.1:1/x cannot") as no:
        LedgerStore(url)
    assert "secret" not in str(no.value)
    assert "\n" not in str(no.value)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="be opened"):
        LedgerStore(tmp_path / "file" / "ledger.sqlite")


@pytest.mark.parametrize("finding", ["missing", "altered", "foreign", "behind", "forked"])
def test_what_is_wrong_with_an_anchor_survives_a_worker(finding):
    refused = pickle.loads(pickle.dumps(AnchorError("x.sqlite", finding, 7, "d" * 64)))
    assert refused.finding == finding
    assert "othing was released" in str(refused)
    assert "dpal ledger adopt" in str(refused)


def test_a_row_is_checked_as_it_is_read_by_the_digest_it_was_sealed_with(opened, place):
    """The quick digest of a row is the digest of its entry, whatever the body holds."""
    store = opened()
    odd = {"é\u2028": [1e-300, -0.0, None, {"b": [], "a": '\x00\\"'}], "n": 10**300, "t": True}
    for campaign, body in (("c", {}), ("ü", odd), ("", {"z": 1, "a": 2})):
        store.append(campaign=campaign, kind=EntryKind.RESERVE, release="\t x", body=body)
    for row, entry in zip(raw_rows(place), store.entries(), strict=True):
        assert row_digest(dict(row._mapping)) == entry.digest
    run(place, "UPDATE entries SET release = 'y' WHERE campaign = 'c'")
    with pytest.raises(LedgerTampered, check=having(sequence=2)):
        store.entries("c")  # no chain of all entries is needed to see it
