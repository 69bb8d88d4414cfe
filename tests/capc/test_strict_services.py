"""Votes without a dealer over TLS: what they answer, when they are charged, and how they end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc import guardian_service
from dpal.capc.frames import Parcel
from dpal.capc.strict_messages import BatchCharged
from dpal.capc.strict_querier import QuerierPair
from dpal.capc.terms import GUARDIAN, VoteMode
from dpal.errors import VoteAborted
from tests.capc.parties import FreeAccount
from tests.capc.test_services import (
    ASKED,
    SECONDS,
    BrokenAccount,
    expected,
    on_stage,
)
from tests.capc.test_services import TERMS as HELPER
from tests.capc.together import numbers_of, plain_votes

TERMS = replace(HELPER, mode=VoteMode.STRICT)


def test_answers_come_batch_by_batch_and_each_is_paid_once(tmp_path):
    async def play(stage):
        found = await stage.ask([ASKED, ASKED[:2], ASKED])
        # As in helper mode: less than one of a million runs.
        clear = 2 * plain_votes(stage.models, TERMS.sites, ASKED) != 4
        agree = [
            (answers == expected(stage)[rows])[clear[rows]]
            for answers, rows in zip(found, (slice(5), slice(2), slice(5)), strict=True)
        ]
        assert np.concatenate(agree).mean() > 0.75
        assert stage.account.reserved == [1, 2, 3] == list(stage.account.committed)
        assert not stage.account.working
        await asyncio.gather(stage.ask([ASKED], name="office"), stage.ask([ASKED], name="bureau"))
        assert sorted(stage.account.committed) == [1, 2, 3, 4, 5]

    on_stage(tmp_path, play, terms=TERMS)


def test_classes_are_named_by_noisy_counts(tmp_path):
    terms = replace(TERMS, mechanism=Mechanism.GNMAX)

    async def play(stage):
        [counts] = await stage.ask([ASKED])
        numbers = [numbers_of(stage.models[site], ASKED) for site in terms.sites]
        plain = np.sum([np.eye(3, dtype=int)[one.argmax(axis=1)] for one in numbers], axis=0)
        assert (counts == plain).sum() > 10  # as in helper mode
        assert stage.account.reserved == [1] == list(stage.account.committed)

    on_stage(tmp_path, play, terms=terms)


def test_a_batch_that_takes_long_is_no_silence(tmp_path, monkeypatch):
    """Who asks works for longer than patience lasts, with all sites, and says nothing meanwhile."""
    receive = QuerierPair.receive

    def slow(pair, data):
        time.sleep(0.25)
        return receive(pair, data)

    monkeypatch.setattr(QuerierPair, "receive", slow)

    async def play(stage):
        began = time.monotonic()
        assert len(await stage.ask([ASKED])) == 1
        assert time.monotonic() - began > 12 * 0.25

    on_stage(tmp_path, play, terms=TERMS, patience=1.5)


def falling_silent(service, monkeypatch, kind):
    """A site that says nothing once the guardian tells it something of a kind."""
    answer = service._answer

    async def silent(connection, said):
        if isinstance(said, Parcel) and said.party == GUARDIAN and said.content[1] == kind.kind:
            return
        await answer(connection, said)

    monkeypatch.setattr(service, "_answer", silent)


def test_a_batch_that_ends_once_sites_vote_is_charged_and_not_begun_again(tmp_path, monkeypatch):
    """Guardian and who asks may know some of its votes, with noise that would be another then."""

    async def play(stage):
        falling_silent(stage.sites["site-3"], monkeypatch, BatchCharged)
        began = time.monotonic()
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert time.monotonic() - began < SECONDS
        assert ended.value.released is None, "nobody may say that nothing was"
        assert "charged" in str(ended.value) and "nothing was released" not in str(ended.value)
        assert list(stage.account.committed) == [1] and not stage.account.working
        monkeypatch.undo()
        await stage.ask([ASKED], name="office")
        assert stage.account.reserved == [1, 2] == list(stage.account.committed)

    on_stage(tmp_path, play, terms=TERMS, patience=3.0)


def test_no_site_votes_in_a_batch_that_could_not_be_charged(tmp_path, monkeypatch):
    told = []
    send = guardian_service._Session.send

    async def listening(session, party, said):
        told.append(said)
        await send(session, party, said)

    monkeypatch.setattr(guardian_service._Session, "send", listening)

    async def play(stage):
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED])
        assert not [one for one in told if isinstance(one, Parcel) and one.party == GUARDIAN]

    on_stage(tmp_path, play, terms=TERMS, account=BrokenAccount())


def test_a_site_votes_once_under_a_number_whoever_asks_and_whatever_the_guardian_says(tmp_path):
    class ForgetfulAccount(FreeAccount):
        def commit(self, number, answer):
            pass

    async def play(stage):
        assert len(await stage.ask([ASKED])) == 1
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED], name="office")
        assert "site-" in str(ended.value)

    on_stage(tmp_path, play, terms=TERMS, account=ForgetfulAccount())
