"""What entries are about, and one digest for all entries about the same.

A decision needs few entries: those of a campaign, of a data set, of the campaigns on it. Entries
that are needed together are a topic. The lines of a topic are a chain of their own, so that its
last digest shows that none of its entries was altered, left out or put in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from dpal.errors import LedgerTampered
from dpal.ledger.entries import GENESIS, Entry, EntryKind
from dpal.ledger.release_json import measures_protected
from dpal.ledger.taken_totals import totals_after

_OF_DATA_SETS = (EntryKind.REGISTER, EntryKind.LIMIT, EntryKind.BLOCK, EntryKind.INDEX)

_SHARES = "shares"
_JSON = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class TopicLine:
    """That an entry is one of a topic's.

    Attributes:
      topic: its name.
      number: 1, 2, ... within the topic.
      sequence: number of the entry in the ledger.
      entry: its digest.
      totals: what the topic's entries up to this one add up to, where they take of a data set; see
        `taken_totals`. Empty for other topics.
      previous: digest of the line before, GENESIS for the first.
      digest: commits to all of the above.
    """

    topic: str
    number: int
    sequence: int
    entry: str
    totals: str
    previous: str
    digest: str


def topics_of(entry: Entry) -> tuple[str, ...]:
    """Names of all topics of an entry; the first is that of its kind and campaign."""
    topics, body = [own_topic(entry.campaign, entry.kind, entry.release)], entry.body
    if entry.kind in _OF_DATA_SETS and "dataset" in body:
        topics.append(data_topic(str(body["dataset"])))
    if entry.kind in (EntryKind.HOLD, EntryKind.END) and body.get("data"):
        topics.append(shares_topic(str(body["data"]["name"])))
    if entry.kind is EntryKind.HOLD and is_uncounted(body):
        topics.append(UNCOUNTED)
    if entry.kind is EntryKind.BLOCK:
        topics += [earlier_topic(str(one["campaign"])) for one in body.get("earlier", ())]
    return tuple(dict.fromkeys(topics))


def own_topic(campaign: str, kind: EntryKind, release: str) -> str:
    """The topic of an entry's kind and campaign."""
    if kind is EntryKind.CHECKPOINT:
        # By attempt: all that is ever asked is which one is its newest.
        return steps_topic(campaign, release.partition("@")[0])
    return kind_topic(campaign, kind)


def is_uncounted(held: dict[str, Any]) -> bool:
    """Whether no data set counts a run, or it is measured on records which none counts."""
    return not held.get("data") or measures_protected(held)


def next_line(
    topic: str, before: TopicLine | None, entry: Entry, held: Entry | None = None
) -> TopicLine:
    """The line of an entry that comes after another line of the topic, or first.

    Args:
      topic: its name.
      before: the line before.
      entry: what the line is of.
      held: for an end in a topic that has totals, the campaign's hold.
    """
    number = 1 if before is None else before.number + 1
    previous = GENESIS if before is None else before.digest
    totals = ""
    if has_totals(topic):
        totals = totals_after("" if before is None else before.totals, entry, held)
    said = (topic, number, entry.sequence, entry.digest, totals, previous)
    return TopicLine(*said, digest=_digest(said))


def topic_line_of(row: Sequence[Any]) -> TopicLine:
    """Reads a row of the table.

    Raises:
      LedgerTampered: it is no line, or altered.
    """
    *said, sealed = row
    if tuple(map(type, row)) != (str, int, int, str, str, str, str) or _digest(said) != sealed:
        raise LedgerTampered(None, "a line of its topics does not match its digest")
    return TopicLine(*row)


def _digest(said: Sequence[str | int]) -> str:
    """The digest of a line; `canonical.digest` of the same, and half as long on its way."""
    return sha256(_JSON.encode(said).encode()).hexdigest()


def has_totals(topic: str) -> bool:
    """Whether the lines of a topic say what its entries add up to."""
    return topic.startswith(f"{_SHARES} ")


def kind_topic(campaign: str, kind: EntryKind) -> str:
    """All entries of a kind that a campaign has; of no campaign's, all of that kind."""
    return _named(kind.value, campaign)


def steps_topic(campaign: str, attempt: str) -> str:
    """The checkpoints of one attempt at a training."""
    return _named(EntryKind.CHECKPOINT.value, campaign, attempt)


def data_topic(dataset: str) -> str:
    """A data set: its registration, limits, blocks and indexes."""
    return _named("data", dataset)


def shares_topic(dataset: str) -> str:
    """What campaigns take of a data set: their holds and ends."""
    return _named(_SHARES, dataset)


def earlier_topic(campaign: str) -> str:
    """The blocks that count a campaign which began before their records were registered."""
    return _named("earlier", campaign)


def _named(word: str, *names: str) -> str:
    # As JSON: no two lists of names give one text, and every database can hold it.
    return f"{word} {json.dumps(names)}"


UNCOUNTED = _named("uncounted")  # holds of runs that no data set counts
