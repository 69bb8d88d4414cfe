"""Numbers beyond all bounds, texts that are none, lists without end: one sentence each."""

from __future__ import annotations

import gc
import io
import sys

import pytest

from dpal.config.yaml_loader import read_yaml
from flows.cli.terminal import prepare_process
from tests.conftest import write_config
from tests.flows.calling import call, sentence
from tests.fuzz.outcomes import Tally
from tests.variants import quick_and_slow

NUMBERS = ("9" * 400, "9" * 5000, "-" + "9" * 400, "1e400", f"[{'9' * 400}]")
KEYS = (
    "privacy.epsilon", "schedule.initial", "schedule.batch_size", "schedule.epochs_per_phase",
    "schedule.queries", "training.max_grad_norm",
)  # fmt: skip
PLACES = ("name", "data.pool", "data.label_column", "runtime.artifacts", "runtime.store")
HALF = '"\\ud800"'  # of a pair of surrogates, as YAML and JSON write it


@pytest.fixture(autouse=True)
def _here(workplace):
    write_config(workplace / "c.yaml", strategy="naive")


@pytest.mark.parametrize("key", [KEYS[1], pytest.param(None, marks=pytest.mark.slow)])
def test_no_number_ends_in_a_traceback(key):
    tally = Tally()
    for one in KEYS if key is None else [key]:
        for number in NUMBERS:
            tally.run(one, "plan", "c.yaml", "--set", f"{one}={number}")
    assert not tally.astray, "\n".join(tally.astray)
    assert tally.ends == {2: tally.total}


@pytest.fixture
def no_garbage():
    """Nothing of an earlier test is collected at the bottom of a recursion, where it prints."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
def test_no_text_ends_in_a_traceback():
    for key in PLACES:
        said = sentence(call("plan", "c.yaml", "--set", f"{key}={HALF}"))
        assert "YAML can" in said
    assert "does not exist" in sentence(call("plan", "\udcff.yaml"))
    assert "YAML" in sentence(call("plan", "c.yaml", "--set", "a=" + "[" * 5000))


def test_a_reason_that_cannot_be_written_down_is_not_recorded():
    assert call("data", "register", "clinic", "pool.parquet", "--epsilon", "8").returncode == 0
    limit = ("data", "limit", "clinic", "--epsilon", "9", "--reason")
    assert "character that" in sentence(call(*limit, "board \udcff"))
    assert call(*limit, "board é \N{WAVING HAND SIGN}").returncode == 0
    exported = call("ledger", "export", "artifacts", "--to", "entries.parquet")
    assert exported.returncode == 0, exported


TEXTS = ["9" * 5000, "[" * 5000, HALF, f"a: {HALF}", f"{HALF}: 1"]


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("text", quick_and_slow([TEXTS[0], TEXTS[3]], TEXTS))
def test_yaml_that_cannot_be_is_no_yaml(text):
    import yaml

    with pytest.raises(yaml.YAMLError):
        read_yaml(text)


def test_a_name_of_a_file_that_is_no_text_can_be_shown(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8"))
    monkeypatch.setattr("os.umask", lambda mask: None)
    prepare_process()
    sys.stdout.write("\udcff.parquet\n")
    sys.stdout.flush()
    assert shown.getvalue() == b"\\udcff.parquet\n"
