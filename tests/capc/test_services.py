"""Parties over TLS on this machine: their answers, and how a vote ends that is disturbed."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import time
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc import guardian_service, querier_service
from dpal.capc.certificate_authority import PartyRole, revoke
from dpal.capc.connection import client_context, connect
from dpal.capc.frames import Abort, Ask, Parcel, from_frame, largest_frame, to_frame
from dpal.capc.messages import HiddenWeights, LastDeal
from dpal.capc.querier import QuerierBatch
from dpal.capc.terms import QUERIER, VoteMode, batch_of
from dpal.errors import LedgerError, ParameterError, ProtocolError, StorageError, VoteAborted
from tests.capc.parties import Authority, FreeAccount, staged
from tests.capc.shared_outcomes import in_mode
from tests.capc.together import numbers_of, plain_votes, terms_of
from tests.variants import quick_and_slow

TERMS = terms_of(4, labels=3, features=8, queries=5, sigma=0.15, batches=50)
ASKED = np.random.default_rng(2).integers(-128, 128, (5, 8), dtype=np.int8)
SECONDS = 10.0  # within which a broken vote must end


def on_stage(tmp_path, play, terms=TERMS, account=None, patience=6.0):
    """Runs a play, and finds out how long it took."""

    async def perform():
        async with staged(tmp_path, terms, account, patience=patience) as stage:
            return await play(stage)

    return asyncio.run(perform())


def expected(stage, sites=TERMS.sites):
    return 2 * plain_votes(stage.models, sites, ASKED) > len(sites)


def test_answers_come_batch_by_batch_and_each_is_paid_once(tmp_path):
    async def play(stage):
        found = await stage.ask([ASKED, ASKED[:2], ASKED])
        # Noise of a fifth of a vote in all flips few answers that are no tie: each with a
        # chance below 1 %, so that a quarter of all are in less than one of a million runs.
        clear = 2 * plain_votes(stage.models, TERMS.sites, ASKED) != 4
        agree = [
            (answers == expected(stage)[rows])[clear[rows]]
            for answers, rows in zip(found, (slice(5), slice(2), slice(5)), strict=True)
        ]
        assert np.concatenate(agree).mean() > 0.75
        assert stage.account.reserved == [1, 2, 3] == list(stage.account.committed)
        assert not stage.account.working
        again = await stage.ask([ASKED], name="office")
        assert again[0].shape == (5, 3) and list(stage.account.committed) == [1, 2, 3, 4]

    on_stage(tmp_path, play)


def test_classes_are_named_by_noisy_counts(tmp_path):
    """Two rounds over real connections; noise of a fifth of a vote in all changes few counts."""
    terms = replace(TERMS, mechanism=Mechanism.GNMAX)

    async def play(stage):
        [counts] = await stage.ask([ASKED])
        numbers = [numbers_of(stage.models[site], ASKED) for site in terms.sites]
        plain = np.sum([np.eye(3, dtype=int)[one.argmax(axis=1)] for one in numbers], axis=0)
        # Each count has noise with a chance of 2 %: five of 15 in less than one of 100,000 runs.
        assert (counts == plain).sum() > 10
        assert stage.account.reserved == [1] == list(stage.account.committed)

    on_stage(tmp_path, play, terms=terms)


def test_two_who_ask_at_once_are_both_answered_and_each_batch_is_its_own(tmp_path):
    async def play(stage):
        found = await asyncio.gather(
            stage.ask([ASKED] * 3), stage.ask([ASKED[:1]] * 3, name="office")
        )
        assert [len(one) for one in found] == [3, 3]
        assert sorted(stage.account.committed) == [1, 2, 3, 4, 5, 6]
        assert stage.account.reserved == [1, 2, 3, 4, 5, 6]

    on_stage(tmp_path, play)


def test_a_guardian_that_ends_still_certifies_what_every_session_was_charged(tmp_path):
    class SlowAccount(FreeAccount):
        certified = 0

        def certify(self):
            time.sleep(0.3)
            self.certified += 1

    async def play(stage):
        await asyncio.gather(stage.ask([ASKED]), stage.ask([ASKED], name="office"))

    account = SlowAccount()
    on_stage(tmp_path, play, account=account)
    assert account.certified == 2


def test_a_batch_of_too_many_queries_is_refused_before_it_is_paid(tmp_path):
    async def play(stage):
        with pytest.raises(VoteAborted):
            await stage.ask([np.repeat(ASKED, 2, axis=0)])
        assert stage.account.reserved == []

    on_stage(tmp_path, play)


@pytest.mark.parametrize(("absent", "live", "works"), [(1, 3, True), (1, 2, False), (0, 3, False)])
def test_sites_may_be_absent_as_far_as_was_agreed(tmp_path, absent, live, works):
    terms = replace(TERMS, absent=absent)

    async def play(stage):
        for name in terms.sites[live:]:
            stage.tasks[name].cancel()
        await stage.settled(live)
        if works:
            assert (await stage.ask([ASKED]))[0].shape == (5, 3)
            return
        with pytest.raises(VoteAborted) as refused:
            await stage.ask([ASKED])
        assert refused.value.released is False
        assert stage.account.reserved == []

    on_stage(tmp_path, play, terms)


def interfering(monkeypatch, change):
    """A guardian that does not pass sealed parcels on as they are."""
    send = guardian_service._Session.send
    seen = []

    async def altered(session, party, said):
        if isinstance(said, Parcel) and said.party not in ("guardian",):
            seen.append(said)
            for one in change(list(seen), said, party):
                await send(session, party, one)
            return
        await send(session, party, said)

    monkeypatch.setattr(guardian_service._Session, "send", altered)


def flipped(said):
    content = bytes([said.content[0] ^ 1]) + said.content[1:]
    return Parcel(said.session, said.party, content)


INTERFERENCES = {
    "tampered": lambda seen, said, party: [flipped(said)],
    "truncated": lambda seen, said, party: [Parcel(said.session, said.party, said.content[:-1])],
    "longer": lambda seen, said, party: [Parcel(said.session, said.party, said.content + b"\0")],
    "replayed": lambda seen, said, party: [said, said],
    "from another": lambda seen, said, party: [
        Parcel(said.session, "site-2" if said.party == "site-1" else "site-1", said.content)
    ],
    "left out": lambda seen, said, party: [],
    "reordered": lambda seen, said, party: (
        [] if party == QUERIER and said.party == "site-3" and len(seen) < 9 else
        [said, *(one for one in seen[:8] if one.party == "site-3" and party == QUERIER
                 and one is not said)]
    ),
}  # fmt: skip


def dealer_reordered(seen, said, party):
    """The first two messages of the site that deals, to who asks, the second one first."""
    if party != QUERIER or said.party != "site-2":
        return [said]
    own = [one for one in seen if one.party == "site-2"]
    return {1: [], 2: [said, own[0]]}.get(len(own), [said])


BROKEN = {
    VoteMode.HELPER: INTERFERENCES,
    VoteMode.STRICT: {**INTERFERENCES, "reordered": dealer_reordered},
    VoteMode.SHARES: {**INTERFERENCES, "reordered": dealer_reordered},
}


BREAKS = list(product(INTERFERENCES, VoteMode))
# Each interference in one mode after the other; what is left out is waited for, six seconds.
QUICK = [one for one in zip(INTERFERENCES, cycle(VoteMode), strict=False) if one[0] != "left out"]


@pytest.mark.parametrize(("interference", "mode"), quick_and_slow(QUICK, BREAKS))
def test_what_is_altered_on_its_way_ends_the_vote_soon_and_releases_nothing(
    tmp_path, monkeypatch, interference, mode
):
    """Nothing is charged either, in either mode."""
    interfering(monkeypatch, BROKEN[mode][interference])

    async def play(stage):
        began = time.monotonic()
        with pytest.raises((VoteAborted, ProtocolError)) as ended:
            await stage.ask([ASKED])
        assert "\n" not in str(ended.value)
        assert time.monotonic() - began < SECONDS
        assert stage.account.committed == {}
        await asyncio.sleep(0.2)
        assert not stage.account.working
        # The same batch is begun again, and charged once.
        monkeypatch.undo()
        await stage.ask([ASKED], name="office")
        assert stage.account.reserved == [1, 1] and list(stage.account.committed) == [1]

    on_stage(tmp_path, play, terms=in_mode(TERMS, mode))


@pytest.mark.parametrize("mode", quick_and_slow([VoteMode.STRICT], VoteMode))
def test_a_silent_site_ends_the_vote_soon_and_is_named(tmp_path, monkeypatch, mode):
    async def play(stage):
        async def nothing(connection, said):
            await asyncio.sleep(60)

        monkeypatch.setattr(stage.sites["site-2"], "_answer", nothing)
        began = time.monotonic()
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert time.monotonic() - began < SECONDS
        assert "site-2" in str(ended.value) and "site-1" not in str(ended.value)
        assert stage.account.committed == {}

    on_stage(tmp_path, play, terms=in_mode(TERMS, mode), patience=3.0)


@pytest.mark.slow
def test_a_site_that_hangs_is_missing_from_the_next_session(tmp_path, monkeypatch):
    """And not in its way: as many may be absent as was agreed."""

    async def play(stage):
        async def nothing(connection, said):
            await asyncio.sleep(60)

        monkeypatch.setattr(stage.sites["site-2"], "_answer", nothing)
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED])
        await stage.settled(3)
        assert sorted(stage.service._sites) == ["site-1", "site-3", "site-4"]
        assert len(await stage.ask([ASKED], name="office")) == 1

    on_stage(tmp_path, play, terms=replace(TERMS, absent=1), patience=3.0)


def test_whoever_is_revoked_while_connected_is_cut_off(tmp_path):
    async def play(stage):
        revoke(stage.authority.folder, tmp_path / "site-2-keys" / "certificate.pem")
        for name in ("keeper", "site-1", "site-3", "site-4"):
            stage.authority.copy_to(tmp_path / f"{name}-keys")
        assert len(await stage.ask([ASKED])) == 1
        assert "site-2" not in stage.service._sites

    on_stage(tmp_path, play, terms=replace(TERMS, absent=1))


def test_a_guardian_that_is_revoked_while_connected_has_no_vote(tmp_path):
    """Who asks does not know of it yet, or does not mind."""

    async def play(stage):
        revoke(stage.authority.folder, tmp_path / "keeper-keys" / "certificate.pem")
        for name in TERMS.sites:
            stage.authority.copy_to(tmp_path / f"{name}-keys")
        asker = stage.authority.enrolled("ministry", PartyRole.QUERIER)
        shutil.copy(tmp_path / "keeper-keys" / "revoked.pem", asker.folder)  # the list of before
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED], asker)
        assert stage.account.reserved == []
        assert any("was revoked" in line for line in stage.said)

    on_stage(tmp_path, play)


def test_an_address_that_is_taken_is_not_listened_at(tmp_path):
    async def play(stage):
        with pytest.raises(VoteAborted) as refused:
            async with stage.service.listening("127.0.0.1", stage.port):
                pass
        assert refused.value.released is False

    on_stage(tmp_path, play)


def test_nobody_speaks_in_the_session_of_another(tmp_path):
    """Every site knows its number, and may tell it."""

    async def play(stage):
        address = ("127.0.0.1", stage.port)
        first, second = (stage.authority.enrolled(name, PartyRole.QUERIER, tmp_path / name)
                         for name in ("ministry", "office"))  # fmt: skip
        async with querier_service._joined(TERMS, first, address, "keeper", 6.0) as asker:
            session = asker._member.invitation.session
            async with querier_service._joined(TERMS, second, address, "keeper", 6.0) as other:
                await other.send(Ask(session=session, queries=5))
                with pytest.raises(VoteAborted):
                    await other.receive()
            assert (await asker.answers(ASKED)).shape == (5, 3)
        assert stage.account.reserved == [1]

    on_stage(tmp_path, play)


def test_a_number_that_another_session_left_is_begun_again(tmp_path):
    async def play(stage):
        office = stage.authority.enrolled("office", PartyRole.QUERIER)
        address = ("127.0.0.1", stage.port)
        stage.account.working.add(1)
        async with querier_service._joined(TERMS, office, address, "keeper", 6.0) as asker:
            await asker.answers(ASKED)
            stage.account.leave(1)  # whoever had it is gone
            await asker.answers(ASKED)
        assert list(stage.account.committed) == [2, 1]

    on_stage(tmp_path, play)


def test_a_site_that_dies_amid_a_batch_ends_it_at_once(tmp_path, monkeypatch):
    async def play(stage):
        answer = stage.sites["site-3"]._answer

        async def dying(connection, said):
            if type(said).__name__ == "Begin":
                stage.tasks["site-3"].cancel()
                await asyncio.sleep(60)
            await answer(connection, said)

        monkeypatch.setattr(stage.sites["site-3"], "_answer", dying)
        began = time.monotonic()
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert time.monotonic() - began < 5  # and not after the patience of 6
        assert "site-3" in str(ended.value)
        assert stage.account.committed == {} and not stage.account.working

    on_stage(tmp_path, play)


def test_who_asks_leaves_after_all_voted_and_the_batch_is_charged_once(tmp_path, monkeypatch):
    """Told or not, it may have been: what was committed is never drawn again."""

    async def play(stage):
        receive = QuerierBatch.receive

        def leaving(state, sender, data):
            state, outbox = receive(state, sender, data)
            if state.answers is not None:
                raise VoteAborted("gone")
            return state, outbox

        monkeypatch.setattr(QuerierBatch, "receive", leaving)
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED])
        monkeypatch.undo()
        await stage.ask([ASKED], name="office")
        assert stage.account.reserved == [1, 2]

    on_stage(tmp_path, play)


class BrokenAccount(FreeAccount):
    """A disk that is full when an answer is to be kept."""

    def commit(self, number, answer):
        raise ProtocolError("the disk is full")


def test_no_answer_is_told_that_could_not_be_committed(tmp_path, monkeypatch):
    told = []
    send = guardian_service._Session.send

    async def listening(session, party, said):
        told.append(said)
        await send(session, party, said)

    monkeypatch.setattr(guardian_service._Session, "send", listening)

    async def play(stage):
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED])
        # The deal is the one parcel of the guardian that who asks got.
        deals = [one for one in told if isinstance(one, Parcel) and one.party == "guardian"]
        assert len(deals) == 1 + len(TERMS.sites)

    on_stage(tmp_path, play, account=BrokenAccount())


class LedgerGone(FreeAccount):
    """A guardian whose ledger cannot be written, or was altered."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def reserve(self):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        StorageError("/srv/keeper/ledger.sqlite", "No space left on device"),
        LedgerError.before_release("no such ledger: postgresql://keeper@db/srv/keeper"),
    ],
    ids=lambda error: error.code,
)
def test_where_files_of_the_guardian_lie_is_told_to_nobody_else(tmp_path, error):
    async def play(stage):
        with pytest.raises(VoteAborted) as ended:
            await stage.ask([ASKED])
        assert "the guardian" in str(ended.value) and "srv" not in str(ended.value)
        assert any(str(error) in line for line in stage.said), "its own output says it"

    on_stage(tmp_path, play, account=LedgerGone(error))


def test_strangers_and_the_revoked_are_not_served(tmp_path):
    async def play(stage):
        other = Authority.made(tmp_path / "others" / "authority")
        stranger = other.enrolled("ministry", PartyRole.QUERIER)
        wrong = replace(stranger, authority=stage.service.identity.authority)
        stage.authority.copy_to(stranger.folder)  # it believes the guardian, not the other way
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED], wrong)
        guest = stage.authority.enrolled("guest", PartyRole.SITE)
        with pytest.raises(VoteAborted) as refused:
            await stage.ask([ASKED], guest)
        assert refused.value.released is False
        gone = stage.authority.enrolled("gone", PartyRole.QUERIER)
        revoke(stage.authority.folder, gone.folder / "certificate.pem")
        stage.authority.copy_to(stage.service.identity.folder)
        with pytest.raises(VoteAborted):
            await stage.ask([ASKED], gone)
        assert stage.account.reserved == []
        assert (await stage.ask([ASKED], name="office"))[0].shape == (5, 3)

    on_stage(tmp_path, play)


def test_whoever_is_not_the_guardian_is_not_asked(tmp_path):
    async def play(stage):
        asker = stage.authority.enrolled("ministry", PartyRole.QUERIER)
        limit = largest_frame(TERMS)
        for name in ("another", "site-1"):
            with pytest.raises(VoteAborted):
                await connect(asker, "127.0.0.1", stage.port, name, limit, patience=3)
        with pytest.raises(VoteAborted):
            await connect(asker, "127.0.0.1", 1, "keeper", limit, patience=3)

    on_stage(tmp_path, play)


def test_only_tls_1_3_with_a_certificate_is_spoken(tmp_path):
    async def play(stage):
        asker = stage.authority.enrolled("ministry", PartyRole.QUERIER)
        old = client_context(asker)
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", stage.port, ssl=old,
                                          server_hostname="keeper")  # fmt: skip
        bare = ssl.create_default_context(cafile=asker.folder / "authority.pem")
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, ssl=bare,
                                                       server_hostname="keeper")  # fmt: skip
        with pytest.raises((ssl.SSLError, ConnectionError)):
            writer.write(b"\0\0\0\1x")
            if not await reader.read():
                raise ConnectionError
        writer.transport.abort()

    on_stage(tmp_path, play)


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\5\0{}ab", b"\0\0\0\1\7",
        (3).to_bytes(4, "big") + b"\1ab",
        (len(f := to_frame(Ask(session="0" * 64, queries=1))) - 1).to_bytes(4, "big") + f,
    ],
)  # fmt: skip
def test_a_party_that_sends_something_else_is_cut_off_and_others_are_served(tmp_path, sent):
    async def play(stage):
        guest = stage.authority.enrolled("guest", PartyRole.QUERIER)
        connection = await connect(guest, "127.0.0.1", stage.port, "keeper", 1 << 20, patience=3)
        connection.writer.write(sent)
        said = [await connection.receive(patience=SECONDS)]
        while not isinstance(said[-1], Abort):
            said.append(await connection.receive(patience=SECONDS))
        await connection.close()
        assert (await stage.ask([ASKED]))[0].shape == (5, 3)

    on_stage(tmp_path, play)


@pytest.mark.parametrize(
    "text",
    [
        "{}", "[]", "[" * 5000, '{"kind": "ask"}', '{"kind": "ask", "session": "x", "queries": 1}',
        json.dumps({"kind": "ask", "session": "0" * 64, "queries": "1"}),
        json.dumps({"kind": "ask", "session": "0" * 64, "queries": 1, "more": 1}),
        json.dumps({"kind": "begin", "session": "0" * 64, "number": 0, "queries": 1}),
        json.dumps({"kind": "other", "session": "0" * 64}),
    ],
)  # fmt: skip
def test_control_messages_have_one_form(text):
    with pytest.raises(ProtocolError):
        from_frame(b"\0" + text.encode())


def test_terms_whose_messages_fit_no_frame_are_refused():
    with pytest.raises(ParameterError):
        largest_frame(terms_of(50, labels=1024, queries=1024))


@pytest.mark.parametrize(
    ("terms", "longest"),
    [
        (terms_of(3, labels=100, features=16_384, queries=1), HiddenWeights),
        (terms_of(2, labels=10, features=1, queries=1_024, mode=VoteMode.STRICT), LastDeal),
    ],
)
def test_frames_hold_whatever_message_is_the_longest(terms, longest):
    """Many features and few queries, or many queries and few features."""
    assert longest.size(batch_of(terms, 1, terms.queries, terms.sites)) < largest_frame(terms)


def test_frames_are_read_as_they_were_written():
    for said in (Ask(session="a" * 64, queries=3), Abort(session="b" * 64, reason="no"),
                 Parcel("c" * 64, "site-1", b"content")):  # fmt: skip
        assert from_frame(to_frame(said)) == said
    for wrong in (b"", b"\1", b"\1" + bytes(20), b"\2abc", b"\1" + bytes(32) + b"\1\xff"):
        with pytest.raises(ProtocolError):
            from_frame(wrong)
