"""Entries in a database, one serializable transaction each."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from dpal.canonical import canonical_json
from dpal.errors import AnchorError, LedgerError, LedgerMissing, LedgerTampered
from dpal.files.atomic_writes import make_private
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.chain import missing_entry, verify_chain
from dpal.ledger.database import find_database
from dpal.ledger.entries import GENESIS, Entry, EntryKind, row_digest, seal_entry
from dpal.ledger.known_ledgers import Places, ledger_places
from dpal.ledger.schema import ENTRIES, VERSIONS, migrate_schema, version_of
from dpal.ledger.stamped_day import day_of, today_in_utc

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
        campaigns: Path | None = None,
        busy_seconds: float = 30.0,
        today: Callable[[], date] = today_in_utc,
    ) -> None:
        """Opens a ledger.

        Args:
          place: a SQLite file, or a URL (postgresql://HOST/NAME, sqlite:///FILE).
          create: whether a missing ledger may be made, and an older one brought up to date.
          anchors: folder of this machine's anchors, outside of what is backed up with the
            ledger; None trusts that the ledger is the newest there is.
          campaigns: folder of the campaigns that it is about; with anchors, it is remembered for
            which ledger they were written.
          busy_seconds: how long to wait for another process that writes.
          today: the day that an entry carries, if its campaign does not say another.

        Raises:
          LedgerError: the ledger is missing, cannot be opened, or is of a newer dpal.
        """
        self._database = find_database(place, busy_seconds=busy_seconds)
        self._today = today
        file = self._database.file
        self._anchors = None if anchors is None else Anchors(anchors)
        self._places = (
            None
            if self._anchors is None
            else ledger_places(self._anchors, self.name, file=file, folder=campaigns)
        )
        try:
            self._read_version(file, create=create)
        except BaseException:
            self.close()  # whoever asked has nothing to close
            raise

    def _read_version(self, file: Path | None, *, create: bool) -> None:
        if not create and file is not None and not file.is_file():
            raise self._missing()
        if create and file is not None:
            _make_private_file(file)
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
        kind: EntryKind,
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
            if self._anchors is not None and self._places is not None:
                identity = identity_of(entries)
                remembered = self._anchors.read(identity)
                key = self._anchors.public_key()
                self._anchors.require(self.name, entries, remembered, key=key)
                self._places.require_known(identity)
                # Before the entry: what is written here and lost must be missed.
                self._places.remember(identity)
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
          The ADOPT entry. Where a ledger was lost altogether it is the second one of a new one.

        Raises:
          LedgerError: the store has no anchors, the ledger has no entries and none was lost
            here, or there is nothing to vouch for.
          LedgerTampered: the chain is broken; no reason mends that.
          AnchorError: an anchor proves that entries were lost, and `despite` is not theirs.
        """
        anchors, places = self._anchors, self._places
        if anchors is None or places is None or not reason.strip():
            raise LedgerError("a ledger is adopted where its anchors are, and for a reason")
        with self._database.reading() as connection:
            last = connection.execute(sa.select(sa.func.max(ENTRIES.c.sequence))).scalar_one()
        if last is None:
            return self._begin_anew(anchors, places, reason, despite)

        def vouch(entries: list[Entry]) -> Body:
            otherwise = "begun elsewhere" if begun_elsewhere else ""
            if not places.knows(identity_of(entries)):
                otherwise = "written elsewhere"
            return anchors.vouch(
                self.name, entries, reason=reason, despite=despite, otherwise=otherwise
            )

        entry, identity = self._add("", EntryKind.ADOPT, f"entry-{last}", vouch)
        places.remember(identity, anew=not places.are_sound())
        anchors.advance(identity, entry, anew=True)
        return entry

    def _begin_anew(
        self, anchors: Anchors, places: Places, reason: str, despite: str | None
    ) -> Entry:
        """Begins a ledger in place of one that is gone for good."""
        lost = places.last_lost()
        if lost is None:
            raise LedgerError(f"the ledger {self.name} has no entries; there is nothing to adopt")
        if despite != lost.digest:
            raise AnchorError(self.name, "lost", lost.sequence, lost.digest)
        body = {
            "key": anchors.public_key(),
            "reason": reason,
            "found": "lost",
            "despite": despite,
            "head": {"sequence": 0, "digest": GENESIS},
        }
        entry, identity = self._add(
            "", EntryKind.ADOPT, "entry-0", lambda _entries: body, anew=True
        )
        places.remember(identity, anew=True)
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
        if self._places is not None:
            self._places.require_known(identity_of(entries))
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
        self,
        campaign: str,
        kind: EntryKind,
        release: str,
        compose: Callable[[list[Entry]], Body],
        *,
        anew: bool = False,
    ) -> tuple[Entry, str]:
        """Adds an entry, before it the ledger's first one; returns it and the identity."""
        self._upgrade()
        try:
            with self._database.writing() as connection:
                entries = _read(connection)
                verify_chain(entries)
                if not entries:
                    if self._places is not None and not anew:
                        self._places.require_nothing_lost()
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
        entry = _insert(connection, 1, "", EntryKind.OPEN, "", body, day, GENESIS)
        if self._anchors is not None:
            # Before the commit: a ledger without an anchor is one that came from elsewhere.
            self._anchors.begin(identity)
        return entry

    def _upgrade(self) -> None:
        if self._version == VERSIONS[-1]:
            return
        with self._database.writing() as connection:
            # Again, now that nobody else can be doing the same.
            migrate_schema(connection, version_of(connection, self.name))
        self._version = VERSIONS[-1]

    def _missing(self) -> LedgerError:
        return LedgerMissing(f"there is no ledger at {self.name}; has this campaign been run?")


def _insert(
    connection: sa.Connection,
    sequence: int,
    campaign: str,
    kind: EntryKind,
    release: str,
    body: Body,
    day: str,
    previous: str,
) -> Entry:
    entry = seal_entry(
        sequence=sequence,
        campaign=campaign,
        kind=kind,
        release=release,
        body=json.loads(canonical_json(body)),
        recorded_at=day,
        previous=previous,
    )
    _require_characters(entry)
    row = {**vars(entry), "kind": kind.value, "body": canonical_json(entry.body)}
    connection.execute(ENTRIES.insert().values(row))
    return entry


def _require_characters(entry: Entry) -> None:
    """Requires texts that can be shown and exported; a reason is typed by a person."""
    try:
        json.dumps([entry.campaign, entry.release, entry.body], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise LedgerError(
            f"what was to be recorded ({entry.kind} of {entry.release or 'a plan'}) holds a "
            "character that is none (half of a surrogate pair); nothing was recorded or released, "
            "write it anew"
        ) from error


def _read(
    connection: sa.Connection, campaign: str | None = None, count: int | None = None
) -> list[Entry]:
    query = sa.select(ENTRIES).order_by(ENTRIES.c.sequence).limit(count)
    if campaign is not None:
        query = query.where(ENTRIES.c.campaign == campaign)
    # All rows first: a refusal in the middle would leave SQLite reading this old state.
    rows = connection.execute(query).all()
    for expected, row in enumerate(rows, start=1):
        if campaign is None and row.sequence != expected:
            raise missing_entry(expected, row.sequence)
    return [_entry(row) for row in rows]


def _entry(row: Any) -> Entry:
    """Reads a row, whatever types its cells were given by a damage or a repair."""
    sequence, *texts = row
    try:
        if not isinstance(sequence, int) or not all(isinstance(text, str) for text in texts):
            raise TypeError("a cell is of another type")
        body = json.loads(row.body)
        # One content, one text: a digest over the meaning alone would let a space pass.
        if not isinstance(body, dict) or canonical_json(body) != row.body:
            raise ValueError("not canonical")
        entry = Entry(**{**row._mapping, "kind": EntryKind(row.kind), "body": body})
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerTampered(sequence, "its content cannot be read") from error
    if row_digest({**row._mapping}) != entry.digest:
        raise LedgerTampered(sequence, LedgerTampered.ANOTHER_CONTENT)
    return entry


def _make_private_file(file: Path) -> None:
    """Makes an empty database file that only its owner can read; SQLite's own follow it."""
    try:
        make_private(file.parent)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        file.chmod(0o600)
    except OSError as error:
        raise LedgerError.before_release(
            f"the ledger {file} cannot be opened ({error.strerror})"
        ) from error
