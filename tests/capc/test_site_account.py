"""A site's own account: written before a vote leaves, and read after the site was killed."""

from __future__ import annotations

import resource
from dataclasses import replace

import numpy as np
import pytest

from dpal.canonical import digest
from dpal.capc.batch_costs import certified_account
from dpal.capc.site_account import SiteAccount
from dpal.capc.terms import VoteMode
from dpal.errors import DataError, StorageError, VoteAborted
from tests.capc.test_services import ASKED, TERMS, on_stage
from tests.capc.together import terms_of


def test_what_is_spent_is_what_the_guardian_charges(tmp_path):
    terms = terms_of(5, labels=4, queries=6, sigma=9.0, batches=3)
    account = SiteAccount(tmp_path / "account.jsonl", terms)
    assert account.spent()["epsilon"] == 0
    for number in (1, 2, 2, 3):
        account.note(number, "ministry")
    spent = account.spent()
    assert (spent["batches"], spent["votes"]) == (3, 4)
    assert spent["epsilon"] == pytest.approx(certified_account("vote", terms).epsilon, rel=1e-6)
    assert spent["epsilon_of_all_votes"] > spent["epsilon"]
    assert account.path.stat().st_mode & 0o077 == 0
    assert SiteAccount(account.path, replace(terms, name="next")).voted() == []


def test_a_torn_line_is_no_vote_and_spoils_no_other(tmp_path):
    account = SiteAccount(tmp_path / "account.jsonl", TERMS)
    account.note(1, "ministry")
    whole = account.path.read_bytes()
    account.path.write_bytes(whole + whole[:20])
    assert account.voted() == [1]
    account.note(2, "ministry")
    assert account.voted() == [1, 2]


def test_a_line_that_did_not_fit_on_the_disk_is_no_line(tmp_path):
    """A full disk takes a part of it, without an error."""
    account = SiteAccount(tmp_path / "account.jsonl", TERMS)
    account.note(1, "ministry")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = account.path.stat().st_size + 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(StorageError):
            account.note(2, "ministry")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert account.voted() == [1]
    account.note(2, "ministry")
    assert account.voted() == [1, 2]


@pytest.mark.parametrize("line", ['[1]', '5', '{"vote": "VOTE"}', '{"vote": "VOTE", "batch": "x"}',
                                  "[" * 100_000])  # fmt: skip
def test_an_account_that_somebody_else_wrote_in_is_refused(tmp_path, line):
    """In strict mode a vote that it does not show could be given again."""
    account = SiteAccount(tmp_path / "account.jsonl", TERMS)
    account.note(1, "ministry")
    with account.path.open("a") as stream:
        stream.write(line.replace("VOTE", digest(TERMS)) + "\n")
    with pytest.raises(DataError):
        account.spent()


def test_every_vote_that_leaves_was_written_down(tmp_path):
    async def play(stage):
        await stage.ask([ASKED, ASKED])
        for site in stage.sites.values():
            assert site.account.voted() == [1, 2]

    on_stage(tmp_path, play)


def test_no_vote_leaves_that_could_not_be_written_down(tmp_path, monkeypatch):
    def full(self, number, querier):
        raise StorageError("account.jsonl", "No space left on device")

    monkeypatch.setattr(SiteAccount, "note", full)

    async def play(stage):
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert stage.account.committed == {} and "jsonl" not in str(ended.value)

    on_stage(tmp_path, play)


def test_where_a_damaged_account_lies_is_told_to_nobody_else(tmp_path):
    async def play(stage):
        (tmp_path / "site-2.jsonl").write_text("[]\n")
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert "site-2" in str(ended.value) and "jsonl" not in str(ended.value)
        assert any("site-2.jsonl" in line for line in stage.said), "its own output says it"

    on_stage(tmp_path, play, terms=replace(TERMS, mode=VoteMode.STRICT))


def test_in_strict_mode_no_batch_is_voted_in_again_after_a_site_was_killed(tmp_path):
    """Its noise would be another then. What is left of the site is its file."""
    terms = replace(TERMS, mode=VoteMode.STRICT)

    async def play(stage):
        for name, site in stage.sites.items():
            SiteAccount(tmp_path / f"{name}.jsonl", terms).note(1, "ministry")
            assert site.account.voted() == [1]
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED])
        assert all(site.account.voted() == [1] for site in stage.sites.values())
        assert len(await stage.ask([np.asarray(ASKED)], name="office")) == 1

    on_stage(tmp_path, play, terms=terms)
