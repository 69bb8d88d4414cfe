"""Messages have one form: whatever else comes is refused, in one sentence, by every party."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpal.capc
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc import messages
from dpal.capc.messages import Message
from dpal.capc.party_step_helpers import pad, require_new
from dpal.capc.querier import begin_querier
from dpal.capc.site import begin_site
from dpal.capc.terms import GUARDIAN, QUERIER, VoteMode, batch_of
from dpal.errors import ParameterError, ProtocolError
from dpal.randomness import secure
from tests.capc.shared_outcomes import in_mode, shared
from tests.capc.together import hold_vote, pair_secrets, random_models, terms_of

TERMS = terms_of(3, labels=2, features=4, queries=2)
MODELS = random_models(TERMS, np.random.default_rng(7))
ASKED = np.ones((2, 4), np.int8)
CLASSES = [value for value in vars(messages).values() if isinstance(value, type)]
KINDS = [kind for kind in CLASSES if issubclass(kind, Message) and "kind" in vars(kind)]


@pytest.fixture(scope="module")
def vote():
    return hold_vote(TERMS, MODELS, ASKED)


@pytest.fixture(scope="module")
def votes(vote):
    """One of one round, one of two that tells counts, and two of shares made before."""
    terms = terms_of(3, labels=2, features=4, queries=2, mechanism=Mechanism.GNMAX)
    sets = in_mode(replace(terms, mechanism=Mechanism.POWERSET), VoteMode.SHARES)
    own, held = shared(MODELS, ASKED)
    plain = in_mode(TERMS, VoteMode.SHARES)
    votes = [hold_vote(terms, MODELS, ASKED), hold_vote(sets, held, own)]
    return vote, *votes, hold_vote(plain, held, own)


def test_every_kind_is_sent_and_has_a_number_of_its_own(votes):
    assert {type(message) for vote in votes for _, _, message, _ in vote.wire} == set(KINDS)
    assert len({kind.kind for kind in KINDS}) == len(KINDS) == 16


def test_what_is_read_is_what_was_written(votes):
    for vote in votes:
        for _, _, message, data in vote.wire:
            again = type(message).decode(data, vote.batch)
            assert again.encode(vote.batch) == data
            assert len(data) == message.size(vote.batch)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_other_bytes_are_refused(votes, kind):
    vote, data = next((vote, data) for vote in votes for _, _, message, data in vote.wire
                      if type(message) is kind)  # fmt: skip
    later = replace(vote.batch, number=2)
    wrong = [b"", data[:5], data[:-1], data + b"\0", b"\2" + data[1:],
             bytes([data[0], 99]) + data[2:], data[:2] + b"\7\0\0\0" + data[6:]]  # fmt: skip
    for other in wrong:
        with pytest.raises(ProtocolError):
            kind.decode(other, vote.batch)
    with pytest.raises(ProtocolError):
        kind.decode(data, later)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_end_in_a_message_or_in_a_refusal(data):
    batch = batch_of(TERMS, 1, 2, TERMS.sites)
    for kind in KINDS:
        try:
            read = kind.decode(data, batch)
        except ProtocolError:
            continue
        assert read.encode(batch) == data


def test_no_party_takes_a_message_twice_or_from_somebody_else(votes):
    for vote in votes:
        for sender, receiver, _, data in vote.wire:
            with pytest.raises(ProtocolError):
                vote.parties[receiver].receive(sender, data)
    vote = votes[0]
    secrets = pair_secrets([QUERIER, *TERMS.sites])
    nothing = np.zeros((2, 2), np.int64)
    fresh = {name: begin_site(vote.batch, name, MODELS[name], nothing, secrets[name],
                              rng=secure())[0] for name in TERMS.sites}  # fmt: skip
    asker = begin_querier(vote.batch, ASKED, secrets[QUERIER])
    deal = next(data for _, to, _, data in vote.wire if to == "site-1")
    with pytest.raises(ProtocolError):
        fresh["site-1"].receive("site-2", deal)
    with pytest.raises(ProtocolError):
        fresh["site-1"].receive(QUERIER, deal)
    with pytest.raises(ProtocolError):
        asker.receive("site-9", deal)
    with pytest.raises(ProtocolError):
        asker.receive("site-1", deal)
    state, outbox = fresh["site-1"].receive(GUARDIAN, deal)
    assert len(outbox) == 1 and fresh["site-1"].deal is None, "a step changes no state"
    with pytest.raises(ProtocolError):
        state.receive(GUARDIAN, deal)


def test_altered_answers_are_noticed_where_they_are_no_answers(vote):
    asker = vote.parties[QUERIER]
    before = type(asker)(**{**vars(asker), "answers": None})
    answer = next(data for _, to, message, data in vote.wire if message.kind == 9)
    assert (before.receive(GUARDIAN, answer)[0].answers == vote.answers).all()
    altered = answer[:-1] + bytes([answer[-1] ^ 64])
    with pytest.raises(ProtocolError) as refused:
        before.receive(GUARDIAN, altered)
    assert refused.value.released is None, "it is charged, and nobody may say otherwise"


def test_counts_that_no_votes_and_no_noise_make_are_noticed(votes):
    asker = votes[1].parties[QUERIER]
    before = type(asker)(**{**vars(asker), "answers": None})
    counts = next(data for _, _, message, data in votes[1].wire if message.kind == 13)
    assert (before.receive(GUARDIAN, counts)[0].answers == votes[1].answers).all()
    with pytest.raises(ProtocolError) as refused:
        before.receive(GUARDIAN, counts[:-1] + bytes([counts[-1] ^ 64]))
    assert refused.value.released is None


def test_a_number_serves_once():
    require_new(1, set())
    require_new(2, {1, 3})
    with pytest.raises(ProtocolError):
        require_new(3, {1, 3})


def test_every_batch_and_every_pair_has_pads_of_its_own():
    secrets = pair_secrets(["a", "b", "c"])
    first, second = (batch_of(TERMS, number, 2, TERMS.sites) for number in (1, 2))
    assert (pad(secrets["a"]["b"], first) == pad(secrets["b"]["a"], first)).all()
    drawn = [pad(secrets["a"][other], batch) for other in "bc" for batch in (first, second)]
    assert len({one.tobytes() for one in drawn}) == 4


def test_the_same_query_asked_again_shares_nothing_with_the_first_time(vote):
    again = hold_vote(TERMS, MODELS, ASKED, number=2)
    assert (again.answers == vote.answers).all()
    first, second = ({data[6:70] for _, _, _, data in one.wire} for one in (vote, again))
    assert not first & second


def test_what_does_not_fit_is_refused_before_anything_is_sent():
    batch = batch_of(TERMS, 1, 2, TERMS.sites)
    secrets = pair_secrets([QUERIER, *TERMS.sites])
    nothing = np.zeros((2, 2), np.int64)
    own = secrets["site-1"]
    others = random_models(terms_of(3, labels=3, features=4), np.random.default_rng(1))
    for model, noise, known in (
        (others["site-1"], nothing, own),
        (MODELS["site-1"], nothing[:1], own),
        (MODELS["site-1"], nothing, {QUERIER: own[QUERIER]}),
    ):  # fmt: skip
        with pytest.raises(ParameterError) as refused:
            begin_site(batch, "site-1", model, noise, known, rng=secure())
        assert refused.value.released is False
    for asked, known in ((ASKED[:1], secrets[QUERIER]), (ASKED.astype(int), secrets[QUERIER]),
                         (ASKED, {})):  # fmt: skip
        with pytest.raises(ParameterError):
            begin_querier(batch, asked, known)
    with pytest.raises(ProtocolError):
        messages.PaddedVotes(np.zeros((2, 3), np.uint32)).encode(batch)


def test_nothing_in_the_room_can_load_code_from_a_message():
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    for path in Path(dpal.capc.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not unsafe & {name.split(".")[0] for name in names}
            assert not (isinstance(node, ast.Name) and node.id in {"eval", "exec"})
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle")
