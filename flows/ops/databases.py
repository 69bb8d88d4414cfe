"""The databases that the servers of one stack keep on one Postgres."""

from __future__ import annotations

from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from flows.ops.supervisor import ServeError

DATABASES = ("prefect", "mlflow", "mlflow_auth", "label_studio", "ledger")


def make_databases(postgres: str) -> list[str]:
    """Makes the databases that are missing on a Postgres server; returns their names.

    Raises:
      ServeError: the URL holds a password, or the server does not let us in.
    """
    if urlsplit(postgres).password is not None:
        raise ServeError(
            "--postgres holds a password, which every user of this machine could read; leave it "
            "out and put it into ~/.pgpass or the environment variable PGPASSWORD"
        )
    url = sa.make_url(postgres).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            there = set(connection.scalars(sa.text("SELECT datname FROM pg_database")))
            missing = [name for name in DATABASES if f"dpal_{name}" not in there]
            for name in missing:
                connection.exec_driver_sql(f"CREATE DATABASE dpal_{name}")
    except (SQLAlchemyError, ImportError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise ServeError(
            f"the Postgres server of --postgres is of no use ({reason}); nothing was started"
        ) from error
    finally:
        engine.dispose()
    return missing


def database_url(postgres: str, name: str) -> str:
    """Where one of the databases is, on a server that holds all of them."""
    url = sa.make_url(postgres).set(drivername="postgresql", database=f"dpal_{name}")
    return url.render_as_string(hide_password=False)
