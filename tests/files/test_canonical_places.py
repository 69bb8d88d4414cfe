"""Two ways to write one place are equal, and no way to write another place looks like it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.files.canonical_places import canonical_place, is_resolved, lies_in


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    """A folder with a file, and a link to it from elsewhere."""
    folder = tmp_path / "clinic"
    folder.mkdir()
    (folder / "pool.parquet").touch()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "file.parquet").symlink_to(folder / "pool.parquet")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def test_every_way_to_write_a_file_is_the_same(clinic, tmp_path):
    whole = str(clinic.resolve() / "pool.parquet")
    for way in (
        clinic / "pool.parquet",
        "pool.parquet",
        "./pool.parquet",
        "../clinic/pool.parquet",
        f"{tmp_path}/x/../clinic//pool.parquet",
        f"{tmp_path}/link/pool.parquet",
        f"{tmp_path}/file.parquet",
        f"file://{tmp_path}/link/pool.parquet",
        f"file://localhost{clinic}/pool.parquet",
        f"file:{clinic}/pool.parquet",
        f"local://{clinic}/../clinic/pool.parquet",
    ):
        assert canonical_place(way) == whole, way


def test_a_link_counts_as_what_it_leads_to(clinic, tmp_path):
    (clinic / "innocent.parquet").symlink_to("/etc/passwd")
    (clinic / "loop").symlink_to("loop")
    assert canonical_place(clinic / "innocent.parquet") == "/etc/passwd"
    assert canonical_place(f"{clinic}/loop/x").startswith(str(clinic))


@pytest.mark.parametrize(
    ("way", "same"),
    [
        ("s3://bucket/dpal/", "s3://bucket/dpal"),
        ("S3://bucket/dpal", "s3://bucket/dpal"),
        ("HTTP://Example.ORG:80/", "http://example.org"),
        ("http://example.org:5000/x/y/", "http://example.org:5000/x/y"),
        ("postgresql://dpal@DB:5432/ledger", "postgresql://dpal@db/ledger"),
        ("sqlite:////srv/x/../mlflow.sqlite", "sqlite:////srv/mlflow.sqlite"),
    ],
)
def test_urls(way, same):
    assert canonical_place(way) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/dpal", "s3://Bucket/dpal"),  # some stores tell them apart
        ("s3://bucket/dpal", "s3://bucket/dpal2"),
        ("s3://bucket/dpal", "gs://bucket/dpal"),
        ("http://example.org", "https://example.org"),
        ("http://example.org", "http://example.org:8080"),
        ("http://example.org", "http://me@example.org"),
        ("http://example.org", "http://example.org.evil.org"),
        ("postgresql://a@db/x", "postgresql://b@db/x"),
        ("postgresql://a@db/x", "postgresql://a@db/x?host=evil"),
        ("file:///srv/a", "filecache::file:///srv/a"),
        ("/srv/a b", "file:///srv/a%20b"),  # who reads it decides what that means
        ("file:///srv/a", "file://evil/srv/a"),
        ("file:///srv/a", "file:///srv/a#/../b"),
        ("file:///srv/a", "file:///srv/a?b"),
        ("s3://bucket/dpal", "s3://bucket/public/../dpal"),  # a name, in object storage
        ("s3://bucket/a/b", "s3://bucket/a//b"),
        ("s3://bucket/a/b", "s3://bucket/a/./b"),
        (Path("/srv/a"), Path("file:/srv/a")),  # as whoever opens it takes it
        (Path("/srv/~/a"), "~/a"),
        (Path("local:/etc"), "local:/etc"),  # as a watched folder it is /etc
        (Path("file:~/a"), "file:~/a"),
        ("s3://bucket/dpal", "s3://bucket/dpal?"),
        ("file:///srv/store", "file:///srv/st\tore"),
        ("s3://bucket/dpal", "s3://bucket/dpal "),
        ("postgresql://db/ledger", "postgresql://db/ledger/"),  # another database
    ],
)
def test_other_places_stay_others(one, other):
    assert canonical_place(one) != canonical_place(other)


def test_a_folder_holds_what_is_below_it_and_no_neighbour():
    assert lies_in("/srv/clinic", "/srv/clinic")
    assert lies_in("/srv/clinic/a/b", "/srv/clinic")
    assert not lies_in("/srv/clinical", "/srv/clinic")
    assert not lies_in("/srv", "/srv/clinic")
    assert lies_in("/srv", "/")


@given(st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=8))
def test_no_number_of_steps_up_leaves_a_folder_unseen(steps):
    place = "/srv/clinic/" + "/".join(steps)
    assert canonical_place(place) == os.path.realpath(place)
    bucket = canonical_place("s3://bucket/clinic/" + "/".join(steps))
    odd = {"", ".", ".."} & set(bucket.removeprefix("s3://bucket/").strip("/").split("/"))
    assert is_resolved(bucket) == (not odd)
