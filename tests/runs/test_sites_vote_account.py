"""The guardian's account: every batch once, whoever asks, and after a guardian that died."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from dpal.accounting.events import SkellamMajorities
from dpal.accounting.rdp import epsilon_spent
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.canonical import plain
from dpal.capc.batch_costs import (
    batch_event,
    batch_name,
    bytes_of_batch,
    certified_account,
    epsilon_of_batches,
)
from dpal.capc.terms import GUARDIAN, QUERIER
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.verify import verify_certificate
from dpal.config.runtime import RuntimeConfig
from dpal.errors import (
    CampaignBusy,
    LedgerError,
    ParameterError,
    PlanRejected,
    ProtocolError,
    VoteAborted,
)
from dpal.ledger.entries import EntryKind
from dpal.reports.sites_vote_costs import sites_vote_facts, sites_vote_tables
from dpal.runs.sites_parties import answer_of
from dpal.runs.sites_vote_account import open_sites_vote
from tests.capc.parties import staged
from tests.capc.together import hold_vote, random_models, terms_of

TERMS = terms_of(4, labels=3, features=8, queries=5, sigma=9.0, batches=3, epsilon=20.0)
ASKED = np.random.default_rng(2).integers(-128, 128, (5, 8), dtype=np.int8)


@pytest.fixture
def runtime(tmp_path):
    return RuntimeConfig(artifacts=tmp_path / "artifacts", anchors=tmp_path / "anchors")


def entries(vote, kind):
    return [entry.release for entry in vote.known_entries() if entry.kind is kind]


def certified(terms=TERMS):
    return certified_account("clinics", terms)


def test_each_batch_is_reserved_and_committed_once(runtime):
    with open_sites_vote(certified(), runtime) as vote:
        for number in (1, 2, 3):
            assert vote.reserve() == number
            vote.commit(number, b"answer")
            vote.leave(number)
        with pytest.raises(ParameterError) as refused:
            vote.reserve()
        assert refused.value.released is False
    names = [batch_name(number) for number in (1, 2, 3)]
    assert entries(vote, EntryKind.RESERVE) == entries(vote, EntryKind.COMMIT) == names


def test_a_batch_that_failed_is_begun_again_and_charged_once(runtime):
    with open_sites_vote(certified(), runtime) as vote:
        assert vote.reserve() == 1
        assert vote.reserve() == 2, "while somebody works on the first"
        vote.leave(1)
        assert vote.reserve() == 1
        vote.commit(1, b"answer")
    assert sorted(entries(vote, EntryKind.RESERVE)) == ["votes/1", "votes/2"]


def test_a_batch_that_is_still_open_leaves_the_certificate_as_it_was(runtime):
    with open_sites_vote(certified(), runtime) as vote:
        for number in (vote.reserve(), vote.reserve()):
            vote.commit(number, b"answer")
        vote.certify()
        before = vote.folder.certificate.read_bytes()
        last = vote.reserve()
        vote.certify()
        assert vote.folder.certificate.read_bytes() == before
        vote.commit(last, b"answer")
        vote.certify()
        text = vote.folder.certificate.read_text(encoding="utf-8")
    assert not any_failed(verify_certificate(read_certificate(text)))


@pytest.mark.slow
@pytest.mark.parametrize("colluding", [0, 1])
def test_an_account_of_scaled_ballots_is_certified_and_verified(runtime, colluding):
    terms = replace(
        TERMS, mechanism=Mechanism.TAU_L2, limit=1.2, labels=6, colluding=colluding, epsilon=30.0
    )
    facts = sites_vote_facts(certified(terms), terms)
    assert sites_vote_tables(facts) and facts["noise_of_a_count"] == pytest.approx(9 / 2**0.5)
    assert facts["charged_as"].startswith("skellam_scaled_")
    with open_sites_vote(certified(terms), runtime) as vote:
        vote.commit(vote.reserve(), b"answer")
        vote.certify()
        text = vote.folder.certificate.read_text(encoding="utf-8")
    checks = verify_certificate(read_certificate(text))
    assert not any_failed(checks), checks


def test_after_a_guardian_died_nothing_is_charged_twice_or_told_twice(runtime):
    """One batch had not been kept, of another the answer had, which may have been told."""
    with open_sites_vote(certified(), runtime) as vote:
        assert (vote.reserve(), vote.reserve()) == (1, 2)
        kept = vote.folder.root / "votes-2" / "answer.bin"
        kept.parent.mkdir()
        kept.write_bytes(b"answer")
    with open_sites_vote(certified(), runtime) as vote:
        assert entries(vote, EntryKind.COMMIT) == ["votes/2"]
        assert (vote.reserve(), vote.reserve()) == (1, 3)
        with pytest.raises(ParameterError):
            vote.reserve()
    assert sorted(entries(vote, EntryKind.RESERVE)) == ["votes/1", "votes/2", "votes/3"]


def test_an_answer_whose_commit_failed_keeps_its_number(runtime):
    """Its noise is charged under it; other noise needs another number."""
    with open_sites_vote(certified(), runtime) as vote:
        number = vote.reserve()
        kept = vote.folder.root / f"votes-{number}" / "answer.bin"
        kept.parent.mkdir()
        kept.write_bytes(b"answer")
        with pytest.raises(LedgerError):
            vote.commit(number, b"of other noise")
        vote.leave(number)
        assert vote.reserve() == 2
        assert entries(vote, EntryKind.COMMIT) == ["votes/1"] and kept.read_bytes() == b"answer"


def test_a_certificate_holds_while_batches_are_left_to_ask(runtime):
    with open_sites_vote(certified(), runtime) as vote:
        for _ in range(2):
            number = vote.reserve()
            vote.commit(number, b"answer")
            vote.leave(number)
        vote.certify()
        document = read_certificate(vote.folder.certificate.read_text(encoding="utf-8"))
    checks = verify_certificate(document)
    assert not any_failed(checks)
    assert "1 more" in next(check.detail for check in checks if check.name == "releases")
    assert 0 < document["epsilon"]["rdp"] < certified().epsilon
    for missing in range(len(document["ledger"]["entries"])):
        entries = list(document["ledger"]["entries"])
        del entries[missing]
        edited = {**document, "ledger": {**document["ledger"], "entries": entries}}
        assert any_failed(verify_certificate(edited)), "an entry that is taken out is noticed"


def test_one_guardian_at_a_time_and_other_terms_are_another_vote(runtime):
    with (
        open_sites_vote(certified(), runtime),
        pytest.raises(CampaignBusy),
        open_sites_vote(certified(), runtime),
    ):
        pass
    for other in (replace(TERMS, batches=2), replace(TERMS, sigma=10.0)):
        with pytest.raises(LedgerError), open_sites_vote(certified(other), runtime):
            pass


def test_two_who_ask_at_once_never_pass_the_limit(runtime, tmp_path):
    """Four batches are asked for, three are covered; whoever comes last is refused."""

    async def play(vote):
        async with staged(tmp_path, TERMS, vote) as stage:
            asked = (stage.ask([ASKED] * 2), stage.ask([ASKED] * 2, name="office"))
            found = await asyncio.gather(*asked, return_exceptions=True)
            refused = [one for one in found if isinstance(one, VoteAborted)]
            assert [len(one) for one in found if isinstance(one, list)] == [2]
            assert len(refused) == 1

    with open_sites_vote(certified(), runtime) as vote:
        asyncio.run(play(vote))
        assert vote.answered() == 3
    assert sorted(entries(vote, EntryKind.RESERVE)) == ["votes/1", "votes/2", "votes/3"]
    document = read_certificate(vote.folder.certificate.read_text(encoding="utf-8"))
    assert not any_failed(verify_certificate(document))
    assert document["epsilon"]["rdp"] == pytest.approx(certified().epsilon)
    assert document["epsilon"]["rdp"] <= TERMS.epsilon


def test_batches_that_cost_more_than_is_promised_are_refused():
    with pytest.raises(PlanRejected):
        certified(replace(TERMS, epsilon=1.0))
    with pytest.raises(PlanRejected):
        certified(replace(TERMS, batches=200))


def test_without_collusion_answers_are_charged_and_with_it_noisy_counts():
    assert batch_event(TERMS).mechanism == "skellam_majorities"
    assert batch_event(replace(TERMS, colluding=1)).mechanism == "skellam_counts"
    event = batch_event(TERMS)
    assert event == SkellamMajorities(answers=15, sigma=9.0)
    assert certified().epsilon == pytest.approx(epsilon_spent([event] * 3, delta=1e-5))


def test_what_more_colluding_sites_would_cost():
    terms = terms_of(10, labels=3, queries=5, sigma=9.0, colluding=2, absent=1, batches=1)
    found = [epsilon_of_batches(terms, colluding=number) for number in (0, 1, 2, 5)]
    costs = [cost for cost in found if cost is not None]
    assert len(costs) == 4 and costs == sorted(costs)
    assert epsilon_of_batches(replace(terms, sigma=199.0), colluding=0) is None
    assert costs[2] == pytest.approx(certified_account("v", terms).epsilon, rel=1e-3)


@pytest.mark.slow
def test_of_scaled_ballots_more_noise_than_is_known_has_no_cost():
    """All sites have more of it than those that are counted on."""
    terms = terms_of(100, labels=3, queries=1, sigma=50.0, colluding=40, batches=1,
                     mechanism=Mechanism.TAU_L2, limit=1.5)  # fmt: skip
    assert epsilon_of_batches(terms, colluding=0) is None
    assert epsilon_of_batches(terms, colluding=40) is not None


@pytest.mark.parametrize(
    "terms",
    [
        TERMS,
        replace(TERMS, mechanism=Mechanism.GNMAX),
        replace(TERMS, mechanism=Mechanism.TOP_M, limit=1),
    ],
    ids=lambda terms: str(terms.mechanism),
)
def test_bytes_are_those_that_are_sent(terms):
    vote = hold_vote(terms, random_models(terms, np.random.default_rng(1)), ASKED)
    for party, (received, sent) in bytes_of_batch(terms).items():
        name = "site-1" if party == "site" else party
        # The site whose turn it was to deal sends the last comparison's keys as well.
        others = [(one, to, data) for one, to, message, data in vote.wire
                  if not (one == name and type(message).__name__ == "LastDeal")]  # fmt: skip
        assert sum(len(data) for _, to, data in others if to == name) == received
        assert sum(len(data) for one, _, data in others if one == name) == sent
    assert {GUARDIAN, QUERIER, "site"} == bytes_of_batch(terms).keys()


@pytest.mark.parametrize("mechanism", [Mechanism.BINARY, Mechanism.GNMAX])
def test_a_plan_says_what_is_released_and_what_is_charged(mechanism):
    terms = replace(TERMS, mechanism=mechanism)
    facts = sites_vote_facts(certified(terms), terms)
    counts = mechanism is Mechanism.GNMAX
    assert facts["released"] == ("noisy counts" if counts else "answers")
    assert facts["charged_as"] == ("skellam_counts" if counts else "skellam_majorities")
    assert facts["noise_of_a_count"] == pytest.approx(9.0 if counts else 9.0 / 2**0.5)
    told = {cell for table in sites_vote_tables(facts) for row in table.rows for cell in row}
    assert {str(mechanism), facts["released"]} <= told


@pytest.mark.parametrize(
    ("mechanism", "released", "labels"),
    [
        (Mechanism.BINARY, [1, 0, 1], [1, 0, 1]),
        (Mechanism.GNMAX, [-3, 7, 2], [0, 1, 0]),
        (Mechanism.GNMAX, [4, 4, 2], [1, 0, 0]),
        (Mechanism.POWERSET, [0, 1, 0, 0, 9, 0, 0, 0], [1, 1, 0]),
    ],
)
def test_an_answer_is_the_class_or_set_with_most_votes(mechanism, released, labels):
    answer = answer_of(replace(TERMS, mechanism=mechanism), np.array(released), "digest")
    assert (answer.labels, answer.query) == (labels, "digest")
    assert answer.counts == (None if mechanism is Mechanism.BINARY else released)


def test_an_account_of_before_has_the_digest_that_it_had():
    """A mechanism that nobody named is not written: ledgers, plans and query digests stay."""
    assert {"mechanism", "limit"} & plain(TERMS).keys() == set()
    assert plain(replace(TERMS, mechanism=Mechanism.GNMAX))["mechanism"] == "gnmax"


def test_an_answer_is_never_replaced(runtime):
    with open_sites_vote(certified(), runtime) as vote:
        number = vote.reserve()
        vote.commit(number, b"answer")
        (vote.folder.root / "votes-1" / "answer.bin").write_bytes(b"another")
        with pytest.raises(LedgerError):
            vote.commit(number, b"answer")
    with pytest.raises((LedgerError, ProtocolError)), open_sites_vote(certified(), runtime):
        pass
