"""A store gives back what it was given, or says in one sentence why not."""

from __future__ import annotations

import pickle
import resource
import signal
from dataclasses import replace

import fsspec
import pytest

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError, ParameterError, StorageError, StoreError, StoreUnreachable
from dpal.files.object_store import ArtifactRef, Store, StoreHolds, file_ref
from tests.conftest import nothing_released, small_values
from tests.s3 import environment, forget_connections

MODEL, LABELS = "phase-0/model.safetensors", "confidential/phase-0/labels.parquet"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "here" / MODEL
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(range(256)) * 5000)
    return path


def in_store(ref: ArtifactRef):
    return fsspec.core.url_to_fs(ref.url)


def test_what_is_put_is_known_and_got_back(store, file, tmp_path):
    refs = [store.put(name, file) for name in (MODEL, LABELS)]
    assert store.known() == {ref.name: ref for ref in refs}
    assert store.known("phase-0") == {MODEL: refs[0]}
    assert replace(store, campaign="another").known() == {}
    for ref in refs:
        store.get(ref, tmp_path / "there" / ref.name)
        there = tmp_path / "there" / ref.name
        assert there.read_bytes() == file.read_bytes()
        assert there.stat().st_mode & 0o777 == 0o600


def test_a_name_points_to_what_was_put_last_and_the_first_is_still_there(store, file, tmp_path):
    first = store.put(MODEL, file)
    file.write_bytes(b"second")
    second = store.put(MODEL, file)
    assert store.known() == {MODEL: second}
    store.get(first, tmp_path / "first")
    assert (tmp_path / "first").read_bytes() != b"second"


def test_what_is_forgotten_is_gone(store, file):
    ref = store.put(MODEL, file)
    kept = store.put(LABELS, file)
    store.forget(ref)
    store.forget(ref)
    assert store.known() == {LABELS: kept}
    assert not store.has(ref)
    assert store.has(kept)


def test_half_an_upload_is_never_found_and_is_made_whole(store, file, tmp_path):
    ref = store.ref(MODEL, file_ref(tmp_path / "here", file).sha256)
    files, key = in_store(ref)
    files.makedirs(files._parent(key), exist_ok=True)
    files.pipe_file(key, file.read_bytes()[:1000])
    assert store.known() == {}
    assert store.put(MODEL, file) == ref
    store.get(ref, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == file.read_bytes()


def test_altered_content_is_refused_and_not_left_behind(store, file, tmp_path):
    ref = store.put(MODEL, file)
    files, key = in_store(ref)
    files.pipe_file(key, b"x" * file.stat().st_size)
    with pytest.raises(StoreError, match="was altered"):
        store.get(ref, tmp_path / "there" / "model")
    assert list((tmp_path / "there").iterdir()) == []


def test_confidential_files_stay_out_unless_the_store_may_hold_them(store, file):
    open_to_others = replace(store, holds=StoreHolds.RELEASED)
    open_to_others.put(MODEL, file)
    for name in (LABELS, "pool.salt", "datasets/clinic/salt"):
        with pytest.raises(StoreError, match=r"runtime\.store_holds: everything"):
            open_to_others.put(name, file)
    files, key = fsspec.core.url_to_fs(store.url)
    assert not any("confidential" in one.removeprefix(key) for one in files.find(key))
    ref = store.put(LABELS, file)
    assert ref.url.startswith(f"{store.url}/confidential/")


def test_a_folder_is_readable_by_its_owner_only(tmp_path, file):
    place = tmp_path / "mount"
    store = Store(url=place.as_uri(), campaign="clinic-0123", holds=StoreHolds.EVERYTHING)
    store.put(LABELS, file)
    for path in [place, *place.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../other/pool.salt", "a//b", "a/./b"])
def test_names_stay_below_the_campaign(name):
    with pytest.raises(ParameterError):
        ArtifactRef(name=name, url="file:///x", sha256="0" * 64)


def test_files_of_another_place_are_not_fetched(store, file, tmp_path):
    ref = store.put(MODEL, file)
    elsewhere = replace(ref, url=file.as_uri())
    with pytest.raises(StoreError, match="not where"):
        store.get(elsewhere, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_writable_store_is_left_as_it_was(store):
    store.require_writable()
    files, key = fsspec.core.url_to_fs(store.url, use_listings_cache=False)
    assert files.find(key) == []


def refusal(ask) -> StoreError:
    with pytest.raises(StoreError) as caught:
        ask()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert nothing_released(caught.value)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (type(copied), str(copied)) == (type(caught.value), sentence)
    return caught.value


def bucket(url: str) -> Store:
    return Store(url=url, campaign="clinic-0123", holds=StoreHolds.EVERYTHING)


def test_a_bucket_that_is_not_there(s3, file):
    missing = bucket("s3://nobody-made-this")
    for ask in (lambda: missing.put(MODEL, file), missing.require_writable):
        assert "the bucket" in str(refusal(ask))


def test_no_right_to_the_bucket(s3, s3_server, file, monkeypatch):
    for name, value in environment(s3_server[0], secret="a-wrong-one").items():
        monkeypatch.setenv(name, value)
    forget_connections()
    assert "no access" in str(refusal(lambda: bucket(s3).put(MODEL, file)))
    assert "a-wrong-one" not in str(refusal(bucket(s3).require_writable))


def test_no_credentials(s3, file, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    forget_connections()
    assert "AWS_ACCESS_KEY_ID" in str(refusal(lambda: bucket(s3).put(MODEL, file)))


@pytest.mark.slow
def test_a_server_that_does_not_answer(s3, file, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens there
    forget_connections()
    assert isinstance(refusal(lambda: bucket(s3).put(MODEL, file)), StoreUnreachable)


def test_no_room_here_says_so_and_leaves_nothing(store, file, tmp_path):
    ref = store.put(MODEL, file)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match="written"):
            store.get(ref, tmp_path / "there" / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:password@bucket/dpal",
        "s3://key@bucket/dpal",
        "s3://bucket/dpal?secret=1",
        "artifacts",
        "gopher://bucket",
        "file://relative/folder",
    ],
)
def test_settings_hold_no_secret_and_a_real_url(url):
    with pytest.raises(ConfigError, match=r"runtime\.store") as refused:
        parse_config(small_values(runtime__store=url))
    assert "password@" not in str(refused.value)


def test_a_slash_at_the_end_changes_nothing():
    config = parse_config(small_values(runtime__store="s3://bucket/dpal/"))
    assert config.runtime.store == "s3://bucket/dpal"
    assert config.runtime.store_holds is StoreHolds.RELEASED
