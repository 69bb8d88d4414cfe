"""What a watch accepts, puts away, and leaves unread."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dpal.config.campaign import RuntimeConfig
from dpal.data.importing.recipe import RECIPE
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.inbox.folder import Inbox
from dpal.data.inbox.linked_pool import link_pool
from dpal.data.inbox.state import Stage, WatchFolder
from dpal.errors import ConfigError, DataError, LedgerError
from dpal.runs import manage_data_sets
from dpal.runs.inbox_scan import InboxScan, missing_files
from tasks.watch import look_into_folder, watch_folder
from tests.conftest import write_blobs
from tests.flows.watching import gather, known, last_run, look, small_watch
from tests.s3 import s3, s3_server  # noqa: F401


def test_the_same_content_again_is_nothing_new(watched):
    config = small_watch()
    before = gather(config)
    shutil.copy("inbox/january.parquet", "inbox/other.parquet")
    shutil.copy("inbox/january.parquet", "copy.parquet")
    shutil.move("copy.parquet", "inbox/january.parquet")
    after = gather(config)
    assert (after.accepted, after.runs) == (before.accepted, before.runs)
    assert len(known().blocks) == 1


def test_a_renamed_file_keeps_its_place(watched):
    """Also in the pool of a campaign that waits for labels."""
    config = small_watch()
    files = [Path(one.path) for one in gather(config).accepted]
    pool = link_pool(files, watch_folder(config).pool("waits"))
    Path("inbox/january.parquet").rename("inbox/first.parquet")
    state = gather(config)
    assert [one.name for one in state.accepted] == ["first.parquet"]
    assert not state.quarantined
    (link,) = pool.iterdir()
    assert link.samefile("inbox/first.parquet")


def broken(kind: str) -> bytes | pa.Table:
    table = pq.read_table(write_blobs(Path("fresh.parquet"), 50, seed=9, prefix="secret-id"))
    if kind == "garbage":
        return b"these are no records at all"
    if kind == "empty":
        return b""
    if kind == "cut":
        return Path("fresh.parquet").read_bytes()[:-100]
    if kind == "damaged":
        whole = bytearray(Path("fresh.parquet").read_bytes())
        whole[40:900] = bytes(860)
        return bytes(whole)
    if kind == "no id":
        return table.drop_columns("id")
    if kind == "no label":
        return table.drop_columns("label")
    if kind == "other width":
        narrow = [row[:5] for row in table["features"].to_pylist()]
        return table.set_column(1, "features", pa.array(narrow, pa.list_(pa.float32())))
    if kind == "duplicate ids":
        return pa.concat_tables([table, table.slice(0, 1)])
    if kind == "nan":
        values = np.array(table["features"].to_pylist(), dtype=np.float32)
        values[7, 3] = np.nan
        column = pa.array(values.tolist(), pa.list_(pa.float32()))
        return table.set_column(1, "features", column)
    if kind == "known ids":
        return pq.read_table("inbox/january.parquet").slice(0, 20)
    if kind == "strange label":
        labels = pa.array([77] * table.num_rows)
        return table.set_column(2, "label", labels)
    if kind == "texts as labels":
        return table.set_column(2, "label", pa.array(["ward"] * table.num_rows))
    raise AssertionError(kind)


REASONS = {
    "garbage": "whole Parquet",
    "empty": "whole Parquet",
    "cut": "whole Parquet",
    "damaged": "from row",
    "no id": "column 'id'",
    "no label": "differ in",
    "other width": "(5,), validation records (8,)",
    "duplicate ids": "row 50 and row 0",
    "nan": "missing, NaN",
    "known ids": "20 of the 20 ids",
    "strange label": "labels above 2",
    "texts as labels": "whole class",
}


@pytest.mark.parametrize("like", ["january.parquet", "validation.parquet"])
def test_a_file_whose_columns_became_other_numbers_is_put_away(watched, tmp_path, like):
    """One that was imported in another way than what is there, like which it is to be imported."""
    config = small_watch()
    table = pq.read_table("inbox/january.parquet")
    for name, scale in (("january", 1), ("march", 50)):
        rows = [f"r{k},{k * scale},{['no', 'yes'][k % 2]}" for k in range(100)]
        source = tmp_path / f"{name}.csv"
        source.write_text("\n".join(["id,weight,label", *rows]) + "\n", encoding="utf-8")
        import_source(source, source.with_suffix(".parquet"), ImportSettings(held_out=0.3))
        told = {RECIPE: pq.read_schema(source.with_suffix(".parquet")).metadata[RECIPE]}
        if name == "march":
            table = pq.read_table(write_blobs(Path("f.parquet"), 100, seed=8, prefix="f"))
        told |= table.schema.metadata or {}
        pq.write_table(table.replace_schema_metadata(told), f"inbox/{name}.parquet")
        if (name, like) == ("january", "validation.parquet"):
            measured = pq.read_table(like).replace_schema_metadata(told)
            pq.write_table(measured, like)
    state = gather(config)
    assert [file.name for file in state.accepted] == ["january.parquet"]
    [put_away] = state.quarantined
    assert put_away.name == "march.parquet" and f"--like {like}" in put_away.reason
    assert str(watched) not in put_away.reason


def test_a_file_that_names_classes_in_another_order_than_the_validation_set_is_put_away(watched):
    for place, names in (
        ("validation.parquet", '["a", "b", "c"]'),
        ("inbox/january.parquet", '["a", "c", "b"]'),
    ):
        table = pq.read_table(place).replace_schema_metadata({"class_names": names})
        pq.write_table(table, place)
    state = gather(small_watch())
    assert not state.accepted
    assert [file.name for file in state.quarantined] == ["january.parquet"]


def test_what_cannot_be_used_is_put_away_and_the_rest_goes_on(watched):
    config = small_watch()
    gather(config)
    before = {}
    for kind in REASONS:
        path, content = Path("inbox", f"{kind}.parquet"), broken(kind)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pq.write_table(content, path)
        before[kind] = path.read_bytes()
    write_blobs(Path("inbox/other good.parquet"), 100, seed=8, prefix="g")
    state = gather(config)
    for kind, reason in REASONS.items():
        kept = Path("inbox/quarantine", f"{kind}.parquet")
        said = kept.with_name(f"{kept.name}.reason.txt").read_text()
        assert reason in said
        assert said.count("\n") == 1
        for secret in ("secret-id", "r-000", "ward", "77", str(watched)):
            assert secret not in said
        assert kept.read_bytes() == before[kind]
    assert len(state.quarantined) == len(REASONS)
    assert [one.name for one in state.accepted] == ["january.parquet", "other good.parquet"]
    assert [one.size for one in known().blocks] == [600, 100]


def test_a_second_bad_file_of_the_same_name_replaces_nothing(watched):
    for content in (b"one", b"two"):
        Path("inbox/bad.parquet").write_bytes(content)
        gather(small_watch())
    kept = sorted(path.name for path in Path("inbox/quarantine").iterdir())
    assert kept == [
        "bad-2.parquet",
        "bad-2.parquet.reason.txt",
        "bad.parquet",
        "bad.parquet.reason.txt",
    ]


def test_another_content_under_an_accepted_name_is_put_away(watched):
    config = small_watch()
    gather(config)
    write_blobs(Path("inbox/january.parquet"), 100, seed=8, prefix="g")
    state = gather(config)
    assert "name january.parquet" in state.quarantined[0].reason
    assert len(state.accepted) == 1


def copies_of_january(path: Path, rows: int) -> Path:
    """Known records under new ids, each value moved to the next that single precision has."""
    table = pq.read_table("inbox/january.parquet").slice(0, rows)
    values = np.array(table["features"].to_pylist(), dtype=np.float32)
    moved = pa.array(np.nextafter(values, np.float32(np.inf)).tolist(), pa.list_(pa.float32()))
    kind = table.schema.field("features").type
    table = table.set_column(1, "features", moved.cast(kind))
    pq.write_table(
        table.set_column(0, "id", pa.array([f"copy-{row}" for row in range(rows)])), path
    )
    return path


def test_copies_of_known_records_are_put_away_until_their_owner_says_otherwise(watched):
    config = small_watch()
    gather(config)
    copy = copies_of_january(Path("inbox/copies.parquet"), 100)
    state = gather(config)
    reason = state.quarantined[0].reason
    assert reason.startswith("100 of 100 new rows") and "other ids" in reason
    assert len(known().blocks) == 1
    kept = Path("inbox/quarantine/copies.parquet")
    manage_data_sets.add_block("clinic", [kept], RuntimeConfig(), similar="measured twice")
    shutil.move(kept, copy)
    assert len(gather(config).accepted) == 2
    assert [one.size for one in known().blocks] == [600]


def test_a_partial_upload_is_not_read(watched, monkeypatch):
    """As it grows, and as it stands still without an end; then it is complete."""
    config = small_watch(unfinished_seconds=600)
    gather(config)
    whole = write_blobs(Path("march.parquet"), 400, seed=5, prefix="n").read_bytes()
    for size in (2, 100, len(whole) - 1):
        Path("inbox/march.parquet").write_bytes(whole[:size])
        assert len(gather(config).accepted) == 1
    assert not Path("inbox/quarantine").exists()
    Path("inbox/march.parquet").write_bytes(whole)
    assert len(gather(config).accepted) == 2


def test_a_file_that_still_changes_is_not_opened(watched, monkeypatch):
    config = small_watch(settle_seconds=3600)
    monkeypatch.setattr(Inbox, "looks_whole", lambda *_: pytest.fail("it was opened"))
    state = gather(config)
    assert not state.accepted
    assert list(state.seen) == ["january.parquet"]
    old = time.time() - 7200
    os.utime("inbox/january.parquet", (old, old))  # a copy that kept its time: ctime is new
    assert not gather(config).accepted


def test_a_file_that_changes_while_it_is_read_waits(watched, monkeypatch):
    monkeypatch.setattr(Inbox, "stamp", lambda *_: "another")
    assert not gather(small_watch()).accepted


def test_unfinished_names_are_left_alone(watched):
    config = small_watch()
    before = gather(config)
    names = (".hidden.parquet", "_part.parquet", "x.parquet.tmp", "x.part", "x.crdownload")
    for name in (*names, "read.me"):
        Path("inbox", name).write_bytes(b"not yet")
    after = gather(config)
    assert (after.seen, after.quarantined) == (before.seen, ())
    assert all(Path("inbox", name).exists() for name in names)
    assert Inbox.at("inbox").listing().others == 1


def test_what_another_watch_reads_is_not_moved(watched):
    """Two watches on one folder, for two data sets: one cannot use what the other one reads."""
    reads = small_watch()
    gather(reads)
    limit = known().limit
    other = write_blobs(Path("elsewhere.parquet"), 400, seed=7, prefix="q")
    manage_data_sets.register_data_set("second", limit, [other], RuntimeConfig())
    Path("inbox/bad.parquet").write_bytes(b"nothing")
    state = gather(small_watch(name="second", dataset="second"))
    assert [one.name for one in state.quarantined] == ["bad.parquet", "january.parquet"]
    assert (
        Path(state.quarantined[1].place).parent
        == Path("artifacts/watch/second/quarantine").absolute()
    )
    assert sorted(path.name for path in Path("inbox").rglob("*.parquet")) == [
        "bad.parquet", "january.parquet"
    ]  # fmt: skip
    assert not missing_files(gather(reads).accepted)
    again = gather(small_watch(name="second", dataset="second"))
    assert again.quarantined == state.quarantined


class Counted(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Object storage in memory that counts reads and may refuse writes."""

    protocol = "counted"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    reads = 0
    read_only = False

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(str(path).replace("counted://", "memory://"))

    def _open(self, path, mode="rb", **options):
        if "r" in mode:
            type(self).reads += 1
        elif self.read_only:
            raise PermissionError(path)
        return super()._open(path, mode, **options)

    def cp_file(self, *arguments, **options):
        if self.read_only:
            raise PermissionError(arguments[0])
        return super().cp_file(*arguments, **options)


@pytest.fixture
def bucket(watched, monkeypatch):
    """The same inbox on storage that no path reaches."""
    fsspec.register_implementation("counted", Counted, clobber=True)
    storage = fsspec.filesystem("counted")
    storage.store.clear()
    storage.makedirs("/ward/inbox", exist_ok=True)
    storage.put_file("inbox/january.parquet", "/ward/inbox/january.parquet")
    monkeypatch.setattr(Counted, "reads", 0)
    monkeypatch.setattr(Counted, "read_only", False)
    return storage


def test_files_in_object_storage_are_copied_before_use(bucket):
    config = small_watch(folder="counted://ward/inbox")
    state = look(config)
    copy = Path(state.accepted[0].path)
    assert copy.parent == watch_folder(config).files
    assert copy.read_bytes() == Path("inbox/january.parquet").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert last_run(state).stage is Stage.STARTED
    bucket.pipe_file("/ward/inbox/bad.parquet", b"nothing")
    bucket.cp_file("/ward/inbox/january.parquet", "/ward/inbox/again.parquet")
    state = look(config)
    assert not bucket.exists("/ward/inbox/bad.parquet")
    reason = bucket.cat_file("/ward/inbox/quarantine/bad.parquet.reason.txt")
    assert reason == b"bad.parquet is not a whole Parquet file\n"
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_where_nothing_can_be_moved_a_copy_is_kept_and_the_file_is_not_read_again(bucket):
    config = small_watch(folder="counted://ward/inbox")
    bucket.pipe_file("/ward/inbox/bad.parquet", b"nothing")
    Counted.read_only = True
    place = Path(gather(config).quarantined[0].place)
    assert place.read_bytes() == b"nothing"
    assert place.parent == watch_folder(config).quarantine
    assert place.with_name("bad.parquet.reason.txt").read_text().startswith("bad.parquet is not")
    reads = Counted.reads
    assert len(gather(config).quarantined) == 1
    assert Counted.reads == reads


@pytest.mark.parametrize("name", ["*.parquet", "january?parquet.parquet", "scan[1].parquet"])
def test_a_name_in_object_storage_means_one_file_alone(bucket, name):
    config = small_watch(folder="counted://ward/inbox")
    before = gather(config)
    bucket.pipe_file("/ward/inbox/january1parquet.parquet", b"PAR1")
    bucket.pipe_file(f"/ward/inbox/{name}", b"nothing")
    state = gather(small_watch(folder="counted://ward/inbox", unfinished_seconds=3600))
    assert [one.name for one in state.quarantined] == [name]
    assert state.accepted == before.accepted
    assert sorted(bucket.find("/ward")) == sorted(
        [
            "/ward/inbox/january.parquet",
            "/ward/inbox/january1parquet.parquet",
            f"/ward/inbox/quarantine/{name}",
            f"/ward/inbox/quarantine/{name}.reason.txt",
        ]
    )


@pytest.mark.parametrize("name", [b"m" * 240, "\u00e4".encode() * 120, b"caf\xe9"])
def test_a_name_that_cannot_be_kept_is_left_alone_and_counted(watched, name):
    place = Path("inbox", os.fsdecode(name + b".parquet"))
    place.write_bytes(b"nothing")
    state = gather(small_watch())
    assert [one.name for one in state.accepted] == ["january.parquet"]
    assert (state.quarantined, place.exists(), list(state.seen)) == ((), True, ["january.parquet"])
    assert Inbox.at("inbox").listing().others == 1


def test_a_thousand_known_files_are_listed_and_not_read(bucket, monkeypatch):
    config = small_watch(folder="counted://ward/inbox")
    gather(config)
    for number in range(1000):
        bucket.pipe_file(f"/ward/inbox/{number}.parquet", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(InboxScan, "_take", lambda *_, **__: False)
        gather(config)
    folder = watch_folder(config)
    state = folder.read()
    assert len(state.seen) == 1001
    folder.write(
        replace(state, seen={name: replace(one, digest="0") for name, one in state.seen.items()})
    )
    Counted.reads, writes = 0, []
    monkeypatch.setattr(WatchFolder, "write", lambda *_: writes.append(1))
    started = time.perf_counter()
    look_into_folder.fn(config)
    assert time.perf_counter() - started < 2
    assert (Counted.reads, writes) == (0, [])


def test_a_bucket_whose_listing_tells_times_by_the_millisecond_is_read(watched, s3):  # noqa: F811
    """MinIO's does, and rclone's; what tells of one file has whole seconds, as HTTP does."""
    storage = fsspec.filesystem("s3")
    storage.put_file("inbox/january.parquet", f"{s3}/inbox/january.parquet")
    storage.pipe_file(f"{s3}/inbox/*.parquet", b"nothing")
    config = small_watch(folder=f"{s3}/inbox")
    state = gather(config)
    assert [one.name for one in state.accepted] == ["january.parquet"]
    assert [one.name for one in state.quarantined] == ["*.parquet"]
    assert list(Inbox.at(f"{s3}/inbox").listing().files) == ["january.parquet"]
    assert gather(config).accepted == state.accepted


def test_a_missing_folder_and_an_unknown_storage_are_sentences(watched):
    with pytest.raises(DataError, match="nowhere does"):
        gather(small_watch(folder="nowhere"))
    with pytest.raises(ConfigError, match="gone://x cannot"):
        gather(small_watch(folder="gone://x"))


def test_a_file_is_no_folder_to_watch(watched):
    with pytest.raises(DataError, match="is a file"):
        gather(small_watch(folder="inbox/january.parquet"))
    assert Path("inbox/january.parquet").is_file()


def test_an_unregistered_data_set_is_a_sentence_and_nothing_is_moved(watched):
    Path("inbox/bad.parquet").write_bytes(b"nothing")
    with pytest.raises(LedgerError, match="never sets"):
        gather(small_watch(dataset="hospital"))
    assert Path("inbox/bad.parquet").exists()


def test_a_broken_validation_set_is_not_the_fault_of_a_file(watched):
    Path("validation.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match="readable Parquet"):
        gather(small_watch())
    assert Path("inbox/january.parquet").exists()
