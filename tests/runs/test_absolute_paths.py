"""What a run records of its configuration means the same from any folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.kinds import parse_any

DATA = {"pool": ["a.parquet", "b.parquet"], "validation": "v.parquet"}
PUBLIC = {"pool": ["c.parquet"]}
KINDS: dict[str, dict[str, Any]] = {
    "campaign": {"model": {"weights": "w.safetensors"}},
    "public": {
        "kind": "public",
        "public": PUBLIC,
        "start": {"model": "m.safetensors", "certificate": "m.json"},
    },
    "pate": {
        "kind": "pate",
        "public": PUBLIC,
        "teachers": {"partition": "t.parquet", "tuning": "u.parquet"},
    },
}


def paths_in(model: BaseModel, above: str = "") -> Iterator[tuple[str, Path]]:
    """Every path of a configuration, by its dotted name."""
    for name, value in model:
        dotted = f"{above}{name}"
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, BaseModel):
                yield from paths_in(each, f"{dotted}.")
            elif isinstance(each, Path) or (name == "dvc_remote" and each is not None):
                yield dotted, Path(each)


@pytest.mark.parametrize("kind", KINDS)
def test_every_path_is_absolute(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"name": "run", "data": DATA, "runtime": {"dvc_remote": "remote"}, **KINDS[kind]}
    given = parse_any(values)
    # The artifacts folder is where the record itself lies; it is found by that.
    relative = {name for name, path in paths_in(given) if not path.is_absolute()}
    found = [
        (name, path) for name, path in paths_in(with_absolute_paths(given)) if name in relative
    ]
    assert "runtime.dvc_remote" in relative
    assert [name for name, path in found if not path.is_absolute()] == ["runtime.artifacts"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_remote_that_is_a_url_stays(kind):
    remote = {"dvc_remote": "s3://bucket/phases"}
    config = parse_any({"name": "run", "data": DATA, "runtime": remote, **KINDS[kind]})
    assert with_absolute_paths(config).runtime.dvc_remote == "s3://bucket/phases"
