"""Pools and validation sets in object storage: the same plan, the same refusals, nothing copied."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.core import url_to_fs
from pydantic import ValidationError

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.inspect_rows import inspect
from dpal.data.pool_files import commitment, digest_of, files_of
from dpal.data.readers import raw_batches
from dpal.data.sources import Role, open_source
from dpal.errors import (
    ConfigError,
    DataChanged,
    DataError,
    LabelsPending,
    ParameterError,
    StoreError,
    StoreUnreachable,
)
from dpal.files.artifacts import CampaignFolder
from dpal.files.stored_objects import StoredObject, place_of
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.prepare_campaign import prepare
from tests.conftest import having, small_values, write_blobs
from tests.s3 import SECRET, forget_connections, s3, s3_server  # noqa: F401


def stored(bucket: str, path: Path, *, name: str = "") -> str:
    """Puts a file into a bucket, and returns its URL."""
    url = f"{bucket}/{name or path.name}"
    files, key = url_to_fs(url)
    files.pipe_file(key, path.read_bytes())
    return url


def in_row_groups(path: Path, rows: int) -> Path:
    """The same table, so many rows in each row group."""
    pq.write_table(pq.read_table(path), path, row_group_size=rows)
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return in_row_groups(write_blobs(tmp_path / "pool.parquet", 600, seed=1), 150)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which stretches of stored files were asked for."""
    from s3fs.core import S3File

    ranges: list[tuple[int, int]] = []
    fetch = S3File._fetch_range

    def noted(self: S3File, start: int, end: int) -> bytes:
        ranges.append((start, end))
        content: bytes = fetch(self, start, end)
        return content

    monkeypatch.setattr(S3File, "_fetch_range", noted)
    return ranges


def altered(path: Path, *, row: int) -> bytes:
    """A file's bytes, with another number in one row and everything else as it was."""
    table, groups = pq.read_table(path), pq.read_metadata(path).row_group(0).num_rows
    column = np.stack(table["features"].to_numpy())
    column[row, 0] += 1
    features = pa.array(list(column), table.schema.field("features").type)
    stream = io.BytesIO()
    place = table.schema.get_field_index("features")
    changed = table.set_column(place, table.schema.field(place), features)
    pq.write_table(changed, stream, row_group_size=groups)
    return stream.getvalue()


def test_records_are_the_same_wherever_they_lie(s3, pool):  # noqa: F811
    here = open_source(pool, Role.POOL, label_column="label")
    there = open_source(place_of(stored(s3, pool)), Role.POOL, label_column="label")
    pairs = [list(raw_batches(source, source.columns)) for source in (here, there)]
    assert [batch.table for batch in pairs[0]] == [batch.table for batch in pairs[1]]
    assert inspect(here) == inspect(there)
    assert here.files_digest == there.files_digest == digest_of(there.paths)


def test_only_wanted_columns_of_wanted_row_groups_are_asked_for(s3, pool, asked):  # noqa: F811
    place = place_of(stored(s3, pool))
    source = open_source(place, Role.POOL, label_column="label")
    about = pq.read_metadata(pool)
    asked.clear()
    for _ in raw_batches(source, ["id"]):
        pass
    footer, ids = pool.stat().st_size - about.serialized_size - 8, 0
    for start, end in asked:
        inside = [
            about.row_group(group).column(leaf).path_in_schema
            for group in range(about.num_row_groups)
            for leaf in range(about.num_columns)
            if about.row_group(group).column(leaf).data_page_offset in range(start, end)
        ]
        assert inside == ["id"] or end > footer
        ids += inside == ["id"]
    assert ids == about.num_row_groups


def test_a_folder_is_the_files_right_below_it(s3, pool):  # noqa: F811
    for name in ("b.parquet", "a.parquet", ".hidden.parquet", "notes.txt", "deeper/c.parquet"):
        stored(s3, pool, name=f"pools/{name}")
    found = files_of(place_of(f"{s3}/pools/"))
    assert [path.name for path in found] == ["a.parquet", "b.parquet"]
    with pytest.raises(DataError):
        files_of([])


def test_a_plan_reads_a_stored_pool_once(s3, workplace, asked):  # noqa: F811
    in_row_groups(workplace / "pool.parquet", 150)
    values = small_values()
    values["data"] |= {"pool": stored(s3, workplace / "pool.parquet")}
    run = prepare(parse_config(values))
    size = (workplace / "pool.parquet").stat().st_size
    plan_bytes = sum(end - start for start, end in asked)
    assert run.pool.files_digest == digest_of([workplace / "pool.parquet"])
    assert sum(end - start for start, end in asked) == plan_bytes, "its digest was read anew"
    # All of it, and its footer whenever it is opened.
    footer = pq.read_metadata(workplace / "pool.parquet").serialized_size + 8
    assert plan_bytes < size + 12 * max(footer, 2**16)


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_row_group_that_changed_after_the_plan_is_named(where, s3, pool, tmp_path):  # noqa: F811
    place = pool if where == "here" else place_of(stored(s3, pool))
    source = open_source(place, Role.POOL, label_column="label")
    planned = replace(source, known=inspect(source).files)
    shards = shards_of(planned, 1)
    list(raw_batches(planned, ["id", "features"]))
    list(shard_batches(source, shards[0], ["features"]))
    changed = altered(pool, row=320)
    if where == "here":
        pool.write_bytes(changed)
    else:
        files, key = url_to_fs(str(place))
        files.pipe_file(key, changed)
    for read in (
        lambda: list(raw_batches(planned, ["id", "features"])),
        lambda: list(shard_batches(source, shards[0], ["features"])),
    ):
        with pytest.raises(DataChanged, check=having(row_groups=(2,), released=False)):
            read()
    list(raw_batches(planned, ["label"]))  # those were left as they were


def test_what_a_store_refuses_is_one_sentence(s3, pool, monkeypatch):  # noqa: F811
    url = stored(s3, pool)

    def refusal(place: str) -> Exception:
        forget_connections()
        with pytest.raises((DataError, StoreError)) as refused:
            open_source(place_of(place), Role.POOL, label_column="label")
        assert "\n" not in str(refused.value)
        return refused.value

    assert isinstance(refusal(f"{s3}/none.parquet"), DataError)
    assert isinstance(refusal("s3://no-such-bucket/pool.parquet"), DataError)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    denied = refusal(url)
    assert isinstance(denied, StoreError)
    assert not isinstance(denied, StoreUnreachable)
    assert denied.place == url
    assert denied.released is False
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert isinstance(refusal(url), StoreUnreachable)


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:secret@bucket/pool.parquet",
        "s3://bucket/pool.parquet?key=secret",
        "filecache::s3://bucket/pool.parquet",
        "s4://bucket/pool.parquet",
        "file://elsewhere/pool.parquet",
    ],
)
def test_no_secret_and_no_unknown_store_is_in_settings(url):
    with pytest.raises(ParameterError):
        place_of(url)
    with pytest.raises((ParameterError, ValidationError, ConfigError)) as refused:
        dpal.settings(small_values(data={"pool": url}))
    assert "secret" not in str(refused.value)


def test_urls_of_this_machine_are_paths(workplace):
    assert place_of((workplace / "pool.parquet").as_uri()) == workplace / "pool.parquet"
    values = small_values()
    values["data"] |= {"pool": "s3://clinic/pool.parquet"}
    kept = dpal.settings(values).model_dump(mode="json")
    assert kept["data"]["pool"] == "s3://clinic/pool.parquet"
    assert parse_config(kept).data.pool == StoredObject("s3://clinic/pool.parquet")


BRIEF: dict[str, Any] = {"schedule__queries": [40], "schedule__epochs_per_phase": 1}


def moved(values: dict, bucket: str, root: Path) -> dict:
    """The same settings, with both data files in a bucket."""
    data = {key: stored(bucket, root / f"{key}.parquet") for key in ("pool", "validation")}
    return {**values, "data": values["data"] | data}


def certified(folder: CampaignFolder) -> tuple[object, ...]:
    """What a certificate says, but for what noise, salts, keys and days decide."""
    document = json.loads(folder.certificate.read_text(encoding="utf-8"))
    return document["promise"], document["plan"], sorted(document)


def require_sound(folder: CampaignFolder, ledger: Path) -> None:
    last = folder.phase(len(folder.finished_phases()) - 1)
    checks = dpal.verify(folder, ledger=ledger, model=last.model)
    assert not any_failed(checks)
    for path in folder.root.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_a_campaign_on_stored_data_is_that_on_files(s3, workplace):  # noqa: F811
    in_row_groups(workplace / "pool.parquet", 150)
    here = dpal.run(dpal.settings(small_values(**BRIEF)))
    values = moved(small_values(runtime={"artifacts": "others"}, **BRIEF), s3, workplace)
    there = dpal.run(dpal.settings(values))
    assert certified(here) == certified(there)
    assert here.read_record()["plan"] == there.read_record()["plan"]
    require_sound(there, Path("others/ledger.sqlite"))
    # Of the same bytes, wherever they lie.
    salt = there.salt.read_bytes()
    with closing(LedgerStore(Path("others/ledger.sqlite"), create=False)) as store:
        (held,) = (entry for entry in store.entries() if entry.kind is EntryKind.HOLD)
    assert held.body["pool"] == commitment(salt, digest_of([Path("pool.parquet")]))


@pytest.mark.slow
def test_a_campaign_that_was_killed_goes_on_from_the_store(s3, workplace):  # noqa: F811
    in_row_groups(workplace / "pool.parquet", 150)
    values = moved(small_values(), s3, workplace)
    (workplace / "settings.json").write_text(json.dumps(values), encoding="utf-8")
    program = "import dpal, json; dpal.run(dpal.settings(json.load(open('settings.json'))))"
    process = subprocess.Popen([sys.executable, "-c", program])
    folder = CampaignFolder(Path("artifacts/small"))
    while not folder.phase(0).manifest.is_file() and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(120) == -signal.SIGKILL
    assert not folder.certificate.is_file()
    first = folder.phase(0).manifest.read_bytes()
    assert dpal.run(dpal.settings(values)) == folder
    assert folder.phase(0).manifest.read_bytes() == first
    assert len(folder.finished_phases()) == 3
    require_sound(folder, Path("artifacts/ledger.sqlite"))


@pytest.mark.slow
def test_a_pool_that_changed_between_two_runs_is_refused(s3, workplace):  # noqa: F811
    in_row_groups(workplace / "pool.parquet", 150)
    values = moved(small_values(labeler={"kind": "file"}), s3, workplace)
    with pytest.raises(LabelsPending):
        dpal.run(dpal.settings(values))
    before = Path("artifacts/ledger.sqlite").read_bytes()
    files, key = url_to_fs(values["data"]["pool"])
    whole = files.cat_file(key)
    files.pipe_file(key, altered(workplace / "pool.parquet", row=451))
    with pytest.raises(DataChanged, check=having(row_groups=(3,), released=False)):
        dpal.run(dpal.settings(values))
    assert Path("artifacts/ledger.sqlite").read_bytes() == before
    files.pipe_file(key, whole)
    with pytest.raises(LabelsPending):
        dpal.run(dpal.settings(values))
