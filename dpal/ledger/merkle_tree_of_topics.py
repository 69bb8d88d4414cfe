"""A Merkle tree over the newest digests of all topics.

Its root stands for what every topic is, and that there is no other one. Whoever knows the root
checks a topic by the nodes on the way to it, five of them, however many topics there are.

Leaves are named by the SHA-256 of the topic's name, inner nodes by the first four to none of its
digits. A node is in the table under its parent; the digest of an inner node is that of its
children's names and digests, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

import sqlalchemy as sa

from dpal.ledger.schema_version import TOPIC_TREE

_DEPTH = 4
_AT_ONCE = 500  # names in a query
_BELOW = sa.select(TOPIC_TREE).where(
    TOPIC_TREE.c.parent.in_(sa.bindparam("parents", expanding=True))
)
_WRITE = sa.text(
    "INSERT INTO entry_topic_tree (parent, node, digest) VALUES (:parent, :node, :digest) "
    "ON CONFLICT (parent, node) DO UPDATE SET digest = excluded.digest"
)


class Branches:
    """Those parts of the tree that were read, with all neighbours on the way to the root."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, str]] = {}
        self._changed: set[str] = set()

    def read(self, connection: sa.Connection, topics: Iterable[str]) -> bool:
        """Reads what is not read yet of the ways to some topics; returns whether anything was."""
        ways = {parent for topic in topics for parent in _way(_leaf(topic))}
        missing = sorted(ways - self._children.keys())
        for begin in range(0, len(missing), _AT_ONCE):
            names = missing[begin : begin + _AT_ONCE]
            self._children |= {name: {} for name in names}
            for parent, node, digest in connection.execute(_BELOW, {"parents": names}):
                self._children[str(parent)][str(node)] = str(digest)
        return bool(missing)

    def digest_of(self, topic: str) -> str | None:
        """The newest digest of a topic whose way was read; None where it has no entry."""
        leaf = _leaf(topic)
        return self._children[leaf[:_DEPTH]].get(leaf)

    def put(self, topic: str, digest: str | None) -> None:
        """Gives a topic another digest, or none; in memory."""
        leaf = _leaf(topic)
        for parent in _way(leaf):
            self._children.setdefault(parent, {})
        siblings = self._children[leaf[:_DEPTH]]
        if digest is None:
            siblings.pop(leaf, None)
        else:
            siblings[leaf] = digest
        self._changed.add(leaf)

    def root(self) -> str:
        """The root that follows from the leaves that were read, and from other branches' nodes."""
        for name in sorted(self._children, key=len, reverse=True):
            if name:
                siblings = self._children[name[:-1]]
                if self._children[name]:
                    siblings[name] = _digest(self._children[name])
                else:
                    siblings.pop(name, None)
        return _digest(self._children.get("", {}))

    def nodes(self) -> Iterator[tuple[str, str, str]]:
        """Parent, name and digest of every node that is known, below the root."""
        for parent, children in self._children.items():
            for node, digest in children.items():
                yield parent, node, digest

    def write(self, connection: sa.Connection) -> None:
        """Writes the ways to all topics that were given another digest."""
        self.root()
        names = {name for leaf in self._changed for name in (leaf, *_way(leaf)) if name}
        rows = [
            {"parent": parent, "node": name, "digest": self._children[parent][name]}
            for name in sorted(names)
            for parent in (name[: min(_DEPTH, len(name) - 1)],)
        ]
        for begin in range(0, len(rows), _AT_ONCE):
            connection.execute(_WRITE, rows[begin : begin + _AT_ONCE])
        self._changed.clear()


def _leaf(topic: str) -> str:
    return sha256(topic.encode()).hexdigest()


def _way(leaf: str) -> list[str]:
    """All inner nodes above a leaf, the root last."""
    return [leaf[:depth] for depth in range(_DEPTH, -1, -1)]


def _digest(children: dict[str, str]) -> str:
    lines = "".join(f"{node} {children[node]}\n" for node in sorted(children))
    return sha256(lines.encode()).hexdigest()


NO_TOPICS = _digest({})
