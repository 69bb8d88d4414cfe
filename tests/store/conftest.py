from __future__ import annotations

from pathlib import Path

import pytest

from dpal.files.object_store import Store, StoreHolds
from tests.s3 import s3, s3_server  # noqa: F401


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be: a folder that is not there yet, and a bucket."""
    if request.param == "folder":
        return (tmp_path / "mount" / "dpal").as_uri()
    return f"{request.getfixturevalue('s3')}/dpal"


@pytest.fixture
def store(url: str) -> Store:
    return Store(url=url, campaign="clinic-0123", holds=StoreHolds.EVERYTHING)
