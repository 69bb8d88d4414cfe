"""What DVC keeps of a phase is for its owner only, whoever calls DVC in between."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpal.config.runtime import RuntimeConfig
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.files.atomic_writes import write_text
from dpal.files.dvc_pointers import pointed_at
from tasks.version_with_dvc import bring_back, version_files, what_dvc_lacks_for
from tests.variants import quick_and_slow

LABELS = "id,label: who was selected, and as what"


def phase(artifacts: Path) -> PhaseFolder:
    files = CampaignFolder(artifacts / "small").phase(0)
    write_text(files.model, "weights")
    write_text(files.labels, LABELS)
    write_text(files.selection, "ids")
    return files


def open_to_others(*places: Path) -> list[str]:
    """What others could open: also a file that they cannot reach, as folders change."""
    every = [path for place in places for path in (place, *place.rglob("*"))]
    return [
        f"{path} {path.lstat().st_mode & 0o777:o}"
        for path in every
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]


def by_hand(artifacts: Path, *arguments: str) -> None:
    """DVC as a person calls it, in a terminal that makes files for everybody."""
    subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=artifacts, umask=0o022, check=True, capture_output=True,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
    )  # fmt: skip


@pytest.fixture
def runtime(tmp_path, monkeypatch) -> Iterator[RuntimeConfig]:
    """Versioning in a process that makes files for everybody: a worker's is no other."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield RuntimeConfig(artifacts=tmp_path / "artifacts")
    os.umask(before)


def places(runtime: RuntimeConfig) -> tuple[Path, Path]:
    return runtime.artifacts / ".dvc" / "cache", runtime.artifacts / "small" / "confidential"


def test_copies_of_confidential_files_are_the_owners(runtime):
    files = phase(runtime.artifacts)
    version_files(runtime, files.root)
    cached = [path for path in places(runtime)[0].rglob("*") if path.is_file()]
    assert sum(path.read_bytes() == LABELS.encode() for path in cached) == 1
    assert {path.stat().st_mode & 0o777 for path in cached} <= {0o400, 0o600}
    assert open_to_others(*places(runtime)) == []


@pytest.mark.slow
def test_a_cache_of_earlier_versions_is_closed(runtime):
    files = phase(runtime.artifacts)
    version_files(runtime, files.root)
    for path in places(runtime)[0].rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    write_text(files.metrics, "{}")
    version_files(runtime, files.root)
    assert open_to_others(*places(runtime)) == []


@pytest.mark.parametrize("left", quick_and_slow([20], [0, 20, 60, -4]))
def test_a_pointer_that_a_killed_dvc_tore_is_written_anew(runtime, left):
    """An empty one, those torn in the hash and after it, one without the end of the folder's name.

    DVC reads all pointers of the repository, so that a torn one keeps it from adding another
    folder: of an earlier phase, or of another run.
    """
    files = phase(runtime.artifacts)
    other = runtime.artifacts / "other" / "phase-3"
    write_text(other / "metrics.json", "{}")
    folders = [files.root, other]
    for folder in folders:
        version_files(runtime, folder)
    places = [*folders, files.confidential]
    pointers = [place.with_name(f"{place.name}.dvc") for place in places]
    whole = [pointer.read_bytes() for pointer in pointers]
    for pointer in pointers:
        pointer.write_bytes(pointer.read_bytes()[:left])
    for folder in folders:
        version_files(runtime, folder)
    assert [pointer.read_bytes() for pointer in pointers] == whole


@pytest.mark.slow
@pytest.mark.parametrize("link", ["copy", "hardlink", "symlink", "reflink"])
def test_dvc_by_hand_opens_nothing_for_good(runtime, link):
    """checkout and gc work on closed files, and what they open is closed by the next phase."""
    files, artifacts = phase(runtime.artifacts), runtime.artifacts
    version_files(runtime, files.root)
    if link != "reflink":  # not every disk has them; then copies are made
        by_hand(artifacts, "config", "cache.type", link)
    shutil.rmtree(files.confidential)
    by_hand(artifacts, "checkout", "--relink")
    assert files.labels.read_text() == LABELS
    # Others do not get past the folder of the cache, whatever DVC makes of its files.
    assert (artifacts / ".dvc" / "cache").stat().st_mode & 0o077 == 0
    by_hand(artifacts, "gc", "--workspace", "--force")
    files.model.unlink(missing_ok=True)
    write_text(files.model, "other weights")
    md5 = version_files(runtime, files.root)
    assert open_to_others(*places(runtime)) == []
    assert files.labels.read_text() == LABELS
    shutil.rmtree(files.root)
    bring_back(artifacts, artifacts.parent / "scratch", "phase-0", md5, None)
    assert (artifacts.parent / "scratch" / "phase-0" / "model.safetensors").read_text()
    assert open_to_others(*places(runtime), artifacts.parent / "scratch" / "phase-0") == []
    assert pointed_at(files.confidential) is not None


@pytest.mark.parametrize(
    ("remote", "advice"),
    [
        ("", ""),
        ("remote", ""),
        ("/mnt/remote", ""),
        ("remote://named/place", ""),
        ("https://example.org/remote", ""),  # comes with DVC
        ("oss://bucket/remote", "pip install dvc-oss"),
        ("OSS://bucket/remote", "pip install dvc-oss"),
        ("s4://bucket/remote", "name a folder"),
        ("file:///mnt/remote", "name a folder"),  # a folder of this name beside the artifacts
        ("/mnt/a.b://c", "name a folder"),
    ],
)
def test_what_dvc_lacks_for_an_address_is_named(remote, advice, monkeypatch):
    known = ("dvc_http",)  # whatever is installed here
    monkeypatch.setattr("tasks.version_with_dvc.find_spec", lambda name: name in known or None)
    lack = what_dvc_lacks_for(remote)
    assert (advice in lack[1]) if lack else not advice
