"""The sample campaign, in a folder where there is nothing yet, or something else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dpal.runs.kinds import parse_any
from flows.cli import demo, samples
from tests.flows.calling import call, sentence


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """Sample data of a few bytes, and an empty folder."""
    place = tmp_path / "samples"
    place.mkdir()
    (place / "README.md").write_text("whose they are\n")
    (place / "digits-pool.parquet").write_bytes(b"pool")
    (place / "digits-validation.parquet").write_bytes(b"validation")
    (place / "notes.parquet").write_bytes(b"somebody's own")
    monkeypatch.setattr(samples, "_PLACES", (tmp_path / "nowhere", place))
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return place


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_sample_is_copied_whole_and_its_settings_are_the_templates(digits):
    assert Path("digits.yaml") in demo._write_sample()
    written = content(Path())
    assert set(written) == {
        "digits.yaml", "data/README.md", "data/digits-pool.parquet",
        "data/digits-validation.parquet",
    }  # fmt: skip
    assert written["data/digits-pool.parquet"] == b"pool"
    template = Path(samples.__file__).parent.parent / "configs" / "digits.yaml"
    ours, theirs = (yaml.safe_load(text) for text in (written["digits.yaml"], template.read_text()))
    assert ours == theirs
    assert parse_any(ours).name == "digits"
    assert b"flows/" not in written["digits.yaml"]


@pytest.mark.parametrize("file", ["digits.yaml", "data/digits-pool.parquet", "data/README.md"])
def test_nothing_that_is_there_is_written_over(digits, file):
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text("mine")
    assert file in sentence(call("demo"))
    assert content(Path()) == {file: b"mine"}


def test_what_was_copied_before_is_used(digits):
    everything = demo._write_sample()
    assert demo._write_sample() == []
    Path("data/digits-pool.parquet").unlink()  # as if it had been interrupted
    assert demo._write_sample() == [Path("data/digits-pool.parquet")]
    assert set(content(Path())) == set(map(str, everything))


def test_a_checkout_without_its_data_says_how_to_get_it(digits, monkeypatch):
    monkeypatch.setattr(samples, "_PLACES", ())
    assert "make data" in sentence(call("demo"))
    assert content(Path()) == {}
