"""The two databases that a ledger can be in, and what their complaints mean."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, SQLAlchemyError

from dpal.errors import CampaignBusy, LedgerError, LedgerTampered, ParameterError

# Any number will do, as long as every dpal that shares a database uses the same.
_LOCK = 0x6470616C

# A machine that is gone is noticed after 30 seconds; the server's default is two hours.
_KEEPALIVE = {"tcp_keepalives_idle": 15, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
_FENCE_SECONDS = 45.0
_SQLITE_ERROR = 1  # the statement does not fit the tables; busy, full or unreadable have others


class Database(ABC):
    """Where entries are: reads as they come, writes one at a time.

    Attributes:
      name: for messages; a URL without its password, or a path.
      file: the database file, None for a server.
    """

    _begin_reading = "BEGIN"

    def __init__(self, name: str, file: Path | None, engine: sa.Engine) -> None:
        self.name, self.file, self._engine = name, file, engine
        self._fences: dict[str, Callable[[], None]] = {}

    def close(self) -> None:
        """Closes all connections; SQLite then folds its log into the file."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for one query.

        Raises:
          LedgerError: the database cannot be reached.
          LedgerTampered: the file is no database.
        """
        with self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the database, and writes nothing.

        Raises:
          LedgerError: the database cannot be reached.
          LedgerTampered: the file is no database.
        """
        with self.reading() as connection:
            connection.exec_driver_sql(self._begin_reading)
            try:
                yield connection
            finally:
                if not connection.invalidated:
                    connection.exec_driver_sql("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A serializable transaction that holds the only write lock from its start.

        Raises:
          LedgerError: another process kept the lock for too long, or the database cannot
            be written.
          LedgerTampered: the file is no database.
        """
        with self._explained(), self._engine.connect() as connection, self._locked(connection):
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                try:
                    connection.exec_driver_sql("ROLLBACK")
                except SQLAlchemyError:
                    connection.invalidate()  # the connection is gone, and the transaction with it
                raise

    @contextmanager
    def fenced(self, campaign: str) -> Iterator[None]:
        """Lets no other process, on whichever machine, draw for a campaign.

        Raises:
          CampaignBusy: another process does.
          LedgerError: the database cannot be reached.
        """
        with self._fence(campaign) as check:
            self._fences[campaign] = check
            try:
                yield
            finally:
                self._fences.pop(campaign, None)

    def require_fence(self, campaign: str) -> None:
        """Requires that a fence, if one was put up here, still stands.

        Raises:
          CampaignBusy: it was lost, so that another process may have taken over.
        """
        if campaign in self._fences:
            self._fences[campaign]()

    @contextmanager
    def _fence(self, campaign: str) -> Iterator[Callable[[], None]]:
        """Nothing for a file: who has claimed the folder beside it is alone."""
        yield lambda: None

    @abstractmethod
    def _locked(self, connection: sa.Connection) -> Any:
        """Waits for the lock and begins the transaction; lets go of the lock at the end."""

    @abstractmethod
    def require_sound_file(self) -> None:
        """Requires that the database's own structure is intact.

        Raises:
          LedgerTampered: it is damaged.
        """

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            # A connection that was lost in mid-transaction is reported by a bare SQLAlchemyError.
            raise self._explain(
                error, _first_line(getattr(error, "orig", None) or error)
            ) from error
        except UnicodeDecodeError as error:  # names of tables or columns, not contents of cells
            raise LedgerTampered(None, f"{self.name} is no sound database (no UTF-8)") from error

    def _explain(self, error: SQLAlchemyError, reason: str) -> LedgerError:
        return LedgerError.before_release(
            f"the ledger {self.name} cannot be used now ({reason}); run the same command again "
            "once it can be written"
        )


class SqliteDatabase(Database):
    """A file in WAL mode with full synchronisation: what was committed survives a power cut."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            connect_args={"timeout": busy_seconds},
            isolation_level="AUTOCOMMIT",  # transactions are begun explicitly, see `writing`
        )
        self._busy_seconds = busy_seconds
        sa.event.listen(engine, "connect", self._configure)
        super().__init__(str(path), path, engine)

    def require_sound_file(self) -> None:
        """See `Database`."""
        with self.reading() as connection:
            lines = connection.execute(sa.text("PRAGMA integrity_check")).scalars().all()
        if lines != ["ok"]:
            verdict = _first_line(lines[0]) if lines else "no verdict"
            raise LedgerTampered(None, f"the database file is damaged ({verdict})")

    @contextmanager
    def _locked(self, connection: sa.Connection) -> Iterator[None]:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield

    def _configure(self, connection: Any, _record: Any) -> None:
        # An altered byte may be no text at all: let the digest speak, not the decoder.
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                # The switch to WAL does not wait for others who make it at the same time.
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        connection.execute("PRAGMA synchronous=FULL")

    def _explain(self, error: SQLAlchemyError, reason: str) -> LedgerError:
        # A table or column that is missing is an OperationalError to SQLite, too.
        missing = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) == _SQLITE_ERROR
        if isinstance(error, OperationalError) and not missing:
            return super()._explain(error, reason)
        return LedgerTampered(None, f"{self.name} is no sound database ({reason})")


class PostgresDatabase(Database):
    """A server that several machines may share."""

    _begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def __init__(self, url: sa.URL, *, busy_seconds: float) -> None:
        name = _without_password(url.set(drivername="postgresql"))
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={"connect_timeout": 10},
                isolation_level="AUTOCOMMIT",
                pool_pre_ping=True,
            )
        except ModuleNotFoundError as error:
            raise LedgerError.before_release(
                f"the ledger {name} needs the Postgres driver; install it with: pip install "
                "'dpal[postgres]'"
            ) from error
        self._milliseconds = max(1, round(1000 * busy_seconds))
        sa.event.listen(engine, "connect", self._configure)
        super().__init__(name, None, engine)

    def require_sound_file(self) -> None:
        """See `Database`; the server checks its own pages when it reads them."""

    @contextmanager
    def _locked(self, connection: sa.Connection) -> Iterator[None]:
        # Before the transaction: a serializable one sees the table as it was at its first
        # statement, and that must not be before the wait for the lock.
        connection.execute(sa.text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        try:
            connection.exec_driver_sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
            yield
        finally:
            try:
                connection.execute(sa.text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            except SQLAlchemyError:
                connection.invalidate()  # the server lets go of the lock with the connection

    @contextmanager
    def _fence(self, campaign: str) -> Iterator[Callable[[], None]]:
        # A lock of the session: the server lets go of it when this process or machine is gone.
        key = int.from_bytes(sha256(f"dpal {campaign}".encode()).digest()[:8], signed=True)
        with self._explained(), self._engine.connect() as connection:
            for name, value in _KEEPALIVE.items():
                connection.exec_driver_sql(f"SET {name} = {value}")
            session = _taken(connection, key, campaign)

            def check() -> None:
                try:
                    # A session that was lost is opened anew behind our back, without the lock.
                    now = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
                except SQLAlchemyError:
                    now = None
                if now != session:
                    raise CampaignBusy(
                        f"the connection that kept campaign {campaign} for this process was lost, "
                        "and another one may have taken over; nothing more was released here, run "
                        "the same command again"
                    )

            try:
                yield check
            finally:
                connection.invalidate()

    def _configure(self, connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {self._milliseconds}")
            cursor.execute(f"SET statement_timeout = {2 * self._milliseconds}")
            cursor.execute("SET synchronous_commit = on")


def _taken(connection: sa.Connection, key: int, campaign: str) -> int:
    """Takes a session's lock and returns which session it is."""
    deadline = time.monotonic() + _FENCE_SECONDS
    question = sa.text("SELECT pg_try_advisory_lock(:key), pg_backend_pid()")
    while True:
        taken, session = connection.execute(question, {"key": key}).one()
        if taken:
            return int(session)
        if time.monotonic() >= deadline:
            raise CampaignBusy.before_release(
                f"campaign {campaign} is being run by another process, which draws for it in this "
                "ledger; wait for it to end and run the same command again"
            )
        time.sleep(0.5)


def find_database(place: Path | str, *, busy_seconds: float) -> Database:
    """Turns a path or a URL into a database, without touching it.

    Args:
      place: a SQLite file, or a URL (sqlite:///FILE, postgresql://HOST/NAME).
      busy_seconds: how long to wait for another process that writes.

    Raises:
      ParameterError: the URL names no database that a ledger can be in.
      LedgerError: its driver is not installed.
    """
    if isinstance(place, Path) or "://" not in place:
        return SqliteDatabase(Path(place), busy_seconds=busy_seconds)
    try:
        url = sa.make_url(place)
    except (ArgumentError, ValueError):
        url = None
    if url is not None and url.get_backend_name() in ("postgresql", "postgres"):
        return PostgresDatabase(url, busy_seconds=busy_seconds)
    if url is not None and url.get_backend_name() == "sqlite" and url.database:
        return SqliteDatabase(Path(url.database), busy_seconds=busy_seconds)
    raise ParameterError(
        "a ledger is a SQLite file or a database postgresql://HOST/NAME, and "
        f"{'its URL' if url is None else _without_password(url)} is neither"
    )


def _without_password(url: sa.URL) -> str:
    bare = url._replace(password=None).difference_update_query(["password"])
    return bare.render_as_string(hide_password=True)


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
