"""Scoring in shards on real clusters: the same scores to the last bit, and none of them kept."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from safetensors.torch import save

from dpal.config.campaign import RuntimeConfig
from dpal.config.runtime import TaskRunnerKind
from dpal.data.labeling_state import write_start
from dpal.errors import DataError, RunnerError
from dpal.files.atomic_writes import atomic_write
from dpal.models.build_model import build_model
from dpal.randomness import secure
from dpal.runs.prepare_campaign import prepare
from dpal.runs.score_records import open_scorer
from dpal.runs.select_records import _scored, _scoring, draw_records
from flows.campaign import run_campaign
from tasks.parallel_parts import run_parts
from tasks.prefect_host import PrefectHost
from tests.conftest import ROOT, RepeatableBits, nothing_released, write_blobs

pytestmark = pytest.mark.usefixtures("orchestrated")

CLUSTERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("dask", "ray")]


def needs(kind):
    if kind != "local":
        pytest.importorskip(f"prefect_{kind}")


@task(cache_policy=NO_CACHE, persist_result=False)
def square(part: int) -> tuple[int, int]:
    return part * part, os.getpid()


@task(cache_policy=NO_CACHE, persist_result=False)
def refuse(part: int) -> int:
    raise DataError(f"part {part} is not to be had")


@task(cache_policy=NO_CACHE, persist_result=False)
def die_once(part: str) -> int:
    """Kills its worker the first time it is called."""
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return os.getpid()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def runtime(kind, **others):
    return RuntimeConfig(task_runner=kind, **others)


def test_parts_run_here_one_after_the_other():
    found = PrefectHost().run_parts(square.fn, [1, 2, 3], runtime("local"))
    assert next(found) == (1, os.getpid())
    assert list(found) == [(4, os.getpid()), (9, os.getpid())]


def test_a_cluster_that_is_not_there_is_one_sentence():
    pytest.importorskip("prefect_dask")
    asked = runtime("dask", scheduler="tcp://127.0.0.1:9")
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(RunnerError, check=nothing_released) as refused,
    ):
        list(run_parts(square, [1], asked))
    assert "tcp://127.0.0.1:9" in str(refused.value)


def test_missing_packages_are_one_sentence(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with pytest.raises(RunnerError, match=r"install dpal\[dask\]"):
        list(run_parts(square, [1], runtime("dask")))


@pytest.mark.parametrize("kind", CLUSTERS)
def test_parts_come_back_in_order_from_other_processes(kind):
    needs(kind)
    found = list(run_parts(square, range(9), runtime(kind, shards=2)))
    assert [value for value, _ in found] == [part * part for part in range(9)]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_what_the_work_refuses_is_told_as_it_is(kind):
    needs(kind)
    with pytest.raises(DataError, match="part 7"):
        list(run_parts(refuse, [7], runtime(kind)))


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_part_whose_worker_was_killed_is_computed_again(kind, tmp_path):
    needs(kind)
    found = list(run_parts(die_once, [str(tmp_path / "met")], runtime(kind, shards=2)))
    assert found[0] not in (0, os.getpid())
    assert (tmp_path / "met").exists()


@pytest.fixture
def begun(workplace, small):
    """A campaign whose first phase has left a model, fresh from its seed, and a pool's state."""

    def made(**overrides):
        campaign = prepare(small(**overrides))
        first = campaign.folder.phase(0)
        write_start(campaign.pool, first.pool)
        with atomic_write(first.model) as temporary:
            temporary.write_bytes(save(build_model(campaign.plan.spec.model).state_dict()))
        return campaign

    return made


def on(campaign, kind, *, shards):
    asked = campaign.config.runtime.model_copy(
        update={"task_runner": TaskRunnerKind(kind), "shards": shards}
    )
    return replace(campaign, config=campaign.config.model_copy(update={"runtime": asked}))


def scores_of(campaign, kind, *, shards):
    there = on(campaign, kind, shards=shards)
    phase = there.plan.phases[1]
    scoring = _scoring(there, phase, clipped=False, rng=RepeatableBits(3))
    return list(_scored(there, phase, scoring))


def same(one, other):
    assert len(one) == len(other)
    for (rows, scores), (other_rows, other_scores) in zip(one, other, strict=True):
        assert np.array_equal(rows, other_rows)
        assert scores.tobytes() == other_scores.tobytes()
    return True


def small_batches(monkeypatch, rows=128):
    """Several batches in a small pool."""
    import dpal.data.file_shards
    import dpal.data.parquet
    import dpal.data.readers

    monkeypatch.setattr(dpal.data.parquet, "BATCH_ROWS", rows)
    monkeypatch.setattr(dpal.data.readers, "BATCH_ROWS", rows)
    monkeypatch.setattr(dpal.data.file_shards, "BATCH_ROWS", rows)
    monkeypatch.setattr(dpal.data.file_shards, "MOST_ROWS", 256 * rows)


def test_shards_score_as_the_whole_does(begun, monkeypatch):
    campaign = begun(name="sharded", acquisition="bald")
    small_batches(monkeypatch)
    whole = scores_of(campaign, "local", shards=1)
    assert len(whole) == 5
    assert len(np.unique(np.concatenate([scores for _, scores in whole]))) > 500
    assert same(whole, scores_of(campaign, "local", shards=3))
    # Nor does the selection depend on them, with the same random words.
    drawn = [
        draw_records(there, there.plan.phases[1], rng=RepeatableBits(5)).rows
        for there in (on(campaign, "local", shards=shards) for shards in (1, 3))
    ]
    assert drawn[0].size and np.array_equal(drawn[0], drawn[1])


def test_a_model_that_was_exchanged_is_not_scored_by(begun):
    campaign = begun(name="exchanged", acquisition="entropy")
    asked = _scoring(campaign, campaign.plan.phases[1], clipped=False, rng=secure())
    model = campaign.folder.phase(0).model
    model.write_bytes(model.read_bytes() + b" ")
    with pytest.raises(DataError, match="is not the model"):
        open_scorer(asked)
    model.unlink()
    with pytest.raises(DataError, match="read here"):
        open_scorer(asked)


def test_the_validation_set_is_scored_where_it_stands_for_the_pool(begun):
    """As an audit has it: a worker must not take the pool instead."""
    campaign = begun(name="audited", acquisition="entropy")
    rehearsed = replace(campaign, pool=campaign.validation)
    asked = _scoring(rehearsed, campaign.plan.phases[1], clipped=False, rng=secure())
    assert open_scorer(asked).pool.paths == (Path("validation.parquet").resolve(),)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "ray"])
@pytest.mark.parametrize("acquisition", ["entropy", "bald"])
def test_a_cluster_scores_as_one_process_does(kind, acquisition, begun, monkeypatch):
    needs(kind)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the flow below is known to workers by its module
    write_blobs(Path("pool.parquet"), 5000, seed=1)  # three shards of whole batches
    campaign = begun(name=f"over-{kind}", acquisition=acquisition)
    whole = scores_of(campaign, "local", shards=1)
    found = []

    @flow
    def over():
        found.extend(scores_of(campaign, kind, shards=3))

    over()
    assert same(whole, found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_whole_campaign_keeps_no_score(kind, workplace, small, orchestrated, prefect_home):
    """Not in Prefect's database, nor in its storage of results."""
    needs(kind)
    config = small(
        name=f"whole-{kind}", acquisition="entropy", runtime__task_runner=kind, runtime__shards=2
    )
    run_campaign(config)
    campaign = prepare(config)
    assert (campaign.folder.phase(2).model).is_file()
    values = np.concatenate([scores for _, scores in scores_of(campaign, "local", shards=1)])
    with get_client(sync_client=True) as client:
        runs = [run for run in client.read_task_runs(limit=200) if "score-shard" in run.name]
        assert runs
        assert all(run.state and run.state.is_completed() for run in runs)
    kept = b"".join(path.read_bytes() for path in prefect_home.rglob("*") if path.is_file())
    assert len(kept) > 1000
    for value in values[:50]:
        assert repr(float(value)).encode() not in kept
        assert np.float64(value).tobytes() not in kept


@task(cache_policy=NO_CACHE, persist_result=False)
def much(part: int) -> np.ndarray:
    return np.full(1 << 19, float(part))  # 4 MiB, two shards' worth of scores


def resident(name):  # of this process alone, in MiB
    status = Path("/proc/self/status").read_text()
    return int(status.split(name + ":")[1].split()[0]) / 2**10


@pytest.mark.slow
@pytest.mark.timing
def test_memory_holds_few_results_however_many_parts_there_are():
    needs("dask")
    found = run_parts(much, range(80), runtime("dask", shards=2))
    assert next(found)[0] == 0
    before, most = resident("VmRSS"), 0.0
    for at, values in enumerate(found, start=1):
        assert values[0] == at
        most = max(most, resident("VmRSS") - before)
    assert at == 79
    assert most < 120  # of 316 MiB that came by; four parts at a time, sent and received
