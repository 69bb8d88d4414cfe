"""Who is known: records under other names, other contents, other salts and other ledgers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.sources import Role, open_source
from dpal.errors import DataBudgetExceeded, DataError, LedgerError, ParameterError
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import having, write_blobs
from tests.ledger.owning import LIMIT


def test_known_records_are_not_new(owner):
    again = owner.add("first", 600, "a")
    assert (again.block, again.known) == (None, 600)
    path = write_blobs(owner.root / "renamed.parquet", 600, seed=len("first"), prefix="other")
    renamed = owner.registry.add("clinic", open_source(path, Role.POOL, label_column="label"))
    assert renamed.block is None
    assert len(owner.blocks) == 1
    assert owner.store.entries()[-1].kind is EntryKind.INDEX  # their new names are on file


def test_a_campaign_about_strangers_or_about_a_data_set_unsaid_is_refused(owner):
    path = write_blobs(owner.root / "strange.parquet", 50, seed=99, prefix="x")
    strange = open_source(path, Role.POOL, label_column="label")
    with pytest.raises(DataError, match=r"rows .*add clinic") as refused:
        owner.registry.locate("clinic", strange)
    assert refused.value.for_owner().startswith("50 of 50 rows of")
    assert "50" not in str(refused.value).replace(str(path), "")  # how many is the owner's to know
    owner.registry.require_unregistered(strange)
    known = open_source(owner.root / "first.parquet", Role.POOL, label_column="label")
    with pytest.raises(DataError, match=r"sets data\.dataset: clinic"):
        owner.registry.require_unregistered(known)


def test_an_index_that_is_not_the_recorded_one_is_refused(owner):
    other = write_blobs(owner.root / "o.parquet", 5, seed=3, prefix="o")
    index = owner.root / "datasets" / "clinic" / "part-0.arrow"
    index.write_bytes(other.read_bytes())
    source = open_source(other, Role.POOL, label_column="label")
    with pytest.raises(LedgerError, match="the index"):
        owner.registry.add("clinic", source)


@pytest.mark.parametrize("salt", [None, b"", bytes(32), bytes(65)])
def test_another_salt_makes_nobody_new(owner, salt):
    path = owner.root / "datasets" / "salt"
    if salt is None:
        path.unlink()
    else:
        path.write_bytes(salt)
    with pytest.raises(LedgerError, match="recognised"):
        owner.add("first", 600, "a")


def written(owner, name: str, ids: list[str], values: list[int]):
    table = pa.table({"id": ids, "features": [[float(one), 1.0] for one in values]})
    pq.write_table(table, owner.root / f"{name}.parquet")
    return open_source(owner.root / f"{name}.parquet", Role.POOL, label_column="label")


def test_names_and_contents_of_known_records_stay_known_wherever_they_meet_again(owner):
    """Corrected content under an old name, then that content under a new name, and so on."""
    add, locate = owner.registry.add, owner.registry.locate
    assert add("clinic", written(owner, "one", ["p", "q"], [1, 2])).block == 1
    corrected = written(owner, "two", ["p", "q"], [3, 4])
    with pytest.raises(DataError, match="have changed"):
        locate("clinic", corrected)
    assert add("clinic", corrected).block is None
    assert add("clinic", written(owner, "three", ["x", "y"], [3, 4])).block is None
    assert add("clinic", written(owner, "four", ["x", "y"], [5, 6])).block is None
    assert add("clinic", written(owner, "five", ["v", "w"], [5, 6])).block is None
    assert locate("clinic", written(owner, "six", ["p", "x", "v"], [1, 4, 6])).sizes() == {1: 3}
    assert len(owner.blocks) == 2


def test_a_record_of_one_block_under_a_name_of_another_takes_no_part(owner):
    """Whichever block paid, the other one's record would be used for nothing."""
    owner.registry.add("clinic", written(owner, "one", ["p", "q"], [1, 2]))
    owner.registry.add("clinic", written(owner, "two", ["r", "s"], [3, 4]))
    swapped = owner.registry.locate("clinic", written(owner, "three", ["p", "r", "s"], [3, 1, 4]))
    assert swapped.eligible.tolist() == [False, False, True]
    assert swapped.sizes() == {2: 1}


def test_nobody_is_in_two_data_sets(owner):
    owner.registry.register("mirror", LIMIT)
    with pytest.raises(DataError, match="holds records"):
        path = owner.root / "first.parquet"
        owner.registry.add("mirror", open_source(path, Role.POOL, label_column="label"))
    assert not data_set(owner.store.entries(), "mirror").blocks


def test_limits_that_promise_nothing_are_refused(owner):
    with pytest.raises(ParameterError, match="between 0 and 1000"):
        owner.registry.change_limit("clinic", 1e308, reason="why not")


def test_a_lost_ledger_is_no_new_budget(owner):
    owner.store.close()
    for path in owner.root.glob("ledger.sqlite*"):
        path.unlink()
    with_none = Registry(LedgerStore(owner.root / "ledger.sqlite"), owner.root / "datasets")
    with pytest.raises(LedgerError, match="not the ledger that its budget was spent in"):
        with_none.register("clinic", LIMIT)


def test_what_lost_entries_spent_counts_as_everything(owner):
    """A backup was adopted although its end is missing: nobody knows what that end spent."""
    with lock_folder(owner.root / "first"):
        owner.hold("first", owner.plan(1.0))
    known = data_set(owner.store.entries(), "clinic").blocks[0]
    assert known.left(LIMIT).divergence > 0
    body = {"key": "0", "reason": "r", "found": "behind", "despite": "ab" * 32, "head": {}}
    owner.store.append(campaign="", kind=EntryKind.ADOPT, release="entry-4", body=body)
    (block,) = owner.blocks
    assert block.left(LIMIT).divergence == 0
    assert block.epsilon_taken(LIMIT) == LIMIT.filter.epsilon
    with pytest.raises(DataBudgetExceeded, check=having(taken=LIMIT.filter.epsilon)):
        owner.plan(0.5, name="second")
    owner.add("later", 400, "z")  # what comes after it has its budget
    assert [one.block for one in owner.plan(3.0, name="second").plan.spec.blocks] == [1]
