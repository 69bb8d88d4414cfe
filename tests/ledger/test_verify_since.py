"""What is believed of the entries behind an append, and what is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa

from dpal.errors import AnchorError, BudgetExceeded, LedgerError, LedgerTampered
from dpal.ledger import ledger_store
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.entry_rows import read_entries
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.merkle_tree_of_topics import Branches
from dpal.ledger.schema_version import TOPIC_TREE, TOPICS
from dpal.ledger.topics import TopicLine, next_line, topics_of
from dpal.ledger.verified_entries import EntriesSoFar
from dpal.ledger.verify_since import verify_from_start, write_lines
from tests.conftest import having
from tests.ledger import raw
from tests.ledger.anchoring import anchor_file
from tests.variants import quick_and_slow

LIMIT = 3


def spend(store: LedgerStore, release: str, campaign: str = "c", cost: int = 1) -> Entry:
    """Reserves a release, unless the campaign's would cost more than the limit."""

    def paid(so_far: EntriesSoFar) -> dict[str, int]:
        if so_far.of(campaign, EntryKind.END):
            raise BudgetExceeded(release, cost, 0)
        spent = sum(one.body["cost"] for one in so_far.of(campaign, EntryKind.RESERVE))
        if spent + cost > LIMIT:
            raise BudgetExceeded(release, spent + cost, LIMIT)
        return {"cost": cost}

    return store.append(campaign=campaign, kind=EntryKind.RESERVE, release=release, body=paid)


@pytest.fixture
def spent(opened):
    """Two campaigns, of which "c" has spent its limit, and the ledger has gone on since."""
    store = opened()
    for release in ("1", "2", "3"):
        spend(store, release)
        spend(store, release, campaign="other")
    store.append(campaign="c", kind=EntryKind.COMMIT, release="3", body={})
    with pytest.raises(BudgetExceeded):
        spend(store, "4")
    return store


@pytest.fixture
def from_start(monkeypatch):
    """Counts how often a ledger was verified from its first entry on."""
    calls: list[bool] = []

    def counted(connection, *, write=False):
        calls.append(write)
        return verify_from_start(connection, write=write)

    monkeypatch.setattr(ledger_store, "verify_from_start", counted)
    return calls


def forge_topics(store: LedgerStore) -> None:
    """Makes lines and tree fit the entries that there are now, whether they are a chain or not."""
    with store._database.writing() as connection:
        connection.execute(sa.delete(TOPICS))
        connection.execute(sa.delete(TOPIC_TREE))
        newest: dict[str, TopicLine] = {}
        branches = Branches()
        for entry in read_entries(connection):
            lines = [next_line(topic, newest.get(topic), entry) for topic in topics_of(entry)]
            newest |= {line.topic: line for line in lines}
            write_lines(connection, lines)
        for topic, line in newest.items():
            branches.put(topic, line.digest)
        branches.write(connection)


def refuses(store: LedgerStore, release: str = "4") -> LedgerError:
    """Requires that nothing can be spent, whatever the reason."""
    before = raw.rows(store._database.file or store.name)
    with pytest.raises(LedgerError) as refused:
        spend(store, release)
    assert raw.rows(store._database.file or store.name) == before
    return refused.value


@pytest.mark.parametrize("anew", [False, True])
def test_an_append_verifies_what_came_since(spent, opened, from_start, anew):
    """In the same process and in another one, which knows the anchor alone."""
    spend(opened() if anew else spent, "1", campaign="third")
    assert from_start == []


def test_what_no_decision_goes_by_is_found_by_verifying(spent, place):
    """The other side of it: an entry of another campaign is not read again by every append."""
    raw.reseal(place, 3, body={"cost": 0})
    spend(spent, "1", campaign="third")
    with pytest.raises(LedgerTampered, check=having(sequence=4)):
        spent.verified()
    assert isinstance(refuses_in(spent, "other"), LedgerTampered)


def refuses_in(store: LedgerStore, campaign: str) -> LedgerError:
    with pytest.raises(LedgerError) as refused:
        spend(store, "x", campaign=campaign, cost=0)
    return refused.value


CHANGES: dict[str, dict[str, Any]] = {
    "content": {"body": {"cost": 0}},
    "account": {"campaign": "other", "release": "5"},
    "kind": {"kind": EntryKind.FORFEIT},
}
ALTERED = list(product(CHANGES, ["kept", "entry", "forged"], [False, True], [False, True]))


# Of four ways each change is made to fit, one is in the default suite: in turn the ledger opened
# anew, and the chain.
@pytest.mark.parametrize(
    ("changed", "topics", "chain", "anew"),
    quick_and_slow([one for at, one in enumerate(ALTERED) if at % 4 == 1 + at // 4 % 2], ALTERED),
)
def test_an_entry_of_whoever_spends_is_not_altered_unseen(
    spent, opened, place, changed, topics, chain, anew
):
    """However much of the rest is made to fit; the anchor alone is out of reach."""
    raw.reseal(place, 4, chain=chain, **CHANGES[changed])
    if topics == "forged":
        forge_topics(spent)
    elif topics == "entry":  # in the lines, without their digests
        raw.run(
            place,
            "UPDATE entry_topics SET entry = (SELECT digest FROM entries "
            "WHERE entries.sequence = entry_topics.sequence)",
        )
    refused = refuses(opened() if anew else spent)
    assert isinstance(refused, AnchorError if chain else LedgerTampered)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("gone", ["sequence = 4", "sequence >= 4", "campaign = 'c'"])
def test_an_entry_of_whoever_spends_is_not_removed_unseen(spent, opened, place, anew, gone):
    for table in ("entry_topics", "entries"):
        raw.run(place, f"DELETE FROM {table} WHERE sequence IN "
                f"(SELECT sequence FROM entries WHERE {gone})")  # fmt: skip
    refuses(opened() if anew else spent)


@pytest.mark.parametrize("anew", [False, True])
def test_an_end_is_not_removed_unseen(spent, opened, place, anew):
    """What the campaign had left flowed back, so that it may not be spent as well."""
    end = spent.append(campaign="third", kind=EntryKind.END, release="", body={})
    spend(spent, "x", campaign="fourth")
    for table in ("entry_topics", "entries"):
        raw.run(place, f"DELETE FROM {table} WHERE sequence = {end.sequence}")
    with pytest.raises(LedgerTampered):
        spend(opened() if anew else spent, "1", campaign="third")


@pytest.mark.parametrize("anew", [False, True])
def test_a_last_entry_is_not_removed_unseen(spent, opened, place, anew):
    """Of somebody else, with its lines, and nothing in the way of writing over it."""
    last = spend(spent, "x", campaign="fourth")
    for table in ("entry_topics", "entries"):
        raw.run(place, f"DELETE FROM {table} WHERE sequence = {last.sequence}")
    with pytest.raises(AnchorError, check=having(finding="behind")):
        spend(opened() if anew else spent, "1", campaign="third")


TABLES = [
    "DELETE FROM entry_topics",
    "DELETE FROM entry_topics WHERE sequence = 4",
    "DELETE FROM entry_topics WHERE sequence > 4 AND topic LIKE '%\"c\"%'",
    "UPDATE entry_topics SET number = number + 1",
    "UPDATE entry_topics SET topic = replace(topic, '\"c\"', '\"d\"')",
    "UPDATE entry_topics SET sequence = 99 WHERE sequence = 4",
    "UPDATE entry_topics SET digest = 'x' WHERE sequence = 6",
    "DELETE FROM entry_topic_tree",
    "UPDATE entry_topic_tree SET digest = 'x' WHERE parent = ''",
    "UPDATE entry_topic_tree SET digest = (SELECT min(digest) FROM entry_topics)",
]


MENDED = list(product(TABLES, [False, True]))


@pytest.mark.parametrize(
    ("statement", "anew"),
    quick_and_slow([one for one in MENDED if one[1] == (TABLES.index(one[0]) % 2 == 0)], MENDED),
)
def test_an_altered_table_gives_no_budget_and_is_mended(
    spent, opened, place, from_start, statement, anew
):
    raw.run(place, statement)
    if statement[7:] != "FROM entry_topics":
        with pytest.raises(LedgerTampered):
            spent.require_topics()
    with pytest.raises(BudgetExceeded):
        spend(opened() if anew else spent, "4")
    assert from_start == [True]
    spent.require_topics()
    spend(opened(), "1", campaign="third")
    assert from_start == [True]


@pytest.mark.parametrize("finding", ["altered", "foreign"])
def test_a_forged_prefix_is_not_believed(spent, opened, place, tmp_path, finding):
    """A root under which the campaign has spent less, signed by a stranger or by nobody."""
    raw.reseal(place, 4, chain=True, body={"cost": 0})
    forge_topics(spent)
    entries = spent.entries()
    anchors = Anchors(tmp_path / ("stranger" if finding == "foreign" else "anchors"))
    with spent._database.reading() as connection:
        root = verify_from_start(connection).topics
    mine = anchor_file(spent, tmp_path)
    if finding == "foreign":
        anchors.advance(identity_of(entries), entries[-1], topics=root)
        shutil.copy(tmp_path / "stranger" / mine.name, mine)
    else:
        forged = {"topics": root, "digest": entries[-1].digest}
        mine.write_text(json.dumps(json.loads(mine.read_text()) | forged))
    for store in (spent, opened()):
        refused = refuses(store)
        assert isinstance(refused, AnchorError)
        assert refused.finding == finding


def test_an_older_prefix_is_gone_on_from(spent, opened, place, tmp_path, from_start):
    """Put back with a backup of the anchors; what came since is verified, and counts."""
    path = anchor_file(spent, tmp_path)
    older = path.read_bytes()
    spend(spent, "1", campaign="third")
    spend(spent, "2", campaign="third")
    path.write_bytes(older)
    spend(opened(), "3", campaign="third")
    path.write_bytes(older)
    with pytest.raises(BudgetExceeded):
        spend(opened(), "4", campaign="third")
    assert from_start == []
    raw.reseal(place, 10, body={"cost": 0})
    path.write_bytes(older)
    refuses(opened())
    assert from_start == [True]


def test_a_prefix_of_another_ledger_is_not_believed(spent, opened, tmp_path, from_start):
    other = opened(where=tmp_path / "other.sqlite")
    spend(other, "1")
    mine, theirs = anchor_file(spent, tmp_path), anchor_file(other, tmp_path)
    mine.write_bytes(theirs.read_bytes())
    refused = refuses(opened())
    assert isinstance(refused, AnchorError)
    assert refused.finding == "altered"


def test_tables_of_another_ledger_are_not_believed(spent, opened, place, tmp_path):
    """Topics and tree of a ledger in which the campaign spent nothing."""
    other = opened(where=tmp_path / "other.sqlite")
    for release in "123456789":
        spend(other, release, campaign=f"other-{release}")
    for table in ("entry_topics", "entry_topic_tree"):
        raw.run(place, f"DELETE FROM {table}")
        for row in raw.run(tmp_path / "other.sqlite", f"SELECT * FROM {table}", guarded=True):
            marks = ", ".join(f":{name}" for name in row._mapping)
            raw.run(place, f"INSERT INTO {table} VALUES ({marks})", **row._mapping)
    with pytest.raises(BudgetExceeded):
        spend(opened(), "4")


def test_without_a_prefix_everything_is_verified(spent, opened, place, tmp_path, from_start):
    """An anchor of an earlier version says nothing of topics; the next one does."""
    path, entries = anchor_file(spent, tmp_path), spent.entries()
    path.unlink()
    Anchors(tmp_path / "anchors").advance(identity_of(entries), entries[-1])
    assert "topics" not in json.loads(path.read_text())
    store = opened()
    with pytest.raises(BudgetExceeded):
        spend(store, "4")
    assert from_start == [False]  # before anybody had to wait; the tables were as they should be
    spend(store, "1", campaign="third")
    spend(opened(), "2", campaign="third")
    assert from_start == [False]


def test_machines_that_share_a_ledger_follow_each_other(opened, from_start):
    """Each verifies what the other wrote since its own last entry, and nothing twice."""
    here, there = opened(), opened(anchors="there")
    spend(here, "1")
    there.adopt(reason="a second machine")
    from_start.clear()
    spend(there, "2")
    spend(here, "3")
    for store in (opened(), opened(anchors="there")):
        with pytest.raises(BudgetExceeded):
            spend(store, "4")
    assert from_start == []


def test_nobody_vouches_for_a_copy_that_is_not_whole(spent, opened, place):
    """Not even for an entry that no append would go by."""
    raw.reseal(place, 3, body={"cost": 0})
    for store in (spent, opened(anchors="there")):
        with pytest.raises(LedgerTampered, check=having(sequence=4)):
            store.adopt(reason="moved", begun_elsewhere=True)


def everything(entries: Sequence[Entry]) -> list[Entry]:
    return list(entries)


@pytest.mark.parametrize("alters", ["spends", "goes on"])
def test_what_lies_behind_is_not_altered_while_others_write(spent, opened, place, alters):
    """Whoever comes back verifies what others wrote, on tables that were made to fit an edit."""
    there = opened(anchors="there")
    there.adopt(reason="a second machine")
    for campaign in ("c", "third") if alters == "goes on" else ("third",):
        there.append(campaign=campaign, kind=EntryKind.COMMIT, release="x", body={})
    raw.reseal(place, 4, body={"cost": 0})
    forge_topics(spent)
    for store in (spent, opened()):
        assert isinstance(refuses(store), LedgerTampered)


def test_whoever_asks_for_everything_gets_it_or_nothing(spent, place):
    seen: list[Entry] = []

    def body(so_far: EntriesSoFar) -> dict[str, int]:
        seen.extend(everything(so_far))
        return {}

    spent.append(campaign="third", kind=EntryKind.RESERVE, release="1", body=body)
    assert seen == spent.entries()[:-1]
    raw.reseal(place, 3, body={"cost": 0})
    with pytest.raises(LedgerTampered):
        spent.append(campaign="third", kind=EntryKind.RESERVE, release="2", body=body)


def test_an_append_asks_the_database_for_each_thing_once(spent):
    """What an append costs is mostly how many statements it takes, however long the ledger is."""
    selected: list[str] = []

    @sa.event.listens_for(spent._database._engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, parameters, _context, _many):
        if " \nFROM " in statement:
            selected.append(f"{statement} {parameters}")

    spend(spent, "4", campaign="other", cost=0)
    assert len(selected) == len(set(selected)) + 1  # the last entry, by its number
    assert len(selected) == 6
    selected.clear()
    spent.append(campaign="other", kind=EntryKind.CHECKPOINT, release="4@1", body={})
    assert len(selected) == 7
