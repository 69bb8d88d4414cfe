"""`dpal simulate` and `dpal rehearse`, as a person calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpal.errors import ParameterError
from dpal.reports.rehearsal_summary import rehearsal_table
from flows.cli import run_rehearsals
from flows.cli.simulate import rehearse_command
from tests.conftest import write_config
from tests.flows.calling import call, sentence


@pytest.fixture
def place(workplace: Path) -> Path:
    write_config(workplace / "c.yaml", strategy="naive", schedule__queries=[150])
    return workplace


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """One simulation without any data, looked at by several tests."""
    folder = tmp_path_factory.mktemp("simulated")
    config = write_config(folder / "c.yaml", strategy="naive", schedule__queries=[200])
    plots = folder / "plots"
    given = ["--pool-size", "2000", "--scores", "beta:0.3,2", "--runs", "20"]
    shown = call("simulate", str(config), *given, "--plots", str(plots))
    result = call("simulate", str(config), *given, "--json")
    return shown, result, plots


def test_a_simulation_is_one_json_object(simulated):
    result = simulated[1]
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["epsilon"], found["delta"]) == (8, 1 / 20_000)
    assert (found["adjacency"], found["unit"]) == ("zero_out", "record")
    by_name = {one["mechanism"]: one for one in found["selections"]}
    assert {"hidden", "visible", "paper", "random", "Laplace, clipped"} <= set(by_name)
    assert all((one["phase"], one["runs"]) == (1, 20) for one in by_name.values())
    for mode in ("hidden", "visible", "paper"):
        assert by_name[mode]["certified"]
        assert 7.9 < by_name[mode]["epsilon"] <= 8
        assert by_name[mode]["selected"] <= 200
    assert not by_name["Laplace, clipped"]["certified"]
    for name, record in by_name.items():
        comparison = record["hits_beside_random"]
        assert (comparison is None) == (name == "random")
        assert record["hits_half_width"] >= 0  # runs may agree
    # The same simulated scores for all, run by run.
    assert by_name["hidden"]["hits_beside_random"]["verdict"] == "better"
    assert by_name["hidden"]["hits_beside_random"]["pairs"] == 20
    assert by_name["hidden"]["best_mean_score"] == by_name["random"]["best_mean_score"]
    assert by_name["hidden"]["hits"] > by_name["visible"]["hits"] > by_name["random"]["hits"]
    assert found["refused"] == {}


def test_a_simulation_is_tables_for_people(simulated):
    shown, _, plots = simulated
    assert shown.returncode == 0, shown.stderr
    assert (
        "pool of 2,000; campaign at epsilon 8, delta 5e-05, zero_out, unit record" in shown.stdout
    )
    for title in ("Share of the selected in the true top k", "over union",
                  "squared difference", "Mean score", "Records selected"):  # fmt: skip
        assert title in shown.stdout
    assert "Gaussian (one selection)" in shown.stdout
    assert (plots / "hits.png").read_bytes().startswith(b"\x89PNG")


def test_a_mode_that_cannot_be_is_named_beside_the_others(place):
    result = call("simulate", "c.yaml", "--set", "schedule.queries=[20]", "--runs", "1", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert "for 20 labels" in found["refused"]["hidden"]
    assert {"visible", "paper"} <= {one["mechanism"] for one in found["selections"]}
    assert "hidden" not in {one["mechanism"] for one in found["selections"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scores", "beta:0,1"], "is 'beta:0,1'; use"),
        (["--scores", "beta:1"], "use beta:ALPHA,BETA"),
        (["--scores", "beta:1,nan"], "use beta:ALPHA,BETA"),
        (["--scores", "beta:inf,1"], "use beta:ALPHA,BETA"),
        (["--scores", "normal:0,1"], "use beta:ALPHA,BETA"),
        (["--scores", ""], "use beta:ALPHA,BETA"),
        (["--pool-size", "0"], "pool_size must"),
        (["--pool-size", "200"], "has 200 records"),
        (["--runs", "0"], "Invalid value for '--runs'"),
        (["--set", "data.pool=none.parquet"], "none.parquet does"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(place, arguments, said):
    assert said in sentence(call("simulate", "c.yaml", *arguments))


def test_what_looks_at_no_scores_is_not_simulated(place):
    said = sentence(call("simulate", "c.yaml", "--set", "acquisition=random"))
    assert "acquisition random" in said


def test_a_plan_that_protects_groups_is_not_simulated_by_a_number_of_records(place):
    groups = ("--set", "data.group_column=id", "--set", "privacy.unit=group")
    said = sentence(call("simulate", "c.yaml", "--pool-size", "2000", *groups))
    assert "protects groups" in said and "--pool-size" in said


@pytest.mark.slow
def test_a_rehearsal_on_public_data(place):
    """Three ways of selecting in a process of their own, and every figure in a file."""
    output = Path("results") / "rehearsal.json"
    result = call("rehearse", "c.yaml", "--public", "--methods", "random,visible,exact", "--runs",
                  "2", "--output", str(output), "--plots", "results")  # fmt: skip
    assert result.returncode == 0, result.stderr
    summary = json.loads(output.read_text())
    assert (summary["judged_on"], summary["reference"]) == ("validation part", "random")
    assert 100 < summary["judged_records"] < 200  # about half of 300
    assert list(summary["comparisons"]) == ["visible", "exact"]
    assert all(found["pairs"] == 2 for found in summary["comparisons"].values())
    assert summary["methods"]["exact"]["runs"] == 2
    records = summary["records"]
    assert [one["method"] for one in records] == [
        name for name in ("random", "visible", "exact") for _ in range(2)
    ]
    for one in records:
        assert [phase["labels"] for phase in one["phases"]] == [100, 250]
        assert one["phases"][0]["quality"] is None
        assert one["phases"][-1]["accuracy"] > 0.7
        assert 7.9 < one["epsilon"] <= 8
        assert one["selection_is_private"] == (one["method"] != "exact")
        assert (one["delta"], one["adjacency"], one["pool"]) == (1 / 6000, "zero_out", 600)
    assert records[-1]["phases"][1]["quality"]["hits"] == 1
    # In the table, whose cells are folded on a narrow terminal, and in a line of its own.
    assert rehearsal_table(records).rows[-1][0] == "exact (NOT PRIVATE selection)"
    assert "exact is NOT PRIVATE: a reference, never part of a campaign" in result.stdout
    assert "public data, no ledger, nothing of it is a release" in result.stdout
    assert (output.parent / "rehearsal-small.png").read_bytes().startswith(b"\x89PNG")
    assert not Path("artifacts").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--public"),
        (["--public", "--methods", "magic"], "has 'magic'; choose of random, paper, visible"),
        (["--public", "--methods", "random,"], "has ''; choose of random, paper, visible"),
        (["--public", "--long-tail", "0"], "--long-tail is 0"),
        (["--public", "--long-tail", "nan"], "--long-tail is nan"),
        pytest.param(
            ["--public", "--methods", "hidden", "--set", "schedule.queries=[20]"],
            "for 20 labels",
            marks=pytest.mark.slow,
        ),
        (["--public", "--runs", "0"], "Invalid value for '--runs'"),
        (["--public", "--set", "privacy.epsilon=0"], "privacy.epsilon is 0 but should be greater"),
        (
            ["--public", "--set", "data.group_column=id", "--set", "privacy.unit=group"],
            "protects groups",
        ),
        (
            ["--public", "--set", "data.dataset=clinic", "--set", "start_from=earlier"],
            "model of earlier",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_one_sentence(place, arguments, said):
    assert said in sentence(call("rehearse", "c.yaml", *arguments))
    assert not Path("artifacts").exists()


def test_a_method_that_is_named_twice_is_rehearsed_once(place, monkeypatch):
    asked: list[tuple[str, int]] = []

    def noted(wanted, **named):
        asked.extend((one.method.value, one.run) for one in wanted)
        return [], {"random": "noted"}

    monkeypatch.setattr(run_rehearsals, "run_rehearsals", noted)
    with pytest.raises(ParameterError, match="noted"):
        rehearse_command(Path("c.yaml"), public=True, methods="random, exact,random", runs=2)
    assert asked == [("random", 0), ("exact", 0), ("random", 1), ("exact", 1)]
