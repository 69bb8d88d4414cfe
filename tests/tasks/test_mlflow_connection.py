"""Campaigns that tell MLflow the same at the same moment."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from mlflow.exceptions import MlflowException

from tasks.tracking.mlflow_connection import TrackingError, retry_while_mlflow_is_down

TAG = sa.text("INSERT INTO tags VALUES ('kind')")


@pytest.fixture
def database(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'tags.sqlite'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE tags (key TEXT PRIMARY KEY)"))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("by_server", [False, True])
def test_what_another_one_wrote_at_the_same_moment_is_found(database, by_server):
    """Two look, find nothing, and write; the second is told that it is there already.

    A server says so in words of its database, as one on Postgres did to 8 campaigns at once.
    """

    def tell() -> bool:
        with database.connect() as connection:
            if connection.execute(sa.text("SELECT key FROM tags")).first():
                return True
        with database.begin() as other:
            other.execute(TAG)
        try:
            with database.begin() as connection:
                connection.execute(TAG)
        except sa.exc.IntegrityError as error:
            if by_server:
                raise MlflowException(f"(psycopg.errors.UniqueViolation) {error}") from error
            raise
        return False

    assert retry_while_mlflow_is_down("sqlite://", tell, patient=False)


def test_what_is_always_there_already_is_refused(database):
    calls = []

    def tell() -> None:
        calls.append(1)
        with database.begin() as connection:
            connection.execute(TAG)

    tell()
    with pytest.raises(TrackingError):
        retry_while_mlflow_is_down("sqlite://", tell, patient=False)
    assert len(calls) < 10
