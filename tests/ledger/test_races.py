"""Eight processes at once, from a ledger that is not even made."""

from __future__ import annotations

import json
from collections import Counter

from dpal.ledger.anchor import identity_of
from dpal.ledger.entries import EntryKind
from tests.ledger.racing import LIMIT, RACERS, reserve_the_same, spend


def start(racers, what, place, anchors):
    runs = [racers.apply_async(what, (place, anchors, racer)) for racer in range(RACERS)]
    return [run.get(timeout=60) for run in runs]


def test_together_they_spend_the_limit_and_not_one_more(racers, opened, place, tmp_path):
    won = start(racers, spend, place, tmp_path / "anchors")
    assert sum(won) == LIMIT
    entries = opened().verified()
    assert [one.body["spent"] for one in entries if one.kind is EntryKind.RESERVE] == list(
        range(LIMIT)
    )
    assert Counter(one.kind for one in entries) == {EntryKind.OPEN: 1, EntryKind.RESERVE: LIMIT}
    # The anchor is at the head, whoever was last to write it.
    anchor = json.loads((tmp_path / "anchors" / f"{identity_of(entries)}.json").read_text())
    assert anchor["sequence"] == len(entries)


def test_one_of_them_gets_the_release(racers, opened, place, tmp_path):
    told = start(racers, reserve_the_same, place, tmp_path / "anchors")
    assert sorted(told)[0] == ""
    assert len(set(told)) == 2
    assert sum("already has a reserve of one" in one for one in told) == RACERS - 1
    assert len(opened().verified()) == 2
