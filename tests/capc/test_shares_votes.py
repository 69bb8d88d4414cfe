"""Votes whose outcomes another program computed: what is counted, what is refused, what is seen."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc.batch_costs import batch_event, bytes_of_batch, bytes_passed_on
from dpal.capc.certificate_authority import PartyRole
from dpal.capc.frames import largest_frame
from dpal.capc.messages import QuerierBallotDeal, WantedShares
from dpal.capc.precomputed_shares import SharedQueries, ShareFolder, read_shares
from dpal.capc.site_account import SiteAccount
from dpal.capc.site_service import SiteService
from dpal.capc.terms import GUARDIAN, QUERIER, VoteMode, batch_of
from dpal.errors import DataError, ParameterError, ProtocolError, VoteAborted
from tests.capc.parties import Authority
from tests.capc.shared_outcomes import evaluated, in_mode, shared, write_shares
from tests.capc.test_services import on_stage
from tests.capc.test_votes_together import is_uniform
from tests.capc.together import hold_vote, plain_votes, queries, random_models, terms_of

PLAIN = terms_of(4, labels=8, features=16, queries=600)
TERMS = in_mode(PLAIN, VoteMode.SHARES)
TOP = replace(TERMS, mechanism=Mechanism.TOP_M, limit=2)
MODELS = random_models(PLAIN, np.random.default_rng(5))


def test_some_queries_of_an_evaluation_are_asked_in_any_order():
    asked = queries(np.random.default_rng(1), 600, 16)
    own, held = shared(MODELS, asked)
    rows = np.array([7, 3, 599], np.uint32)
    vote = hold_vote(TERMS, held, SharedQueries(rows, own.held))
    assert (vote.answers == (2 * plain_votes(MODELS, TERMS.sites, asked[rows]) > 4)).all()


def test_it_costs_what_it_costs_with_a_helper():
    assert batch_event(TERMS) == batch_event(PLAIN)


@pytest.mark.parametrize("terms", [TERMS, TOP], ids=["one round", "two rounds"])
def test_bytes_are_those_that_are_sent(terms):
    own, held = shared(MODELS, queries(np.random.default_rng(2), 600, 16))
    vote = hold_vote(terms, held, own)
    for party, name in ((QUERIER, QUERIER), (GUARDIAN, GUARDIAN), ("site-1", "site")):
        got = sum(len(data) for _, to, _, data in vote.wire if to == party)
        sent = sum(len(data) for sender, _, _, data in vote.wire if sender == party)
        assert party == vote.batch.dealer or bytes_of_batch(terms)[name] == (got, sent)
    passed = sum(len(data) for sender, to, _, data in vote.wire if GUARDIAN not in (sender, to))
    assert bytes_passed_on(terms) == passed
    longest = max(len(data) for *_, data in vote.wire)
    assert longest < largest_frame(terms)
    wide = replace(TOP, queries=1_000)
    batch = batch_of(wide, 1, 1_000, wide.sites)
    assert 0 < largest_frame(wide) - QuerierBallotDeal.size(batch) < 1_000


@pytest.mark.statistical
@pytest.mark.parametrize("terms", [TERMS, TOP], ids=["one round", "two rounds"])
def test_every_party_sees_uniform_numbers_alone(terms):
    """About constant outcomes; 1 false alarm in 1e5 runs. What is wanted is no secret."""
    model = replace(MODELS["site-1"], weights=np.zeros((8, 16), np.int8))
    own, held = shared(dict.fromkeys(TERMS.sites, model), np.ones((600, 16), np.int8))
    vote, checked = hold_vote(terms, held, own), 0
    for _, _, message, _ in vote.wire:
        for name in message.layout:
            if name not in ("seed", "salt") and not isinstance(message, WantedShares):
                assert is_uniform(np.asarray(getattr(message, name)).ravel()), (message, name)
                checked += 1
    assert checked > 10
    bits = evaluated(model, np.ones((600, 16), np.int8), np.random.default_rng(1))
    assert not is_uniform((bits[0]["shares"] + bits[1]["shares"]).ravel()), "power"


def test_shares_that_are_not_there_end_the_vote():
    asked = queries(np.random.default_rng(3), 600, 16)
    own, held = shared(MODELS, asked)
    another = shared(MODELS, asked)[0]
    with pytest.raises(ProtocolError, match=another.held["site-1"].evaluation.hex()[:8]):
        hold_vote(TERMS, held, another)
    beyond = SharedQueries(np.array([600], np.uint32), own.held)
    state = hold_vote(TERMS, held, own).parties["site-2"]
    wanted = WantedShares(
        np.frombuffer(own.held["site-2"].evaluation, np.uint8), beyond.rows
    ).encode(replace(state.batch, queries=1))
    with pytest.raises(ProtocolError):
        replace(state, is_done=False, batch=replace(state.batch, queries=1)).receive(
            QUERIER, wanted
        )


def test_who_asks_needs_shares_of_every_site_that_is_there():
    asked = queries(np.random.default_rng(3), 600, 16)
    own, held = shared(MODELS, asked)
    few = {site: one for site, one in own.held.items() if site != "site-3"}
    with pytest.raises(ParameterError, match="site-3"):
        hold_vote(TERMS, held, SharedQueries(own.rows, few))
    other = replace(own.held["site-3"], values=own.held["site-3"].values[:, :2])
    with pytest.raises(ParameterError, match="site-3"):
        hold_vote(TERMS, held, SharedQueries(own.rows, {**own.held, "site-3": other}))
    some = SharedQueries(own.rows, few)
    live = tuple(few)
    vote = hold_vote(replace(TERMS, absent=1), held, some, live=live)
    assert (vote.answers == (2 * plain_votes(MODELS, live, asked) > 3)).all()


@pytest.mark.parametrize(
    "wrong", [{"features": 16}, {"mechanism": Mechanism.GNMAX}], ids=["features", "gnmax"]
)
def test_what_shares_cannot_say_is_refused(wrong):
    with pytest.raises(ParameterError, match="shares"):
        replace(TERMS, **wrong)


def test_files_that_hold_no_shares_are_refused(tmp_path):
    own, _ = evaluated(MODELS["site-1"], np.ones((3, 16), np.int8), np.random.default_rng(1))
    read = read_shares(write_shares(tmp_path / "good.npz", own))
    assert read.values.dtype == np.uint32 and read.queries is not None
    assert (read.values == (own["shares"] % (1 << 32))).all()
    wrong = (
        {**own, "more": np.zeros(1)},
        {name: own[name] for name in ("shares", "queries")},
        {**own, "shares": own["shares"].astype(np.int64)},
        {**own, "evaluation": own["evaluation"][:8]},
        {**own, "queries": own["queries"][:2]},
        {**own, "shares": np.array([object()])},
    )
    for arrays in wrong:
        with pytest.raises(DataError):
            read_shares(write_shares(tmp_path / "wrong.npz", arrays))
    good = (tmp_path / "good.npz").read_bytes()
    np.savez_compressed(tmp_path / "packed.npz", **own)  # type: ignore[arg-type]
    packed = (tmp_path / "packed.npz").read_bytes()
    np.save(tmp_path / "one.npy", own["shares"])
    damaged = [b"", b"PK nothing", good[:-30], (tmp_path / "one.npy").read_bytes(),
               good.replace(b"NUMPY", b"DUMPY"), good.replace(b"'descr'", b"'d\0\0\0\0'"),
               packed[:90] + b"\0" * 20 + packed[110:]]  # fmt: skip
    with io.BytesIO() as bomb:
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as large:
            large.writestr("shares.npy", b"\0" * (1 << 25))
        damaged.append(bomb.getvalue())
    for data in damaged:
        (tmp_path / "wrong.npz").write_bytes(data)
        with pytest.raises(DataError):
            read_shares(tmp_path / "wrong.npz")
    with pytest.raises(DataError):
        read_shares(tmp_path / "missing.npz")


def test_a_folder_passes_over_what_is_no_share_of_a_site_and_says_so_once(tmp_path):
    own, other = evaluated(MODELS["site-1"], np.ones((3, 16), np.int8), np.random.default_rng(1))
    said: list[str] = []
    folder = ShareFolder(tmp_path / "shares", said.append)
    with pytest.raises(DataError):
        folder.require()
    write_shares(folder.path / "good.npz", other)
    (folder.path / "copied.npz").write_bytes(b"half of it")
    write_shares(folder.path / "asker.npz", own)
    evaluation = other["evaluation"].tobytes()
    for _ in range(2):
        assert (folder.held()[evaluation].values == other["shares"].astype(np.uint32)).all()
    assert len(said) == 2 and {"copied.npz" in line for line in said} == {True, False}
    (folder.path / "copied.npz").unlink()
    # Replaced under its name, it is read again; another one of the same evaluation is doubtful.
    again = {**other, "shares": other["shares"] + np.uint64(1)}
    write_shares(folder.path / "good.npz", again)
    assert (folder.held()[evaluation].values == again["shares"].astype(np.uint32)).all()
    write_shares(folder.path / "second.npz", other)
    assert folder.held() == {} and evaluation.hex()[:8] in said[-1]


def test_a_file_that_is_no_share_ends_no_vote_and_a_missing_one_charges_nothing(tmp_path):
    terms = in_mode(terms_of(4, labels=3, features=8, queries=5), VoteMode.SHARES)
    asked = np.ones((5, 8), np.int8)

    async def play(stage):
        (stage.folder / "site-1" / "copied.npz").write_bytes(b"half of it")
        assert len(await stage.ask([asked])) == 1
        batch = shared(stage.models, asked)[0]  # which no site has
        with pytest.raises(VoteAborted) as ended:
            await stage.ask_shares([batch])
        assert str(tmp_path) not in str(ended.value)
        assert "charged" not in str(ended.value)
        assert stage.account.reserved == [1, 2] and list(stage.account.committed) == [1]

    on_stage(tmp_path, play, terms=terms)


def test_a_site_has_shares_or_a_model_as_the_vote_wants(tmp_path):
    identity = Authority.made(tmp_path / "authority").enrolled("site-1", PartyRole.SITE)
    for terms, own in ((TERMS, MODELS["site-1"]), (PLAIN, ShareFolder(tmp_path, print))):
        with pytest.raises(ParameterError, match=str(terms.mode)):
            SiteService(terms, identity, own, "keeper", print, SiteAccount(tmp_path / "a", terms))


def test_shares_that_come_while_a_site_serves_are_found_and_answered(tmp_path):
    terms = in_mode(terms_of(4, labels=3, features=8, queries=5, sigma=0.15), VoteMode.SHARES)
    asked = np.random.default_rng(2).integers(-128, 128, (5, 8), dtype=np.int8)

    async def play(stage):
        found = await stage.ask([asked, asked[:2]])
        votes = plain_votes(stage.models, terms.sites, asked)
        clear = 2 * votes != 4
        # As with a helper: less than one of a million runs.
        agree = [
            (answers == (2 * votes[rows] > 4))[clear[rows]]
            for answers, rows in zip(found, (slice(5), slice(2)), strict=True)
        ]
        assert np.concatenate(agree).mean() > 0.7
        assert len(list((stage.folder / "site-1").iterdir())) == 2
        assert stage.account.reserved == [1, 2] == list(stage.account.committed)

    on_stage(tmp_path, play, terms=terms)
