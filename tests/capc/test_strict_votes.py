"""Votes without a dealer: as in plain text, and guardian and who asks find noisy counts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.events import SkellamCounts, SkellamScaledCounts
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc import ballots_by_comparison, messages, strict_messages, strict_querier
from dpal.capc.ballots_by_comparison import ballot_rule
from dpal.capc.batch_costs import (
    batch_event,
    bytes_of_batch,
    bytes_passed_on,
    certified_account,
    epsilon_of_batches,
)
from dpal.capc.begin_by_mode import start_guardian, start_querier, start_site
from dpal.capc.frames import largest_frame
from dpal.capc.messages import LastDeal, Message, PaddedVotes
from dpal.capc.party_step_helpers import pad
from dpal.capc.site import SiteBatch
from dpal.capc.strict_messages import BatchCharged, SiteReady
from dpal.capc.strict_sizes import StrictSizes, sizes_of
from dpal.capc.terms import GUARDIAN, QUERIER, SiteModel, VoteMode, batch_of, noise_share
from dpal.capc.transfer_extension import RowHash
from dpal.errors import ParameterError, ProtocolError
from dpal.randomness import secure
from tests.capc.together import (
    hold_vote,
    numbers_of,
    pair_secrets,
    plain_votes,
    queries,
    random_models,
)
from tests.capc.together import terms_of as any_terms_of
from tests.capc.transfers import FALSE_ALARM, alike_chance, uniform_chance
from tests.variants import quick_and_slow

MECHANISMS: list[dict[str, Any]] = [
    {"mechanism": Mechanism.BINARY},
    {"mechanism": Mechanism.TOP_M, "limit": 2},
    {"mechanism": Mechanism.TOP_M, "limit": 5},
    {"mechanism": Mechanism.TAU_L2, "limit": 1.8},
    {"mechanism": Mechanism.TAU_L1, "limit": 2},
    {"mechanism": Mechanism.GNMAX},
    {"mechanism": Mechanism.POWERSET},
    {"mechanism": Mechanism.POWERSET, "limit": 2},
]


def terms_of(*sizes, **more):
    return any_terms_of(*sizes, **{"mode": VoteMode.STRICT, **more})


@pytest.mark.parametrize("kind", MECHANISMS, ids=str)
def test_every_mechanism_releases_the_plain_vote(kind):
    """Messages in any order; a site is absent, and numbers tie."""
    rng = np.random.default_rng(2)
    terms = terms_of(6, labels=5, features=3, queries=20, absent=1, **kind)
    models = {
        site: SiteModel(rng.integers(-2, 3, (5, 3), dtype=np.int8), rng.integers(-2, 3, 5))
        for site in terms.sites
    }
    asked = rng.integers(-2, 3, (20, 3), dtype=np.int8)
    live = terms.sites[1:]
    vote = hold_vote(terms, models, asked, live=live, order=rng)
    ballots = [terms.rule.ballots(numbers_of(models[site], asked)) for site in live]
    counts = np.sum(ballots, axis=0)
    more = 2 * counts > 5 * terms.rule.parts
    assert (vote.answers == (counts if terms.tells_counts else more)).all()
    assert vote.answers.any()
    assert all(not party.awaited for party in vote.parties.values())


@pytest.mark.parametrize("kind", quick_and_slow([MECHANISMS[6]], MECHANISMS[1:7]), ids=str)
def test_the_largest_numbers_do_not_overflow(kind):
    limit = {"limit": 1} if isinstance(kind.get("limit"), int) else {}
    terms = terms_of(3, labels=3, features=1 << 11, queries=1, **{**kind, **limit})
    weights = np.array([[-128], [127], [-128]], np.int8).repeat(1 << 11, axis=1)
    most = terms.rule.largest_bias
    for bias in ([most, -most, most], [most, most - 1, most], [0, 0, 1]):
        models = dict.fromkeys(terms.sites, SiteModel(weights, np.array(bias)))
        for value in (-128, 127):
            asked = np.full((1, 1 << 11), value, np.int8)
            ballots = 3 * terms.rule.ballots(numbers_of(models["site-1"], asked))
            answers = hold_vote(terms, models, asked).answers
            more = 2 * ballots > 3 * terms.rule.parts
            assert (answers == (ballots if terms.tells_counts else more)).all()


@pytest.mark.parametrize("kind", MECHANISMS, ids=str)
@pytest.mark.parametrize("features", [1, 3, 512, 1 << 14])
def test_sizes_are_the_least_that_hold_every_number(kind, features):
    """By all corners of what products, bounded biases and outcomes can be."""
    rule = ballot_rule(kind["mechanism"], 5, kind.get("limit"))
    sizes = StrictSizes(rule, 1, 5, features)
    half = 1 << (sizes.outcome_bits - 1)
    least, most = sizes._reach()
    far = np.arange(1, 6) << 40
    biases = np.stack([sizes.bounded_bias(one) for one in (far, -far)])
    assert (least + biases >= -half).all() and (most + biases < half).all()
    assert ((most + biases).max() >= half // 2) or ((least + biases).min() < -half // 2)
    # Where a bias was bounded, the sign is its own for all products.
    for bias in (far, -far):
        for reach in (least, most):
            assert ((sizes.bounded_bias(bias) + reach >= 0) == (rule.first @ bias >= 0)).all()
    corners = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1).T.astype(np.int64)
    if rule.second is not None:
        bits = corners @ rule.first.T >= 0
        numbers = bits @ rule.second.weights.T + rule.second.constants
        half = 1 << (sizes.ballot_bits - 1)
        assert numbers.min() >= -half and numbers.max() < half
        assert numbers.min() < -half // 2 or numbers.max() >= half // 2


def test_a_few_sites_are_worked_with_at_once(monkeypatch):
    terms = terms_of(9, labels=2, features=2, queries=1)
    most = []
    offers = strict_querier.StrictQuerierBatch._with_offers

    def counted(state):
        after, outbox = offers(state)
        most.append(sum(pair.keys is not None or pair.awaits is not None
                        for pair in after.pairs.values()))  # fmt: skip
        return after, outbox

    monkeypatch.setattr(strict_querier.StrictQuerierBatch, "_with_offers", counted)
    models = random_models(terms, np.random.default_rng(1))
    vote = hold_vote(terms, models, np.ones((1, 2), np.int8))
    assert max(most) == strict_querier.AT_ONCE < 9
    assert all(pair.rows is None and pair.keys is None
               for pair in vote.parties[QUERIER].pairs.values())  # fmt: skip


def test_no_vote_leaves_before_the_batch_is_charged():
    terms = terms_of(4)
    vote = hold_vote(
        terms, random_models(terms, np.random.default_rng(1)), np.ones((6, 16), np.int8)
    )
    kinds = [type(message) for _, to, message, _ in vote.wire if to == GUARDIAN]
    kinds = [kind for kind in kinds if kind in (SiteReady, PaddedVotes)]
    assert kinds == [SiteReady] * 4 + [PaddedVotes] * 4
    charged = [place for place, sent in enumerate(vote.wire) if type(sent[2]) is BatchCharged]
    votes = [place for place, sent in enumerate(vote.wire) if type(sent[2]) is PaddedVotes]
    assert max(charged[:1]) < min(votes)


def numbers_in(message: Message) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(message, name)) for name in message.layout}


# Points of a group are not uniform bytes; last deals are looked at where there is a dealer.
LEFT_OUT = (strict_messages.TransferOffer, strict_messages.TransferChoices, LastDeal)


def views(vote) -> dict[tuple[str, str, str], np.ndarray]:
    """All fields of all messages that a kind of party gets, by kind of message and name."""
    seen: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for _, receiver, message, _ in vote.wire:
        to = receiver if receiver in (QUERIER, GUARDIAN) else "sites"
        for name, values in numbers_in(message).items():
            if type(message) not in LEFT_OUT and values.size:
                seen.setdefault((to, type(message).__name__, name), []).append(values.ravel())
    return {key: np.concatenate(parts) for key, parts in seen.items()}


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [Mechanism.BINARY, Mechanism.GNMAX])
def test_every_party_sees_uniform_numbers_alone(mechanism):
    """Bytes of all that is sent about constant queries and models; 1 false alarm in 1e5 runs."""
    terms = terms_of(3, labels=8, features=8, queries=150, mechanism=mechanism)
    model = SiteModel(np.full((8, 8), 3, np.int8), np.zeros(8, np.int64))
    vote = hold_vote(terms, dict.fromkeys(terms.sites, model), np.full((150, 8), 5, np.int8))
    checked = 0
    for key, values in views(vote).items():
        assert uniform_chance(values) > FALSE_ALARM, key
        # Power: of each field, 3 % of the bytes that hide nothing are seen.
        data = np.ascontiguousarray(values).view(np.uint8).copy()
        data[: 3 * data.size // 100] = 5
        assert uniform_chance(data) < FALSE_ALARM, key
        checked += 1
    assert checked >= (11 if mechanism is Mechanism.BINARY else 13)


def joint_view(vote) -> tuple[np.ndarray, np.ndarray]:
    """What guardian and who asks make of a site's vote: (sites, queries, counts), and the sum."""
    asker, batch = vote.parties[QUERIER], vote.batch
    bare = []
    for site in batch.sites:
        [sent] = [message.values for sender, to, message, _ in vote.wire
                  if sender == site and type(message) is PaddedVotes]  # fmt: skip
        bare.append(asker.pairs[site].votes + sent - pad(asker.plain.secrets[site], batch))
    return np.stack(bare), np.asarray(np.sum(bare, axis=0, dtype=np.uint32))


def two_runs(terms, asked):
    """The same noise and counts, but two sites have changed their models."""
    rng = np.random.default_rng(4)
    models = random_models(terms, rng)
    names = list(terms.sites)
    swapped = dict(zip(names, [models[name] for name in [names[1], names[0], *names[2:]]],
                       strict=True))  # fmt: skip
    batch = batch_of(terms, 1, terms.queries, terms.sites)
    noise = {site: noise_share(terms, batch, rng=secure()) for site in terms.sites}
    counts = plain_votes(models, terms.sites, asked)
    assert (counts == plain_votes(swapped, terms.sites, asked)).all()
    noisy = counts + sum(noise.values())
    return noisy, [hold_vote(terms, each, asked, noise) for each in (models, swapped)]


@pytest.mark.statistical
def test_guardian_and_who_asks_together_find_noisy_counts_alone():
    """Whoever votes: what they find apart from the counts is uniform; 1 false alarm in 1e5 runs."""
    terms = terms_of(3, labels=10, features=8, queries=200)
    asked = queries(np.random.default_rng(5), 200, 8)
    noisy, runs = two_runs(terms, asked)
    bare = []
    for vote in runs:
        each, total = joint_view(vote)
        assert (total.view(np.int32) == noisy).all(), "this is what is charged"
        assert all(uniform_chance(one) > FALSE_ALARM for one in each)
        # One site's is known from the others and the counts, and tells nothing more.
        assert uniform_chance(each[0] + 3 * each[1]) > FALSE_ALARM
        bare.append(each[:2])
    assert alike_chance(*bare) > FALSE_ALARM
    first, second = (views(vote) for vote in runs)
    for key, values in first.items():
        if key[0] != "sites":
            assert alike_chance(values, second[key]) > FALSE_ALARM, key


@pytest.mark.statistical
def test_without_pads_between_sites_they_would_find_every_vote(monkeypatch):
    """The same tests are red where a site's vote leaves under the pad with who asks alone."""
    monkeypatch.setattr(SiteBatch, "_pads", lambda state: pad(state.secrets[QUERIER], state.batch))
    terms = terms_of(3, labels=10, features=8, queries=200)
    noisy, runs = two_runs(terms, queries(np.random.default_rng(5), 200, 8))
    bare = [joint_view(vote) for vote in runs]
    assert all((total.view(np.int32) == noisy).all() for _, total in bare)
    assert all(uniform_chance(one) < FALSE_ALARM for each, _ in bare for one in each)


def test_a_share_that_serves_two_batches_tells_how_votes_differ(monkeypatch):
    """Why a site draws all anew for each batch: with one seed, differences of votes are seen."""
    terms = terms_of(3, labels=6, features=8, queries=40)
    rng = np.random.default_rng(6)
    models, asked = random_models(terms, rng), [queries(rng, 40, 8) for _ in range(2)]

    def differences():
        first, second = (
            hold_vote(terms, models, each, number=number).parties[QUERIER].pairs["site-1"].votes
            for number, each in enumerate(asked, start=1)
        )
        return (first - second).view(np.int32)

    assert (np.abs(differences()) > 1).all(), "240 of 2**32 numbers, 3 each"
    monkeypatch.setattr("dpal.capc.strict_site.fresh_seed", lambda rng: bytes(range(32)))
    plain = [numbers_of(models["site-1"], each) >= 0 for each in asked]
    assert (differences() == plain[0].astype(int) - plain[1]).all()


def test_no_index_of_a_hash_serves_two_rows(monkeypatch):
    """But those of one transfer or wire: with one secret, an index is used for one of these."""
    used: dict[tuple[bytes, int, int], set[bytes]] = {}
    words = RowHash.words

    def noted(hashed, rows, purpose, first=0, blocks=1):
        for place, row in enumerate(rows):
            used.setdefault((hashed.key, purpose, first + place), set()).add(row.tobytes())
        return words(hashed, rows, purpose, first, blocks)

    monkeypatch.setattr(RowHash, "words", noted)
    terms = terms_of(3, labels=3, features=4, queries=5, mechanism=Mechanism.GNMAX)
    models = random_models(terms, np.random.default_rng(1))
    hold_vote(terms, models, np.ones((5, 4), np.int8))
    keys = {key for key, _, _ in used}
    assert len(keys) == 3 and {purpose for _, purpose, _ in used} == {0, 1, 2}
    assert {len(rows) for rows in used.values()} == {2}
    for key in keys:  # whose two rows are apart by one secret throughout
        both = [
            [int.from_bytes(row) for row in rows] for use, rows in used.items() if use[0] == key
        ]
        assert len({first ^ second for first, second in both}) == 1


TERMS = terms_of(3, labels=2, features=4, queries=2)
CLASSES = terms_of(3, labels=3, features=4, queries=2, mechanism=Mechanism.GNMAX)
MODELS = random_models(TERMS, np.random.default_rng(7))
ASKED = np.ones((2, 4), np.int8)
DEFINED = [value for value in vars(strict_messages).values() if isinstance(value, type)]
KINDS = [kind for kind in DEFINED if issubclass(kind, Message) and "kind" in vars(kind)]


@pytest.fixture(scope="module")
def votes():
    classes = random_models(CLASSES, np.random.default_rng(7))
    return hold_vote(TERMS, MODELS, ASKED), hold_vote(CLASSES, classes, ASKED)


def test_every_kind_is_sent_and_has_a_number_of_its_own(votes):
    sent = {type(message) for vote in votes for _, _, message, _ in vote.wire}
    assert sent >= set(KINDS)
    others = {kind.kind for kind in Message.__subclasses__() if "kind" in vars(kind)}
    assert len({kind.kind for kind in KINDS}) == len(KINDS) == 11
    assert len({kind.kind for kind in sent | set(KINDS)}) == len(sent | set(KINDS))
    assert others


def test_what_is_read_is_what_was_written(votes):
    for vote in votes:
        for _, _, message, data in vote.wire:
            assert type(message).decode(data, vote.batch).encode(vote.batch) == data
            assert len(data) == message.size(vote.batch)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_other_bytes_are_refused(votes, kind):
    vote, data = next((vote, data) for vote in votes for _, _, message, data in vote.wire
                      if type(message) is kind)  # fmt: skip
    for other in (b"", data[:5], data[:-1], data + b"\0", b"\2" + data[1:],
                  bytes([data[0], 99]) + data[2:], data[:2] + b"\7\0\0\0" + data[6:]):  # fmt: skip
        with pytest.raises(ProtocolError):
            kind.decode(other, vote.batch)
    with pytest.raises(ProtocolError):
        kind.decode(data, replace(vote.batch, number=2))


@settings(max_examples=100, deadline=None)
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


def fresh_parties():
    batch = batch_of(TERMS, 1, 2, TERMS.sites)
    secrets = pair_secrets([QUERIER, *TERMS.sites])
    nothing = np.zeros((2, 2), np.int64)
    sites = {name: start_site(batch, name, MODELS[name], nothing, secrets[name], rng=secure())[0]
             for name in TERMS.sites}  # fmt: skip
    return {QUERIER: start_querier(batch, ASKED, secrets[QUERIER], rng=secure()),
            GUARDIAN: start_guardian(batch, rng=secure())[0], **sites}  # fmt: skip


def test_a_message_out_of_order_is_refused_by_every_party(votes):
    """Each message but the first between two parties, before all others of the same sender."""
    vote, seen, refused = votes[0], set(), 0
    for sender, receiver, _, data in vote.wire:
        if (sender, receiver) in seen:
            with pytest.raises(ProtocolError):
                fresh_parties()[receiver].receive(sender, data)
            refused += 1
        seen.add((sender, receiver))
    assert refused > 12


def test_who_asks_offers_transfers_only_to_sites_that_have_begun():
    """A site that is not there yet would refuse them, and the vote would end."""
    parties = fresh_parties()
    batch = parties[QUERIER].batch
    data = messages.SiteBegins().encode(batch)
    site = next(name for name in TERMS.sites if name != batch.dealer)
    _, outbox = parties[QUERIER].receive(site, data)
    assert [(one.receiver, type(one.message).__name__) for one in outbox] == [
        (site, "TransferOffer")
    ]
    assert parties[QUERIER].begun == frozenset(), "a step changes no state"


def test_noisy_counts_are_what_is_charged():
    terms = any_terms_of(20, labels=20, queries=20, sigma=9.0, batches=1)
    strict = replace(terms, mode=VoteMode.STRICT)
    event = batch_event(strict)
    assert type(event) is SkellamCounts
    assert event == batch_event(replace(terms, colluding=1, sigma=9.0))
    scaled = replace(strict, mechanism=Mechanism.TAU_L2, limit=1.8)
    assert type(batch_event(scaled)) is SkellamScaledCounts
    settings = certified_account("strict", strict).plan.spec.settings
    assert "guardian" in settings["holds_against"] and settings["terms"]["mode"] == "strict"
    assert replace(terms, mode=cast(Any, "strict")).is_strict, "in plain text, too"
    helper = certified_account("helper", terms).plan.spec.settings
    assert "holds_against" not in helper and "mode" not in helper["terms"]
    own, other = (epsilon_of_batches(each, colluding=0) for each in (strict, terms))
    assert own is not None and other is not None and own > other


def test_bytes_are_those_that_are_sent(votes):
    for terms, vote in zip((TERMS, CLASSES), votes, strict=True):
        for party, name in ((QUERIER, QUERIER), (GUARDIAN, GUARDIAN), ("site-1", "site")):
            got = sum(len(data) for _, to, _, data in vote.wire if to == party)
            sent = sum(len(data) for sender, _, _, data in vote.wire if sender == party)
            found = bytes_of_batch(terms)[name]
            assert party == vote.batch.dealer or found == (got, sent), (party, found, got, sent)


def test_bytes_passed_on_are_those_between_sites_and_who_asks(votes):
    for terms, vote in zip((TERMS, CLASSES), votes, strict=True):
        passed = sum(len(data) for sender, to, _, data in vote.wire if GUARDIAN not in (sender, to))
        assert bytes_passed_on(terms) == passed


def test_512_features_and_20_labels_take_less_than_half_a_megabyte_a_site():
    terms = terms_of(50, labels=20, features=512, queries=20)
    received, sent = bytes_of_batch(terms)[QUERIER]
    assert (received + sent) / 20 / 50 < 0.5e6
    assert sizes_of(batch_of(terms, 1, 20, terms.sites)).outcome_bits == 25


def test_frames_are_as_long_as_the_longest_message_and_no_longer():
    terms = terms_of(50, labels=20, features=512, queries=20)
    longest = strict_messages.HiddenProducts.size(batch_of(terms, 1, 20, terms.sites))
    assert longest < largest_frame(terms) < longest + 1_000
    with pytest.raises(ParameterError):
        largest_frame(terms_of(50, labels=1024, features=512, queries=1024))


def test_who_asks_knows_from_when_on_a_batch_may_be_charged(votes):
    parties = fresh_parties()
    assert not parties[QUERIER].may_be_charged
    assert all(vote.parties[QUERIER].may_be_charged for vote in votes)
    vote, seen = votes[1], []
    state = vote.parties[QUERIER]
    for site, pair in state.pairs.items():
        waiting = replace(pair, awaits=strict_messages.GarbledOutcomes)
        seen.append(replace(state, pairs={**state.pairs, site: waiting}).may_be_charged)
    assert seen == [False] * 3, "the second round is not asked for yet"


def test_all_mechanisms_are_tried():
    assert {kind["mechanism"] for kind in MECHANISMS} == set(ballots_by_comparison.MECHANISMS)
