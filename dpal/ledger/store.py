"""Entries in a database, one serializable transaction each."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from dpal.canonical import canonical_json
from dpal.errors import LedgerError, LedgerMissing, LedgerTampered
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.chain import verify_chain
from dpal.ledger.database import find_database
from dpal.ledger.days import day_of, today_in_utc
from dpal.ledger.entries import GENESIS, Entry, Kind, sealed
from dpal.ledger.schema import ENTRIES, VERSIONS, upgrade, version_of

Body = dict[str, Any]


class LedgerStore:
    """An append-only, hash-chained table of entries, in SQLite or Postgres.

    An entry that `append` returned from survives a crash of the machine. With anchors,
    nothing is appended to a copy of a ledger that was restored, cut short or forked.
    """

    def __init__(
        self,
        place: Path | str,
        *,
        create: bool = True,
        anchors: Path | None = None,
        busy_seconds: float = 30.0,
        today: Callable[[], date] = today_in_utc,
    ) -> None:
        """Opens a ledger.

        Args:
          place: a SQLite file, or a URL (postgresql://HOST/NAME, sqlite:///FILE).
          create: whether a missing ledger may be made, and an older one brought up to date.
          anchors: folder of this machine's anchors, outside of what is backed up with the
            ledger; None trusts that the ledger is the newest there is.
          busy_seconds: how long to wait for another process that writes.
          today: the day that an entry carries, if its campaign does not say another.

        Raises:
          LedgerError: the ledger is missing, cannot be opened, or is of a newer dpal.
        """
        self._database = find_database(place, busy_seconds=busy_seconds)
        self._anchors = None if anchors is None else Anchors(anchors)
        self._today = today
        file = self._database.file
        if not create and file is not None and not file.is_file():
            raise self._missing()
        if create and file is not None:
            _make_private(file)
        with self._database.reading() as connection:
            self._version = version_of(connection, self.name)
        if create:
            self._upgrade()
        elif self._version is None:
            raise self._missing()

    @property
    def name(self) -> str:
        """Where the ledger is, for messages: a path, or a URL without its password."""
        return self._database.name

    @property
    def keeper(self) -> str:
        """Public key of the anchors here: which machine and person writes; empty without."""
        return "" if self._anchors is None else self._anchors.public_key()

    def close(self) -> None:
        """Closes all connections."""
        self._database.close()

    def append(
        self,
        *,
        campaign: str,
        kind: Kind,
        release: str,
        body: Body | Callable[[list[Entry]], Body],
    ) -> Entry:
        """Adds one entry in a serializable transaction and returns it.

        Args:
          campaign: whose entry it is.
          kind: what happened.
          release: to what; with campaign and kind it may stand in the ledger once.
          body: the details, or what decides them from all entries so far; it is called
            while no other process can append, and what it raises refuses the entry.

        Raises:
          LedgerError: the same entry exists already, or the database cannot be written.
          LedgerTampered: the chain is broken.
          AnchorError: this is not the newest copy of the ledger, as far as is known here.
        """

        def compose(entries: list[Entry]) -> Body:
            if self._anchors is not None:
                remembered = self._anchors.read(identity_of(entries))
                key = self._anchors.public_key()
                self._anchors.require(self.name, entries, remembered, key=key)
            return body(entries) if callable(body) else body

        entry, identity = self._add(campaign, kind, release, compose)
        if self._anchors is not None:
            self._anchors.advance(identity, entry)
        return entry

    def adopt(
        self, *, reason: str, despite: str | None = None, begun_elsewhere: bool = False
    ) -> Entry:
        """Records that a person vouches for this copy of the ledger, and anchors it here.

        Args:
          reason: why this is the copy to go on with.
          despite: digest of the last entry that is known here and lost in this copy; only
            where an anchor proves such a loss.
          begun_elsewhere: whether a release that was begun in a lost folder is vouched for, too.

        Returns:
          The ADOPT entry.

        Raises:
          LedgerError: the store has no anchors, the ledger has no entries, or there is
            nothing to vouch for.
          LedgerTampered: the chain is broken; no reason mends that.
          AnchorError: an anchor proves that entries were lost, and `despite` is not theirs.
        """
        anchors = self._anchors
        if anchors is None or not reason.strip():
            raise LedgerError("a ledger is adopted where its anchors are, and for a reason")

        vouch = partial(
            anchors.vouch,
            self.name,
            reason=reason,
            despite=despite,
            begun_elsewhere=begun_elsewhere,
        )
        with self._database.reading() as connection:
            last = connection.execute(sa.select(sa.func.max(ENTRIES.c.sequence))).scalar_one()
        if last is None:
            raise LedgerError(f"the ledger {self.name} has no entries; there is nothing to adopt")
        entry, identity = self._add("", Kind.ADOPT, f"entry-{last}", vouch)
        anchors.advance(identity, entry, anew=True)
        return entry

    def entries(self, campaign: str | None = None) -> list[Entry]:
        """Reads all entries, or those of one campaign, in order."""
        with self._database.reading() as connection:
            return _read(connection, campaign)

    def verified(self) -> list[Entry]:
        """Reads all entries and requires that they are whole and the newest known here.

        Raises:
          LedgerTampered: names the first entry that is altered, missing or out of place.
          AnchorError: the anchor is missing, altered, or names an entry that is not there.
        """
        if self._anchors is None:
            entries = self.entries()
            verify_chain(entries)
            return entries
        with self._database.reading() as connection:
            first = _read(connection, count=1)
        if not first:
            return []
        # The anchor before the entries: those may grow in between, the anchor must not.
        remembered = self._anchors.read(identity_of(first))
        entries = self.entries()
        verify_chain(entries)
        self._anchors.require(self.name, entries, remembered)
        return entries

    def require_sound_file(self) -> None:
        """Requires that the database itself is intact.

        Raises:
          LedgerTampered: it finds its own structure damaged.
        """
        self._database.require_sound_file()

    def fenced(self, campaign: str) -> AbstractContextManager[None]:
        """See `Database.fenced`."""
        return self._database.fenced(campaign)

    def require_fence(self, campaign: str) -> None:
        """See `Database.require_fence`."""
        self._database.require_fence(campaign)

    def _add(
        self, campaign: str, kind: Kind, release: str, compose: Callable[[list[Entry]], Body]
    ) -> tuple[Entry, str]:
        """Adds an entry, before it the ledger's first one; returns it and the identity."""
        self._upgrade()
        try:
            with self._database.writing() as connection:
                entries = _read(connection)
                verify_chain(entries)
                if not entries:
                    entries = [self._open(connection)]
                body = compose(list(entries))
                last = entries[-1]
                day = day_of(campaign, entries, self._today())
                entry = _insert(
                    connection, last.sequence + 1, campaign, kind, release, body, day, last.digest
                )
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger already has a {kind} of {release or 'a plan'} in campaign "
                f"{campaign}; nothing was released a second time"
            ) from error
        return entry, identity_of(entries)

    def _open(self, connection: sa.Connection) -> Entry:
        key = None if self._anchors is None else self._anchors.public_key()
        identity = secrets.token_hex(16)
        body = {"identity": identity, "anchor_key": key}
        day = self._today().isoformat()
        entry = _insert(connection, 1, "", Kind.OPEN, "", body, day, GENESIS)
        if self._anchors is not None:
            # Before the commit: a ledger without an anchor is one that came from elsewhere.
            self._anchors.begin(identity)
        return entry

    def _upgrade(self) -> None:
        if self._version == VERSIONS[-1]:
            return
        with self._database.writing() as connection:
            # Again, now that nobody else can be doing the same.
            upgrade(connection, version_of(connection, self.name))
        self._version = VERSIONS[-1]

    def _missing(self) -> LedgerError:
        return LedgerMissing(f"there is no ledger at {self.name}; has this campaign been run?")


def _insert(
    connection: sa.Connection,
    sequence: int,
    campaign: str,
    kind: Kind,
    release: str,
    body: Body,
    day: str,
    previous: str,
) -> Entry:
    entry = sealed(
        sequence=sequence,
        campaign=campaign,
        kind=kind,
        release=release,
        body=json.loads(canonical_json(body)),
        recorded_at=day,
        previous=previous,
    )
    row = {**vars(entry), "kind": kind.value, "body": canonical_json(entry.body)}
    connection.execute(ENTRIES.insert().values(row))
    return entry


def _read(
    connection: sa.Connection, campaign: str | None = None, count: int | None = None
) -> list[Entry]:
    query = sa.select(ENTRIES).order_by(ENTRIES.c.sequence).limit(count)
    if campaign is not None:
        query = query.where(ENTRIES.c.campaign == campaign)
    # All rows first: a refusal in the middle would leave SQLite reading this old state.
    return [_entry(row) for row in connection.execute(query).all()]


def _entry(row: Any) -> Entry:
    try:
        body = json.loads(row.body)
        # One content, one text: a digest over the meaning alone would let a space pass.
        if canonical_json(body) != row.body:
            raise ValueError("not canonical")
        fields = {**row._mapping, "kind": Kind(row.kind), "body": body}
    except (ValueError, RecursionError) as error:
        raise LedgerTampered(row.sequence, "its content cannot be read") from error
    return Entry(**fields)


def _make_private(file: Path) -> None:
    """Makes an empty database file that only its owner can read; SQLite's own follow it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        file.chmod(0o600)
    except OSError as error:
        raise LedgerError(
            f"the ledger {file} cannot be opened ({error.strerror}); nothing was released"
        ) from error
