"""`dpal import` from the command line: a file that runs read, a report, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.importing.recipe import recipe_in
from tests.flows.calling import call, sentence


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k % 60},{'ab'[k % 2]},{'no' if k % 60 < 30 else 'yes'}" for k in range(240)]
    (tmp_path / "people.csv").write_text("age,ward,ill\n" + "\n".join(rows), encoding="utf-8")
    return tmp_path


def test_a_csv_becomes_a_pool_that_says_what_is_in_it(people):
    done = call(
        "import", "people.csv", "--to", "people.parquet", "--label", "ill", "--split", "0.3"
    )
    assert done.returncode == 0, done.stderr
    assert "dpal init NAME --data people.parquet" in done.stdout
    recipe = recipe_in(people / "people.parquet")
    assert recipe is not None
    assert recipe.classes == ("no", "yes")
    later = [
        "import",
        "people.csv",
        "--to",
        "l.parquet",
        "--label",
        "ill",
        "--like",
        "people.parquet",
    ]
    done = call(*later, "--json")
    report = json.loads(done.stdout)
    assert (report["rows"], report["file"]) == ({"train": 240}, "l.parquet")
    assert recipe_in(people / "l.parquet") == recipe


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--size", "large"), "64x64"),
        (("--grey", "--rgb"), "choose"),
        (("--range", "1"), "LOW:HIGH"),
        (("--range", "1:0"), "lowest"),
        (("--crop",), "--size"),
        (("--split", "1.5"), "1.5"),
        (("--classes", "a,a"), "twice"),
        (("--text", "a,b,c"), "--text"),
        (("--like", "people.csv"), "Parquet"),
        ((), "--split"),
    ],
)
def test_a_refusal_is_one_sentence_and_writes_nothing(people, options, word):
    done = call("import", "people.csv", "--to", "p.parquet", "--label", "ill", *options)
    assert done.returncode == 2
    assert word in sentence(done)
    assert [path.name for path in people.iterdir()] == ["people.csv"]


def test_what_is_there_is_not_overwritten(people):
    (people / "p.parquet").write_text("mine", encoding="utf-8")
    for to, word in (("p.parquet", "exists"), ("p.txt", ".parquet")):
        done = call("import", "people.csv", "--to", to, "--split", "0.3")
        assert (done.returncode, word in sentence(done)) == (2, True)
    assert (people / "p.parquet").read_text(encoding="utf-8") == "mine"


def test_settings_are_written_for_a_file_and_plan(people):
    call("import", "people.csv", "--to", "people.parquet", "--label", "ill", "--split", "0.3")
    wanted = ["init", "people", "--data", "people.parquet", "--epsilon", "2"]
    refused = call(*wanted)
    assert (refused.returncode, "--why-public" in sentence(refused)) == (2, True)
    assert call(*wanted, "--why-public", "made up").returncode == 0
    assert call(*wanted, "--why-public", "made up").returncode == 2  # it is there
    planned = json.loads(call("plan", "people.yaml", "--json").stdout)
    assert 1.8 < planned["worst_epsilon"] <= 2


def test_records_of_one_class_are_refused_before_settings_are_written(people):
    label = pa.array([0] * 240)
    ids, features = [f"r{k}" for k in range(240)], [[float(k)] for k in range(240)]
    pq.write_table(pa.table({"id": ids, "features": features, "label": label}), "one.parquet")
    done = call("init", "one", "--data", "one.parquet")
    assert done.returncode == 2 and "one class" in sentence(done)
    assert not Path("one.yaml").exists()


@pytest.mark.parametrize("groups", [30, 100])
def test_who_named_groups_is_told_that_they_are_not_protected(people, groups):
    lines = (people / "people.csv").read_text(encoding="utf-8").splitlines()
    named = [f"{line},{f'p{k % groups}' if k else 'person'}" for k, line in enumerate(lines)]
    (people / "people.csv").write_text("\n".join(named), encoding="utf-8")
    split = ("--split", "0.3", "--group", "person")
    call("import", "people.csv", "--to", "people.parquet", "--label", "ill", *split)
    done = call("init", "people", "--data", "people.parquet", "--why-public", "made up")
    assert done.returncode == 0, done.stderr
    whole = "unit: group " in (people / "people.yaml").read_text(encoding="utf-8")
    assert whole == (groups == 100)
    assert ("note:" in done.stdout) is not whole


def test_numbers_of_protected_records_stand_in_no_table(people):
    """How its columns became numbers says what held-out records are, and goes with every model."""
    label, held_out = ["--label", "ill"], ["--split", "0.3"]
    call("import", "people.csv", "--to", "people.parquet", *label, *held_out)
    call("init", "people", "--data", "people.parquet", "--why-public", "made up")
    public = (people / "people.yaml").read_text(encoding="utf-8")
    told = public.replace("  public: true", "  protected: true")
    others = ("  why:", "  normalisation:", "    kind: validation")
    told = "\n".join(line for line in told.splitlines() if not line.startswith(others))
    (people / "people.yaml").write_text(told, encoding="utf-8")
    assert "held-out records" in sentence(call("plan", "people.yaml"))
    # The same records once more, by what they are themselves.
    alike = ["--like", "people.parquet"]
    done = call("import", "people.csv", "--to", "same.parquet", *label, *held_out, *alike)
    assert done.returncode == 0, done.stderr
    done = call("init", "same", "--data", "same.parquet")
    assert (done.returncode, "--why-public" in sentence(done)) == (2, True)
    # As numbers by a table of others that is public.
    others = (people / "people.csv").read_text(encoding="utf-8").replace(",", ".5,")
    (people / "others.csv").write_text(others.replace("age.5,ward.5", "age,ward"), encoding="utf-8")
    call("import", "others.csv", "--to", "others.parquet", *label, *held_out)
    alike = ["--like", "others.parquet"]
    done = call("import", "people.csv", "--to", "alike.parquet", *label, *held_out, *alike)
    assert done.returncode == 0, done.stderr
    done = call("init", "alike", "--data", "alike.parquet")
    assert done.returncode == 0, done.stderr
    done = call("plan", "alike.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--labels", "100"),
        ("--weights", "w"),
        ("--epsilon", "3"),
        ("--label-column", "ill"),
        ("--public", "--data", "people.parquet"),
    ],
)
def test_options_that_mean_nothing_are_refused(people, options):
    assert call("init", "people", *options).returncode == 2
    assert not Path("people.yaml").exists()


@pytest.mark.usefixtures("orchestrated")
def test_from_a_csv_to_predictions_in_five_commands(people):
    """Import, init, plan, run, predict; nothing is edited in between."""
    pool = ["--to", "people.parquet", "--label", "ill", "--split", "0.3"]
    for command in (
        ["import", "people.csv", *pool],
        ["init", "people", "--data", "people.parquet", "--why-public", "made up"],
        ["plan", "people.yaml"],
        ["run", "people.yaml"],
        ["predict", "artifacts/people", "people.csv", "--to", "said.parquet"],
    ):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    assert pq.read_table(people / "said.parquet").num_rows == 240
    kept = call("predict", "models:/dpal-people/1", "people.csv", "--to", "kept.parquet", "--json")
    assert json.loads(kept.stdout)["rows"] == 240
    said = [pq.read_table(people / f"{name}.parquet")["label"] for name in ("said", "kept")]
    assert said[0] == said[1]
    assert (
        call("predict", "models:/dpal-people/9", "people.csv", "--to", "x.parquet").returncode == 2
    )
