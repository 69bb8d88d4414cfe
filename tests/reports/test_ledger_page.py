"""The page that a privacy officer reads: nothing runs on it, and it says what the ledger says."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from dpal.ledger.campaign_account import State, campaign_account, epsilons_so_far
from dpal.ledger.chain import verify_chain
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.entries import GENESIS, Entry, EntryKind, seal_entry
from dpal.ledger.ledger_store import LedgerStore
from dpal.reports.ledger_report import ledger_report
from dpal.reports.ledger_words import quoted
from dpal.reports.render.html import html_of
from tests.ledger.telling import HOSTILE, tell
from tests.reports.pages import Page, sound


@pytest.fixture(scope="module")
def entries(tmp_path_factory) -> list[Entry]:
    root = tmp_path_factory.mktemp("told")
    tell(root)
    with closing(LedgerStore(root / "ledger.sqlite")) as store:
        return store.entries()


def html(entries, campaign="first", doubt=None, certificate=None) -> str:
    title = f"Campaign {campaign}"
    report = ledger_report(entries, campaign, title=title, doubt=doubt, certificate=certificate)
    return html_of(report)


def again(entries: list[Entry], change) -> list[Entry]:
    """The ledger with other contents, chained anew."""
    chain, previous = [], GENESIS
    for one in entries:
        changed = {**vars(replace(one, **change(one))), "previous": previous}
        changed.pop("digest")
        chain.append(seal_entry(**changed))
        previous = chain[-1].digest
    verify_chain(chain)
    return chain


@pytest.mark.parametrize("campaign", ["first", "second"])
def test_nothing_on_the_page_loads_runs_or_leads_elsewhere(entries, campaign):
    text = html(entries, campaign)
    page = sound(text)
    assert not list(page.named("img"))
    for word in ("http:", "https:", "url(", "@import"):
        assert word not in text


def test_a_hostile_reason_or_name_is_text(entries):
    text = html(entries)
    assert HOSTILE not in text
    assert quoted(HOSTILE) in Page(text).text  # and read as it was written
    renamed = [
        replace(one, campaign="<script>first" if one.campaign == "first" else one.campaign)
        for one in entries
    ]
    page = Page(html(renamed, "<script>first", certificate="</style><script>")).finish()
    assert "Campaign <script>first" in page.text.replace("  ", " ")
    assert "certificate </style><script>" in page.text
    assert "script" not in {tag for tag, _ in page.tags}


def test_it_says_what_the_ledger_adds_up_to(entries):
    account, page = campaign_account(entries, "first"), Page(html(entries, certificate="c0ffee"))
    assert "whole; mind" in page.text
    promised = (
        f"epsilon {account.epsilon:.4f} at delta 0.0001, adjacency zero_out, unit record, of 3"
    )
    assert promised in page.text
    for one in account.cohorts:
        assert f"{one.epsilon_pld:.4f}" in page.text
        assert f"{one.epsilon_rdp:.4f}" in page.text
    assert f"entry {entries[-1].sequence}, {entries[-1].digest}" in page.text
    assert account.plan in page.text
    assert "Certified: certificate c0ffee." in page.text
    assert "verify certificate.json" in page.text
    assert "Metrics on the validation set are not charged" in page.text
    for one in entries:
        if one.kind in (EntryKind.HOLD, EntryKind.END, EntryKind.LIMIT, EntryKind.BLOCK):
            assert f"{one.sequence} {one.recorded_at[:19].replace('T', ' ')}" in page.text


def bars(page: Page) -> list[list[tuple[float, float, bool]]]:
    """By bar: start, width and whether it is only held, without background and limit."""
    found: list[list[tuple[float, float, bool]]] = []
    for tag, one in page.tags:
        if tag == "svg":
            found.append([])
        elif tag == "rect" and one["class"] not in ("track", "mark"):
            held = "held" in (one["class"] or "").split()
            found[-1].append((float(one.get("x") or 0), float(one["width"] or 0), held))
    return [one for one in found if one]


def test_bars_are_as_long_as_what_they_stand_for(entries):
    account, page = campaign_account(entries, "first"), Page(html(entries))
    drawn, releases = bars(page), len(account.releases)
    totals = epsilons_so_far(account)
    for release, [(_, width, _)] in zip(account.releases, drawn[:releases], strict=True):
        assert width == pytest.approx(92 * totals[release.sequence] / 3, abs=1e-3)
    for one, [(_, width, _)] in zip(account.cohorts, drawn[releases:], strict=False):
        assert width == pytest.approx(92 * one.epsilon_pld / 3, abs=1e-3)
    known = data_set(entries, "clinic")
    whole = known.limit.filter.limit.divergence
    stacked = [one for one in drawn if len(one) == 2]
    assert len(stacked) == 1  # both campaigns are on block 0
    (start, first, spent), (after, second, held) = stacked[0]
    assert (start, spent, held) == (0.0, False, True)
    assert after == pytest.approx(first, abs=1e-3)
    left = known.blocks[0].left(known.limit).divergence / whole
    assert first + second == pytest.approx(100 * (1 - left), abs=2e-3)


def test_each_release_shows_its_state(entries):
    page = Page(html(entries, "second"))
    states = {one.state for one in campaign_account(entries, "second").releases}
    assert states == {State.RESERVE, State.FORFEIT}
    for words in ("forfeited", "reserved", "3 steps", "1 file thrown away"):
        assert words in page.text
    assert "files: phase-0/training." in page.text
    assert "person vouched" in page.text
    assert "0 of 3 planned" in page.text
    assert "There is no certificate yet" in page.text


def test_a_doubt_is_said_first_and_never_called_whole(entries):
    page = Page(html(entries, doubt="It may be an older copy."))
    assert "It may be an older copy." in page.text
    assert "the ledger is whole" not in page.text
    assert any("mind" in (one.get("class") or "") for one in page.named("section"))
    sound = Page(html(entries[:-1]))  # before a person vouched
    assert "The promise is kept, and the ledger is whole." in sound.text
    assert not any("mind" in (one.get("class") or "") for one in sound.named("section"))


def test_more_than_was_promised_is_never_called_kept(entries):
    """A ledger that somebody made: one release is louder than the plan allowed."""

    def louder(one: Entry):
        if one.kind is not EntryKind.RESERVE or one.campaign != "first":
            return {}
        charges = [
            {**charge, "event": {**charge["event"], "noise_multiplier": 0.4}}
            if "noise_multiplier" in charge["event"]
            else charge
            for charge in one.body["charges"]
        ]
        return {"body": {**one.body, "charges": charges}}

    page = Page(html(again(entries, louder)))
    assert "More was spent than promised." in page.text
    assert "The promise is kept" not in page.text
    assert any(one.get("class") == "verdict broken" for one in page.named("section"))
    assert "broken" in {one["class"] for one in page.named("rect") if float(one["width"] or 0) > 92}
    for one in page.named("rect"):  # a bar stays a bar
        assert float(one.get("x") or 0) + float(one["width"] or 0) <= 100.0


def test_the_same_entries_give_the_same_page(entries):
    assert html(entries) == html(list(entries))
    assert html(entries) != html(entries[:-1])
