"""How far a ledger was verified, and going on from there.

Entries up to a number were verified once; their head and the root of their topics stand for all of
them. What came later is verified as a chain, and added to what the topics were then. Nothing of
the tables is believed: they must give the root that was known before, or there is a doubt, and
whoever is in doubt begins at the first entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import sqlalchemy as sa

from dpal.errors import LedgerTampered
from dpal.ledger.chain import VerifiedPrefix
from dpal.ledger.entries import GENESIS, Entry, EntryKind
from dpal.ledger.entry_rows import entries_after, entry_at
from dpal.ledger.merkle_tree_of_topics import NO_TOPICS, Branches
from dpal.ledger.schema_version import TOPIC_TREE, TOPICS
from dpal.ledger.topics import (
    TopicLine,
    has_totals,
    kind_topic,
    next_line,
    topic_line_of,
    topics_of,
)

_LINES_AT_ONCE = 1000
_THEN = (
    sa.select(TOPICS)
    .where(TOPICS.c.topic == sa.bindparam("name"), TOPICS.c.sequence <= sa.bindparam("upto"))
    .order_by(TOPICS.c.sequence.desc())
    .limit(1)
)


class Doubt(Exception):
    """The tables are not what a verified prefix says; nothing but the entries can be believed."""


NOTHING_VERIFIED = VerifiedPrefix(sequence=0, digest=GENESIS, topics=NO_TOPICS)


def verify_since(connection: sa.Connection, known: VerifiedPrefix) -> VerifiedPrefix:
    """Verifies the entries after a prefix, and that the tables follow from the prefix and them.

    Args:
      connection: in a transaction that sees one state of the database.
      known: what was verified before, by whoever may be believed.

    Returns:
      All entries, as verified now.

    Raises:
      Doubt: something is not what it should be.
    """
    then: dict[str, TopicLine | None] = {}
    newest: dict[str, TopicLine] = {}

    def line_then(topic: str) -> TopicLine | None:
        row = connection.execute(_THEN, {"name": topic, "upto": known.sequence}).one_or_none()
        then[topic] = None if row is None else topic_line_of(row)
        return then[topic]

    def hold_then(campaign: str) -> Entry:
        line = line_then(kind_topic(campaign, EntryKind.HOLD))
        entry = None if line is None else entry_at(connection, line.sequence)
        if line is None or entry is None or entry.digest != line.entry:
            raise Doubt
        newest[line.topic] = line  # to be proven with the others
        return entry

    head = known
    try:
        last = entry_at(connection, known.sequence)
        if known.digest != (GENESIS if last is None else last.digest):
            raise Doubt
        for entry, lines in _following(connection, known, line_then, hold_then):
            newest |= {line.topic: line for line in lines}
            head = replace(head, sequence=entry.sequence, digest=entry.digest)
    except LedgerTampered as found:
        raise Doubt from found
    if not newest:
        return known
    branches = Branches()
    branches.read(connection, newest)
    for topic, line in then.items():
        branches.put(topic, None if line is None else line.digest)
    # With the topics as they were, the tree must be what it was: neither they nor their neighbours
    # were altered since.
    if branches.root() != known.topics:
        raise Doubt
    for topic, line in newest.items():
        branches.put(topic, line.digest)
    return replace(head, topics=branches.root())


def verify_from_start(connection: sa.Connection, *, write: bool = False) -> VerifiedPrefix:
    """Verifies all entries, whatever was known and whatever the tables say.

    Args:
      connection: to the database; in a transaction that may write if the tables are written.
      write: whether topics and tree are written anew.

    Raises:
      LedgerTampered: names the first bad entry.
    """
    if write:
        connection.execute(sa.delete(TOPICS))
        connection.execute(sa.delete(TOPIC_TREE))
    head, waiting, branches = NOTHING_VERIFIED, list[TopicLine](), Branches()
    for entry, lines in _following(connection, head):
        head = replace(head, sequence=entry.sequence, digest=entry.digest)
        for line in lines:
            branches.put(line.topic, line.digest)
        if write:
            waiting += lines
            if len(waiting) >= _LINES_AT_ONCE:
                write_lines(connection, waiting)
                waiting = []
    if write:
        write_lines(connection, waiting)
        branches.write(connection)
    return replace(head, topics=branches.root())


def require_topics(connection: sa.Connection) -> None:
    """Requires that topics and tree are what the entries say, line for line.

    Raises:
      LedgerTampered: names the first bad entry, or says that a table was altered.
    """
    branches, stored = Branches(), _all_lines(connection)
    for _, lines in _following(connection, NOTHING_VERIFIED):
        for line in sorted(lines, key=lambda line: line.topic):
            if next(stored, None) != line:
                raise LedgerTampered(None, f"its table {TOPICS.name} does not follow from it")
            branches.put(line.topic, line.digest)
    if next(stored, None) is not None:
        raise LedgerTampered(None, f"its table {TOPICS.name} does not follow from it")
    branches.root()
    if sorted(branches.nodes()) != sorted(map(tuple, connection.execute(sa.select(TOPIC_TREE)))):
        raise LedgerTampered(None, f"its table {TOPIC_TREE.name} does not follow from it")


def write_lines(connection: sa.Connection, lines: list[TopicLine]) -> None:
    """Adds lines to the table."""
    if lines:
        connection.execute(sa.insert(TOPICS), [vars(line) for line in lines])


def _nothing_then(_name: str) -> None:
    """Before the first entry there was no line, and no hold."""


def _following(
    connection: sa.Connection,
    known: VerifiedPrefix,
    line_then: Callable[[str], TopicLine | None] = _nothing_then,
    hold_then: Callable[[str], Entry | None] = _nothing_then,
) -> Iterator[tuple[Entry, list[TopicLine]]]:
    """Entries after a prefix, and their lines.

    Args:
      connection: to the database.
      known: the prefix.
      line_then: the newest line of a topic that it had; asked once a topic.
      hold_then: the hold of a campaign that it had.
    """
    newest: dict[str, TopicLine] = {}
    holds: dict[str, Entry] = {}
    for entry in entries_after(connection, known.sequence, known.digest):
        lines, held = [], None
        for topic in topics_of(entry):
            if has_totals(topic) and entry.kind is EntryKind.HOLD:
                holds[entry.campaign] = replace(entry, body={"data": entry.body["data"]})
            elif has_totals(topic):
                held = holds.get(entry.campaign) or hold_then(entry.campaign)
            before = newest[topic] if topic in newest else line_then(topic)
            newest[topic] = next_line(topic, before, entry, held)
            lines.append(newest[topic])
        yield entry, lines


def _all_lines(connection: sa.Connection) -> Iterator[TopicLine]:
    """All lines by entry and topic, a thousand entries at a time."""
    begin, last = 0, connection.scalar(sa.select(sa.func.max(TOPICS.c.sequence))) or 0
    while begin < last:
        within = TOPICS.c.sequence.between(begin + 1, begin + _LINES_AT_ONCE)
        lines = map(topic_line_of, connection.execute(sa.select(TOPICS).where(within)).all())
        yield from sorted(lines, key=lambda line: (line.sequence, line.topic))
        begin += _LINES_AT_ONCE
