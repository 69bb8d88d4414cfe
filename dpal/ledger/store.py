"""Entries in a database, through SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from dpal.canonical import canonical_json
from dpal.errors import LedgerError, LedgerTampered
from dpal.ledger.entries import GENESIS, Entry, Kind, sealed

_METADATA = sa.MetaData()

_ENTRIES = sa.Table(
    "entries",
    _METADATA,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("campaign", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("release", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("recorded_at", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    # The last guard against a release that is reserved or committed twice.
    sa.UniqueConstraint("campaign", "kind", "release"),
)

_TRIGGERS = [
    f"""CREATE TRIGGER IF NOT EXISTS entries_refuse_{action.lower()} BEFORE {action} ON entries
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"""
    for action in ("UPDATE", "DELETE")
]

_BUSY_SECONDS = 30


class LedgerStore:
    """An append-only, hash-chained table of entries.

    SQLite in WAL mode with full synchronisation: an entry that `append` returned from
    survives a crash of the machine.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Opens a ledger file.

        Args:
          path: the SQLite file.
          create: whether a missing file may be created.

        Raises:
          LedgerError: the file is missing or cannot be opened.
        """
        if not create and not path.is_file():
            raise LedgerError(f"there is no ledger at {path}; has this campaign been run?")
        self.path = path
        self._engine = sa.create_engine(
            f"sqlite:///{path}", connect_args={"timeout": _BUSY_SECONDS}
        )
        sa.event.listen(self._engine, "connect", _configure)
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._explained(), self._writing() as connection:
                _METADATA.create_all(connection)
                for trigger in _TRIGGERS:
                    connection.execute(sa.text(trigger))
            path.chmod(0o600)

    def close(self) -> None:
        """Closes all connections; SQLite then folds its log into the file."""
        self._engine.dispose()

    def append(self, *, campaign: str, kind: Kind, release: str, body: dict[str, Any]) -> Entry:
        """Adds one entry in a serializable transaction and returns it.

        Raises:
          LedgerError: the same entry exists already, or the database cannot be written.
        """
        try:
            with self._explained(), self._writing() as connection:
                last = connection.execute(
                    sa.select(_ENTRIES.c.sequence, _ENTRIES.c.digest)
                    .order_by(_ENTRIES.c.sequence.desc())
                    .limit(1)
                ).first()
                entry = sealed(
                    sequence=last.sequence + 1 if last else 1,
                    campaign=campaign,
                    kind=kind,
                    release=release,
                    body=json.loads(canonical_json(body)),
                    recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    previous=last.digest if last else GENESIS,
                )
                row = {**vars(entry), "kind": kind.value, "body": canonical_json(entry.body)}
                connection.execute(_ENTRIES.insert().values(row))
                return entry
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger already has a {kind} of {release or 'a plan'} in campaign "
                f"{campaign}; nothing was released a second time"
            ) from error

    def entries(self, campaign: str | None = None) -> list[Entry]:
        """Reads all entries, or those of one campaign, in order."""
        query = sa.select(_ENTRIES).order_by(_ENTRIES.c.sequence)
        if campaign is not None:
            query = query.where(_ENTRIES.c.campaign == campaign)
        with self._explained(), self._engine.connect() as connection:
            return [_entry(row) for row in connection.execute(query)]

    def require_sound_file(self) -> None:
        """Requires that the database file itself is intact.

        Raises:
          LedgerTampered: SQLite finds its own structure damaged.
        """
        with self._explained(), self._engine.connect() as connection:
            verdict = connection.execute(sa.text("PRAGMA integrity_check")).scalar_one()
        if verdict != "ok":
            raise LedgerTampered(None, f"the database file is damaged ({verdict.splitlines()[0]})")

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that holds the only write lock from its start."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except OperationalError as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be used now ({error.orig}); nothing was "
                "released, run the same command again once it can be written"
            ) from error
        except DatabaseError as error:
            raise LedgerTampered(
                None, f"{self.path} is no sound database ({error.orig})"
            ) from error


def _configure(connection: Any, _record: Any) -> None:
    # An altered byte may be no text at all: let the digest speak, not the decoder.
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    connection.isolation_level = None  # transactions are begun explicitly, see `_writing`
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _entry(row: Any) -> Entry:
    try:
        fields = {**row._mapping, "kind": Kind(row.kind), "body": json.loads(row.body)}
    except ValueError as error:
        raise LedgerTampered(row.sequence, "its content cannot be read") from error
    return Entry(**fields)
