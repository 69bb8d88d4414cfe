"""Entries in a database, one serializable transaction each."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from dpal.canonical import canonical_json
from dpal.errors import AnchorError, LedgerError, LedgerMissing, LedgerTampered
from dpal.files.atomic_writes import make_private
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.chain import VerifiedPrefix, verify_chain
from dpal.ledger.database import find_database
from dpal.ledger.entries import GENESIS, Entry, EntryKind, seal_entry
from dpal.ledger.entry_rows import entry_at, read_entries
from dpal.ledger.known_ledgers import Places, ledger_places
from dpal.ledger.schema_version import VERSIONS, migrate_schema, version_of
from dpal.ledger.stamped_day import day_of, today_in_utc
from dpal.ledger.topics import own_topic
from dpal.ledger.verified_entries import EntriesSoFar
from dpal.ledger.verify_since import (
    NOTHING_VERIFIED,
    Doubt,
    require_topics,
    verify_from_start,
    verify_since,
)

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
        busy_seconds: float = 120.0,
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
        self._verified: VerifiedPrefix | None = None
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
        return "" if self._anchors is None else self._anchors.key.public_key()

    def close(self) -> None:
        """Closes all connections."""
        self._database.close()

    def append(
        self,
        *,
        campaign: str,
        kind: EntryKind,
        release: str,
        body: Body | Callable[[EntriesSoFar], Body],
    ) -> Entry:
        """Adds one entry in a serializable transaction and returns it.

        Args:
          campaign: whose entry it is.
          kind: what happened.
          release: to what; with campaign and kind it may stand in the ledger once.
          body: the details, or what decides them from the entries so far; it is called while no
            other process can append, and what it raises refuses the entry. It may be called
            twice, and changes nothing but what it returns.

        Raises:
          LedgerError: the same entry exists already, or the database cannot be written.
          LedgerTampered: the chain is broken.
          AnchorError: this is not the newest copy of the ledger, as far as is known here.
        """

        def compose(entries: EntriesSoFar) -> Body:
            if self._anchors is not None and self._places is not None:
                identity = identity_of([entries.first])
                remembered = self._anchors.read(identity)
                key = self._anchors.key.public_key()
                self._anchors.require(
                    self.name, entries, remembered, key=key, accepted=entries.keys
                )
                self._places.require_known(identity)
                # Before the entry: what is written here and lost must be missed.
                self._places.remember(identity)
            return body(entries) if callable(body) else body

        added = self._add(campaign, kind, release, compose)
        if self._anchors is not None:
            self._anchors.advance(added.identity, added.entry, topics=added.prefix.topics)
        return added.entry

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
            # Whatever an anchor here says of it: a person vouches for all of it.
            self._verified = verify_from_start(connection)
        last = self._verified.sequence
        if not last:
            return self._begin_anew(anchors, places, reason, despite)

        def vouch(entries: EntriesSoFar) -> Body:
            otherwise = "begun elsewhere" if begun_elsewhere else ""
            if not places.knows(identity_of(entries)):
                otherwise = "written elsewhere"
            return anchors.vouch(
                self.name,
                entries,
                reason=reason,
                despite=despite,
                otherwise=otherwise,
                accepted=entries.keys,
            )

        added = self._add("", EntryKind.ADOPT, f"entry-{last}", vouch)
        places.remember(added.identity, anew=not places.are_sound())
        anchors.advance(added.identity, added.entry, topics=added.prefix.topics, anew=True)
        return added.entry

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
            "key": anchors.key.public_key(),
            "reason": reason,
            "found": "lost",
            "despite": despite,
            "head": {"sequence": 0, "digest": GENESIS},
        }
        added = self._add("", EntryKind.ADOPT, "entry-0", lambda _entries: body, anew=True)
        places.remember(added.identity, anew=True)
        anchors.advance(added.identity, added.entry, topics=added.prefix.topics, anew=True)
        return added.entry

    def entries(self, campaign: str | None = None, *kinds: EntryKind) -> list[Entry]:
        """Reads all entries, or those of one campaign, or of these kinds among them, in order."""
        with self._database.reading() as connection:
            return read_entries(connection, campaign, *kinds)

    def sound(self, campaign: str) -> list[Entry]:
        """Reads all that a campaign goes by, and requires that it is whole and the newest known.

        Returns:
          Its entries and those about the ledger itself, in order.

        Raises:
          LedgerTampered: names the first entry of the ledger that is altered, missing or out of
            place.
          AnchorError: the anchor is missing, altered, or names an entry that is not there.
        """
        found = self._proven(lambda so_far: so_far.of_campaign(campaign))
        if found is None:
            return [
                entry
                for entry in self.verified()
                if entry.sequence == 1
                or entry.campaign == campaign
                or entry.kind is EntryKind.ADOPT
            ]
        return found

    def of_data_set(self, name: str) -> list[Entry]:
        """Reads all that decides what is left of a data set, as `sound` does; maybe more."""
        found = self._proven(lambda so_far: so_far.of_data_sets(name))
        return self.verified() if found is None else found

    def _proven(self, ask: Callable[[EntriesSoFar], list[Entry]]) -> list[Entry] | None:
        """What a short look finds; None where only a long one can say whether all is well."""
        try:
            with self._database.reading() as connection:
                known = self._known(connection)  # before the rest, which may grow in between
            if known is None or self._version != VERSIONS[-1]:
                return None
            with self._database.snapshot() as connection:
                so_far = EntriesSoFar(connection, verify_since(connection, known))
                found, identity, keys = ask(so_far), identity_of([so_far.first]), so_far.keys
        except (Doubt, LedgerTampered):
            return None
        if self._anchors is not None and self._places is not None:
            self._places.require_known(identity)
            own = self._anchors.key.public_key()
            if self._anchors.verified(identity) is None or own not in keys:
                return None
        return found

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
            first = entry_at(connection, 1)
        if first is None:
            self.entries()  # refuses where only the first one is gone
            return []
        # The anchor before the entries: those may grow in between, the anchor must not.
        remembered = self._anchors.read(identity_of([first]))
        entries = self.entries()
        verify_chain(entries)
        self._anchors.require(self.name, entries, remembered)
        if self._places is not None:
            self._places.require_known(identity_of(entries))
        return entries

    def require_topics(self) -> None:
        """Requires that the topics by which entries are found follow from the entries.

        Raises:
          LedgerTampered: they do not, or an entry is altered, missing or out of place.
        """
        if self._version == VERSIONS[-1]:
            with self._database.snapshot() as connection:
                require_topics(connection)

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
        compose: Callable[[EntriesSoFar], Body],
        *,
        anew: bool = False,
    ) -> Appended:
        """Adds an entry, before it the ledger's first one."""
        self._upgrade()
        self._verify_ahead()

        def add(connection: sa.Connection, known: VerifiedPrefix) -> Appended:
            so_far = EntriesSoFar(connection, verify_since(connection, known))
            if not so_far:
                if self._places is not None and not anew:
                    self._places.require_nothing_lost()
                self._open(so_far)
            # Also where this entry does not ask for them.
            so_far.require_sound(campaign, own_topic(campaign, kind, release))
            body = compose(so_far)
            day = day_of(campaign, so_far.of(campaign, EntryKind.HOLD), self._today())
            entry = _follow(so_far, campaign, kind, release, body, day)
            return Appended(entry, identity_of([so_far.first]), so_far.prefix)

        try:
            try:
                with self._database.writing() as connection:
                    added = add(connection, self._known(connection) or NOTHING_VERIFIED)
            except Doubt:
                with self._database.writing() as connection:
                    # Names the entry that was altered; where none was, what follows is mended.
                    mended = verify_from_start(connection, write=True)
                with self._database.writing() as connection:
                    added = add(connection, mended)
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger already has a {kind} of {release or 'a plan'} in campaign "
                f"{campaign}; nothing was released a second time"
            ) from error
        except Doubt as error:
            raise LedgerTampered(None, f"{self.name} does not give what was written") from error
        self._verified = added.prefix
        return added

    def _known(self, connection: sa.Connection) -> VerifiedPrefix | None:
        """What was verified here before: as the anchor says, or by this process itself."""
        first = entry_at(connection, 1)
        if first is None:
            return None
        if self._anchors is not None:
            return self._anchors.verified(identity_of([first])) or self._verified
        return self._verified

    def _verify_ahead(self) -> None:
        """Verifies a ledger of which nothing is known, while others need not wait."""
        if self._verified is not None:
            return
        with self._database.reading() as connection:
            if self._known(connection) is None:
                self._verified = verify_from_start(connection)

    def _open(self, so_far: EntriesSoFar) -> None:
        key = None if self._anchors is None else self._anchors.key.public_key()
        identity = secrets.token_hex(16)
        body = {"identity": identity, "anchor_key": key}
        _follow(so_far, "", EntryKind.OPEN, "", body, self._today().isoformat())
        if self._anchors is not None:
            # Before the commit: a ledger without an anchor is one that came from elsewhere.
            self._anchors.begin(identity)

    def _upgrade(self) -> None:
        if self._version == VERSIONS[-1]:
            return
        with self._database.writing() as connection:
            # Again, now that nobody else can be doing the same.
            migrate_schema(connection, version_of(connection, self.name))
        self._version = VERSIONS[-1]

    def _missing(self) -> LedgerError:
        said = f"there is no ledger at {self.name}; was anything run or registered here?"
        return LedgerMissing(said)


@dataclass(frozen=True)
class Appended:
    """An entry that was just written, the ledger's identity, and all that was verified with it."""

    entry: Entry
    identity: str
    prefix: VerifiedPrefix


def _follow(
    so_far: EntriesSoFar, campaign: str, kind: EntryKind, release: str, body: Body, day: str
) -> Entry:
    """Writes the entry that comes next."""
    entry = seal_entry(
        sequence=len(so_far) + 1,
        campaign=campaign,
        kind=kind,
        release=release,
        body=json.loads(canonical_json(body)),
        recorded_at=day,
        previous=so_far.prefix.digest,
    )
    _require_characters(entry)
    so_far.add(entry)
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
