"""A damaged ledger: every command ends well or in one sentence, and never in a traceback."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dpal.config.campaign import parse_config
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs.open_ledger import open_ledger
from tests.flows.calling import call
from tests.fuzz.ledger_damage import COLUMNS, damage, fresh, write_cell
from tests.fuzz.outcomes import Tally, fault_of
from tests.ledger.releasing import run_all

READING = (
    ("ledger", "verify", "artifacts"),
    ("ledger", "verify", "artifacts/small"),
    ("ledger", "show", "artifacts/small"),
    ("ledger", "show", "artifacts", "--by", "time"),
    ("ledger", "show", "artifacts", "--by", "data", "--json"),
    ("ledger", "export", "artifacts", "--to", "out.csv"),
    ("data", "show"),
)
WRITING = (
    ("data", "limit", "clinic", "--epsilon", "9", "--reason", "board"),
    ("data", "add", "clinic", "validation.parquet"),
    ("ledger", "adopt", "artifacts", "--reason", "to be sure"),
    ("end", "artifacts/small"),
)


@pytest.fixture
def whole(workplace: Path) -> Path:
    """A ledger with a data set and a campaign, folded into one file; a copy to start from."""
    assert call("data", "register", "clinic", "pool.parquet", "--epsilon", "8").returncode == 0
    config = parse_config({"name": "small", "runtime": {}})
    folder = CampaignFolder(Path("artifacts/small"))
    with lock_folder(folder.root), closing(open_ledger(config.runtime)) as store:
        run_all(CampaignLedger(store, "small", folder.root))
    folder.write_record({"config": config.model_dump(mode="json")})
    return Path(shutil.copy("artifacts/ledger.sqlite", "whole.sqlite"))


def try_damage(whole: Path, seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        choose = random.Random(seed)
        how = damage(fresh(whole, Path("artifacts/ledger.sqlite")), choose)
        for arguments in (choose.choice(READING), choose.choice(READING), choose.choice(WRITING)):
            tally.run(f"seed {seed}, {how}", *arguments)
    return tally


def test_damaged_ledgers_are_sentences(whole):
    tally = try_damage(whole, range(12))
    assert not tally.astray, "\n".join(tally.astray)
    assert tally.ends[1] + tally.ends[2] > 20  # it does damage them


@pytest.mark.parametrize("value", [None, b"\xff\xfe\x00"], ids=["NULL", "no UTF-8"])
def test_a_cell_without_a_value_or_without_a_text_is_damage(whole, value):
    """In every column: nothing is read past it, and nothing is written after it."""
    for column in (*COLUMNS, "sequence"):
        write_cell(fresh(whole, Path("artifacts/ledger.sqlite")), column, value)
        for arguments in (READING[0], READING[4], WRITING[0]):
            ended = call(*arguments)
            assert ended.returncode in (1, 2), (column, arguments, ended)
            assert fault_of(ended) == "", (column, arguments)


@pytest.mark.slow
def test_many_damaged_ledgers_are_sentences(whole):
    tally = try_damage(whole, range(1000, 1420))
    assert not tally.astray, "\n".join(tally.astray)
