"""`dpal plan` explains, sweeps, compares and draws; what makes no sense is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.conftest import write_config
from tests.data.image_pools import images
from tests.flows.calling import Result, call, sentence

FIGURES = ["budget-by-release.png", "budget-by-cohort.png", "schedule.png"]


@pytest.fixture(autouse=True)
def config(workplace: Path) -> None:
    write_config(workplace / "c.yaml", schedule__queries=[40])


def as_json(result: Result) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_explains_in_words_and_as_numbers():
    shown = call("plan", "c.yaml", "--explain")
    assert "this noise" in shown.stdout
    record = as_json(call("plan", "c.yaml", "--explain", "--json"))
    [worst] = [remark["numbers"]["worst_epsilon"] for remark in record["explanation"]
               if "worst_epsilon" in remark["numbers"]]  # fmt: skip
    assert worst == record["worst_epsilon"]
    assert f"{record['worst_epsilon']:.4f}" in shown.stdout


def test_draws_its_plan():
    record = as_json(call("plan", "c.yaml", "--plots", "figures", "--json"))
    assert record["plots"] == [f"figures/{name}" for name in FIGURES]
    for path in record["plots"]:
        with Image.open(path) as figure:
            assert min(figure.size) > 300
            colors = figure.convert("RGB").getcolors(maxcolors=1 << 24)
            assert colors is not None
            assert len(colors) > 50  # something is drawn


def test_sweeps_over_a_setting():
    arguments = ("plan", "c.yaml", "--sweep", "privacy.selection_epsilon=1:3:1")
    record = as_json(call(*arguments, "--plots", "figures", "--json"))
    assert [row["privacy.selection_epsilon"] for row in record["rows"]] == [1, 2, 3]
    planned = [row for row in record["rows"] if row["planned"]]
    assert len(planned) >= 2
    # More for selection finds more of the highest-scored.
    found = [row["expected_precision"] for row in planned]
    assert found == sorted(found)
    assert found[0] < found[-1]
    assert Path("figures/sweep-privacy.selection_epsilon.png").stat().st_size > 10_000


def test_a_sweep_plans_as_plan_does(workplace, mlflow_uri):
    """On a registered data set with persons as the unit, and a normalisation that was measured."""
    rows = 300
    for name, first in (("pool", 0), ("validation", 300)):
        images(workplace / f"{name}.parquet", rows, first=first)
    grouped = pq.read_table("pool.parquet").append_column(
        "person", pa.array([f"p-{row // 2}" for row in range(rows)])
    )
    pq.write_table(grouped, "pool.parquet")
    write_config(
        workplace / "grouped.yaml",
        schedule={"initial": 60, "queries": [40], "batch_size": 30, "epochs_per_phase": 1},
        data__normalisation={"kind": "validation"},
        data__dataset="clinic",
        strategy="naive",
        acquisition="random",
        privacy={"epsilon": 4.0},
        runtime={"mlflow_uri": mlflow_uri},
    )
    register = ("data", "register", "clinic", "pool.parquet", "--epsilon", "9", "--delta", "1e-4")
    assert call(*register, "--group", "person").returncode == 0
    plan = as_json(call("plan", "grouped.yaml", "--json"))
    assert (plan["unit"], plan["pool_size"]) == ("group", 150)
    swept = as_json(call("plan", "grouped.yaml", "--sweep", "privacy.epsilon=2,4", "--json"))
    assert [row["planned"] for row in swept["rows"]] == [True, True]
    assert swept["rows"][1]["plan_digest"] == plan["plan_digest"]


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        ("privacy.delta=1e-5,1e-4", "epsilon 4, delta differs, adjacency zero_out"),
        pytest.param(
            "privacy.epsilon=2,4", "epsilon differs, delta 0.0001", marks=pytest.mark.slow
        ),
        pytest.param(
            "privacy.adjacency=zero_out,replace_one",
            "adjacency differs, unit record",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "schedule.epochs_per_phase=1,2", "epsilon 4 at delta 0.0001", marks=pytest.mark.slow
        ),
    ],
    ids=["delta", "epsilon", "adjacency", "none of them"],
)
def test_a_sweep_tells_what_all_of_its_plans_promise(swept, said):
    settings = ("--set", "privacy.epsilon=4", "--set", "privacy.delta=1e-4")
    shown = call("plan", "c.yaml", *settings, "--sweep", swept)
    assert shown.returncode == 0, shown.stderr
    told = " ".join(shown.stdout.split())
    assert said in told
    assert ("epsilon 4 at" in told) == ("epochs" in swept)


def test_rows_without_a_plan_say_why():
    arguments = ("plan", "c.yaml", "--sweep", "schedule.queries=[40],[900]")
    record = as_json(call(*arguments, "--json", "--plots", "figures"))
    assert [row["planned"] for row in record["rows"]] == [True, False]
    assert record["rows"][0]["schedule.queries"] == [40]  # drawn as text, and kept as it is
    assert Path("figures/sweep-schedule.queries.png").stat().st_size > 10_000
    assert "asks for 1,000 labels" in record["rows"][1]["reason"]


@pytest.mark.slow
def test_compares_ways_to_plan():
    arguments = ("plan", "c.yaml", "--compare", "--set", "acquisition=random")
    record = as_json(call(*arguments, "--json", "--plots", "figures"))
    rows = record["rows"]
    strategies = ["naive", "step_amplification", "noise_reduction", "continual"]
    assert [row["strategy"] for row in rows] == strategies
    assert {row["selection"] for row in rows} == {"random"}
    assert all(row["worst_epsilon"] <= record["target_epsilon"] for row in rows)
    assert Path("figures/comparison.png").exists()
    shown = call(*arguments).stdout
    assert "Strategies and" in shown
    assert "step_amplification" in shown


def test_the_published_schedule_is_marked():
    record = as_json(call("plan", "c.yaml", "--published", "--json"))
    assert record["certified"] is False
    shown = call("plan", "c.yaml", "--published").stdout
    assert "NOT CERTIFIED" in shown
    assert "as published" in shown.lower() or "published code plans" in shown


@pytest.mark.parametrize("view", [("--compare",), ("--sweep", "privacy.epsilon=4,8")])
def test_no_view_is_of_a_run_whose_workers_would_get_no_labels(view):
    pool = ("--set", "runtime.training_pool=gpu", "--set", "runtime.store=s3://clinic/runs")
    said = sentence(call("plan", "c.yaml", *view, *pool))
    assert "runtime.store_holds" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--explain", "--compare"), "different views"),
        (("--sweep", "privacy.epsilon"), "--sweep takes"),
        (("--sweep", "privacy.epsilon=2:8"), "START:STOP:STEP of"),
        (("--set", "privacy.epsilon=2:8"), "privacy.epsilon is '2:8' but should be a valid number"),
        (("--sweep", "privacy.epsilon=1:8:0"), "START:STOP:STEP of"),
        (("--sweep", "privacy.epsilon=8:1:1"), "lead from 8 to 1"),
        (("--sweep", "privacy.epsilon=0:8:0.01"), "801 values"),
        (("--sweep", "privacy.epsilom=1:8:1"), "mean privacy.epsilon?"),
        (("--sweep", "privacy=1:8:1"), "a section"),
        (("--sweep", "data.pool=a,b"), "data.pool does"),
        (("--published", "--set", "schedule.batch_size=90"), "lower schedule.batch_size to 70"),
    ],
    ids=lambda value: "-".join(value)[-30:] if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_one_sentence(arguments, said):
    assert said in sentence(call("plan", "c.yaml", *arguments))
