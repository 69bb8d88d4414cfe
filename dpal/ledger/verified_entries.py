"""All entries of a ledger, read as they are asked for, and proven to be what was verified.

What a decision asks for by topic is read by an index and checked against the root that the
verified prefix gives: no entry of it is altered, missing or put in. What it asks for otherwise is
read from the first entry on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import sqlalchemy as sa

from dpal.errors import LedgerTampered
from dpal.ledger.chain import VerifiedPrefix, known_keys, verify_chain
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.entry_rows import entry_at, entry_of, read_entries, write_entry
from dpal.ledger.merkle_tree_of_topics import Branches
from dpal.ledger.schema_version import ENTRIES, TOPICS
from dpal.ledger.taken_totals import Totals, totals_in
from dpal.ledger.topics import (
    UNCOUNTED,
    TopicLine,
    data_topic,
    earlier_topic,
    has_totals,
    kind_topic,
    next_line,
    shares_topic,
    steps_topic,
    topic_line_of,
    topics_of,
)
from dpal.ledger.verify_since import Doubt, write_lines

_OPENED = kind_topic("", EntryKind.OPEN)
SPENDING = (EntryKind.HOLD, EntryKind.RESERVE, EntryKind.END)  # of a campaign

_JOINED = (
    sa.select(ENTRIES, TOPICS)
    .join_from(TOPICS, ENTRIES, ENTRIES.c.sequence == TOPICS.c.sequence)
    .where(TOPICS.c.topic.in_(sa.bindparam("topics", expanding=True)))
    .order_by(TOPICS.c.topic, TOPICS.c.sequence)
)
_NEWEST = (
    sa.select(ENTRIES, TOPICS)
    .join_from(TOPICS, ENTRIES, ENTRIES.c.sequence == TOPICS.c.sequence)
    .where(TOPICS.c.topic == sa.bindparam("topic"))
    .order_by(TOPICS.c.sequence.desc())
    .limit(1)
)


class EntriesSoFar(Sequence[Entry]):
    """The entries of a ledger in one transaction.

    All of its methods raise `Doubt` where the tables do not give what was verified.

    Attributes:
      prefix: all entries, as they were verified.
    """

    def __init__(self, connection: sa.Connection, prefix: VerifiedPrefix) -> None:
        self.prefix = prefix
        self._connection, self._branches = connection, Branches()
        self._proven: dict[str, list[Entry]] = {}
        self._lines: dict[str, tuple[TopicLine, Entry] | None] = {}  # the newest of their topics

    def of(self, campaign: str, *kinds: EntryKind) -> list[Entry]:
        """A campaign's entries of some kinds, in order; of kinds that have no campaign, all."""
        return self._read(kind_topic(campaign, kind) for kind in kinds)

    def spending(self, campaigns: Iterable[str]) -> list[Entry]:
        """All entries that say what campaigns may spend, and have spent, in order."""
        return self._read(kind_topic(campaign, kind) for campaign in campaigns for kind in SPENDING)

    def of_data_sets(self, *names: str) -> list[Entry]:
        """All entries that decide what is left of some data sets, in order."""
        topics = [topic(name) for name in names for topic in (data_topic, shares_topic)]
        about = self._read(topics) or self.of("", EntryKind.REGISTER)  # for the refusal
        earlier = {
            str(begun["campaign"])
            for entry in about
            if entry.kind is EntryKind.BLOCK
            for begun in entry.body.get("earlier", ())
        }
        return _in_order([*about, *self.spending(sorted(earlier)), *self.of("", EntryKind.ADOPT)])

    def totals_of(self, name: str) -> Totals:
        """What holds and ends take of a data set, by block."""
        self._load([shares_topic(name), data_topic(name)])  # of which limits are asked next
        newest = self._newest(shares_topic(name))
        return totals_in("" if newest is None else newest[0].totals)

    def about_data_set(self, name: str) -> list[Entry]:
        """Limits and blocks of a data set, and what says whether entries were lost."""
        return _in_order([*self._read([data_topic(name)]), *self.of("", EntryKind.ADOPT)])

    def that_count(self, campaign: str) -> list[Entry]:
        """The same of all data sets that count a campaign which began before its records came."""
        blocks = self._read([earlier_topic(campaign)])
        return self.of_data_sets(*{str(block.body["dataset"]): None for block in blocks})

    def newest_steps(self, campaign: str, attempt: str) -> Entry | None:
        """The newest checkpoint of an attempt at a training; None where it has none."""
        line = self._newest(steps_topic(campaign, attempt))
        return None if line is None else line[1]

    def parts_added(self) -> int:
        """How often records were added to data sets; requires that all of these are sound."""
        self.of("", EntryKind.REGISTER, EntryKind.LIMIT)
        return len(self.of("", EntryKind.BLOCK, EntryKind.INDEX))

    def count_uncounted(self) -> int:
        """How many runs hold a plan that no data set counts; requires that all are sound."""
        return len(self._read([UNCOUNTED]))

    @cached_property
    def first(self) -> Entry:
        """The first entry, by which a ledger is known."""
        opened = self.of("", EntryKind.OPEN)
        first = opened[0] if opened else self[0]  # an old one
        if first.sequence != 1 or first not in self._read(topics_of(first)[:1]):
            raise Doubt
        return first

    @cached_property
    def keys(self) -> set[str]:
        """Public keys whose anchors the ledger accepts."""
        return known_keys([self.first, *self.of("", EntryKind.ADOPT)])

    def require_sound(self, campaign: str, follows: str) -> None:
        """Requires that what a campaign may spend, and has spent, is what was verified.

        Args:
          campaign: whose.
          follows: topic of the entry that is to be written, whose way is read in the same query.
        """
        topics = [_OPENED, kind_topic("", EntryKind.ADOPT)]
        topics += [kind_topic(campaign, kind) for kind in SPENDING]
        self._load([*topics, follows])
        self._read(topics)
        _ = self.first

    def of_campaign(self, campaign: str) -> list[Entry]:
        """All that a campaign goes by: its entries and those about the ledger itself, in order."""
        about_ledger = [self.first, *self.of("", EntryKind.OPEN, EntryKind.ADOPT)]
        own = self.of(campaign, *SPENDING, EntryKind.COMMIT, EntryKind.FORFEIT)
        attempts = {entry.release for entry in own if entry.kind is EntryKind.RESERVE}
        steps = self._read(steps_topic(campaign, attempt) for attempt in sorted(attempts))
        return _in_order([*about_ledger, *own, *steps])

    def add(self, entry: Entry) -> None:
        """Writes an entry that follows, and its topics."""
        lines, topics = [], topics_of(entry)
        self._load(topics)
        for topic in topics:
            before = self._newest(topic)
            line = None if before is None else before[0]
            lines.append(next_line(topic, line, entry, self._held(topic, entry)))
        write_entry(self._connection, entry)
        write_lines(self._connection, lines)
        for line in lines:
            self._branches.put(line.topic, line.digest)
            self._proven.pop(line.topic, None)
            self._lines[line.topic] = line, entry
        self._branches.write(self._connection)
        self.prefix = VerifiedPrefix(
            sequence=entry.sequence, digest=entry.digest, topics=self._branches.root()
        )

    def __len__(self) -> int:
        return self.prefix.sequence

    def __iter__(self) -> Iterator[Entry]:
        """Reads all of them, from the first on."""
        entries = read_entries(self._connection)
        if verify_chain(entries) != self.prefix.digest:
            raise Doubt
        return iter(entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        """One by its place; what only its own digest speaks for, but the last one's."""
        if isinstance(index, slice):
            return list(self)[index]
        number = range(1, len(self) + 1)[index]
        opened = self._proven.get(_OPENED, ())
        entry = next((one for one in opened if one.sequence == number), None)
        entry = entry or entry_at(self._connection, number)
        if entry is None:
            raise Doubt
        return entry

    def _read(self, topics: Iterable[str]) -> list[Entry]:
        """The entries of some topics, each once, in order."""
        wanted = list(topics)
        self._prove([topic for topic in wanted if topic not in self._proven])
        return _in_order(entry for topic in wanted for entry in self._proven[topic])

    def _prove(self, topics: list[str]) -> None:
        """Reads topics, line for line from the first to the one that the tree names."""
        if not topics:
            return
        self._load(topics)
        newest: dict[str, tuple[TopicLine, Entry]] = {}
        self._proven |= {topic: [] for topic in topics}
        for entry, stored in self._rows(_JOINED, topics=topics):
            before = newest.get(stored.topic)
            follows = stored.number == 1 if before is None else before[0].digest == stored.previous
            if not follows or stored.entry != entry.digest:
                raise Doubt
            newest[stored.topic] = stored, entry
            self._proven[stored.topic].append(entry)
        for topic in topics:
            last = newest.get(topic)
            if self._branches.digest_of(topic) != (None if last is None else last[0].digest):
                raise Doubt
            self._lines[topic] = last

    def _newest(self, topic: str) -> tuple[TopicLine, Entry] | None:
        """The newest line of a topic, and its entry; the digest proves both."""
        if topic in self._lines:
            return self._lines[topic]
        self._load([topic])
        newest = None
        for entry, stored in self._rows(_NEWEST, topic=topic):
            if stored.entry != entry.digest:
                raise Doubt
            newest = stored, entry
        if self._branches.digest_of(topic) != (None if newest is None else newest[0].digest):
            raise Doubt
        self._lines[topic] = newest
        return newest

    def _held(self, topic: str, entry: Entry) -> Entry | None:
        """The hold that an end takes back, where it adds to totals."""
        if entry.kind is not EntryKind.END or not has_totals(topic):
            return None
        return next(iter(self.of(entry.campaign, EntryKind.HOLD)[-1:]), None)

    def _load(self, topics: Iterable[str]) -> None:
        """Reads the ways to topics, and requires that they lead to the root."""
        if self._branches.read(self._connection, topics) and (
            self._branches.root() != self.prefix.topics
        ):
            raise Doubt

    def _rows(self, query: sa.Select[Any], **asked: Any) -> Iterator[tuple[Entry, TopicLine]]:
        for row in self._connection.execute(query, asked).all():
            try:
                # Proven by its topic, or there is a doubt.
                entry, line = entry_of(row, proven=True), topic_line_of(row[len(ENTRIES.c) :])
            except LedgerTampered as found:
                raise Doubt from found
            yield entry, line


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by their numbers, each once."""
    by_number = {entry.sequence: entry for entry in entries}
    return [by_number[sequence] for sequence in sorted(by_number)]
