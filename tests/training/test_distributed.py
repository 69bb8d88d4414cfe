"""Two processes train by the law of one.

Coins and noise are drawn anew in every run: false alarms are possible, at the stated rates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dpal.data.process_share import Share
from dpal.errors import DataError, ParameterError, ProcessLost
from dpal.models.build_model import build_model
from dpal.models.normalisation import Normalisation
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Clipping, ClippingKind, Recipe
from dpal.randomness import Words, secure
from dpal.training.clipping import Clipper
from dpal.training.distributed import worker
from dpal.training.distributed import worker_pool as crews
from dpal.training.distributed.messages import copy_to
from dpal.training.distributed.team import Team, place
from dpal.training.distributed.worker_pool import WorkerPool
from dpal.training.optimizers import build_optimizer
from dpal.training.train_phase import train_dp_sgd
from tests.conftest import RepeatableBits
from tests.training.crews import (
    BATCH,
    LOAD,
    RECORDS,
    STILL,
    UNITS,
    Beside,
    Failing,
    Greedy,
    Mislabeling,
    Refusing,
    gradients,
    hire_thread,
    noises,
    phase,
    signals,
)
from tests.training.gradients import gradient_of

SILENT = 1e-6  # noise multiplier: coins and sums show through
ALARM = 1e-7  # chance of a false alarm, per test


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    """This process and a spawned one."""
    with WorkerPool(LOAD, processes=2, scratch=tmp_path_factory.mktemp("crew")) as both:
        yield both


@pytest.fixture
def threads(monkeypatch, tmp_path):
    """Makes crews whose second rank is a thread of this process, where faults can be planted."""
    monkeypatch.setattr(crews, "start_worker", hire_thread)
    monkeypatch.setattr(worker, "_end_with", lambda parent: None)
    opened = []

    def make(load=LOAD) -> WorkerPool:
        opened.append(WorkerPool(load, processes=2, scratch=tmp_path))
        return opened[-1].__enter__()

    yield make
    for one in opened:
        one.close()


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(RECORDS, 8), nn.Tanh(), nn.Linear(8, 2))


@pytest.mark.parametrize("kind", [ClippingKind.FLAT, ClippingKind.ADAPTIVE])
def test_with_everyone_in_every_batch_weights_are_those_of_one_process(crew, kind):
    """Through steps large enough that stale weights or bounds in the helper would show."""
    moving = OptimizerSpec(name="sgd", learning_rate=2.0, momentum=0.0, max_grad_norm=0.1)
    recipe = Recipe(clipping=Clipping(kind=kind, count_noise=1e-5))
    one = phase(6, noise=SILENT, old=1.0, new=1.0)
    models = [network(), network()]
    start = network()
    released = [
        gradients(one, helped, model=model, spec=moving, recipe=recipe)
        for model, helped in zip(models, (None, crew), strict=True)
    ]
    # Sums over C; a step divides them by BATCH.
    assert np.abs(released[0][0] - released[1][0]).max() / BATCH < 1e-6
    alone, together, fresh = (
        nn.utils.parameters_to_vector(model.parameters()).detach() for model in (*models, start)
    )
    assert (alone - fresh).abs().max() > 0.05
    assert (alone - together).abs().max() < 1e-5


def test_an_adaptive_bound_counts_the_records_of_all(crew):
    """All of 64 records are clipped: the count is -32, and half of it would be half the way."""
    recipe = Recipe(clipping=Clipping(kind=ClippingKind.ADAPTIVE, count_noise=1e-5))
    one = phase(1, noise=SILENT, old=1.0, new=1.0)
    one = replace(one, training=replace(one.training, expected_batch_size=2.0 * RECORDS))
    model, bounds = nn.Linear(RECORDS, 2, bias=False), []
    for helped in (None, crew):
        clipper = Clipper(recipe.clipping, max_grad_norm=1e-3)
        train_dp_sgd(model, torch.optim.SGD(model.parameters(), lr=0.0),
                    LOAD(share=helped.share) if helped else UNITS, one, STILL,
                    physical_batch=8, rng=secure(), recipe=recipe, clipper=clipper,
                    crew=helped)  # fmt: skip
        bounds.append(clipper.bound)
    # A share of 1/4 above the quantile 1/2 of nobody: exp(0.2 * (1/2 - 1/4)).
    assert bounds == pytest.approx([1e-3 * np.exp(0.05)] * 2, rel=1e-4)


def coins_are_right(included: np.ndarray, rates: np.ndarray) -> bool:
    """Whether (steps, n) inclusions are independent coins; wrongly denied with chance ALARM."""
    steps, count = included.shape
    for seen, rate in zip(included.sum(axis=0), rates, strict=True):
        if stats.binomtest(int(seen), steps, float(rate)).pvalue < ALARM / (2 * count):
            return False
    first, second = np.triu_indices(count, 1)
    sizes, both = included.sum(axis=0), (included.T @ included)[first, second]
    # Given how often each joined, how often both did is hypergeometric.
    law = stats.hypergeom(steps, sizes[first], sizes[second])
    tails = 2 * np.minimum(law.cdf(both), law.sf(both - 1))
    return bool(tails.min() > ALARM / (2 * first.size))


COINS = phase(300, noise=SILENT, old=0.3, new=0.5)
RATES = np.where(UNITS.cohorts == 1, 0.5, 0.3)


def test_every_record_joins_by_a_coin_of_its_own_whoever_owns_it(crew):
    included = signals(gradients(COINS, crew))
    # A record is in or out, never in twice.
    assert np.abs(included - np.rint(included)).max() < 1e-3
    assert set(np.unique(np.rint(included))) == {0.0, 1.0}
    assert coins_are_right(np.rint(included), RATES)


class SeededCoins:
    """Coins that begin alike in every process; noise, which is many words, is nobody else's."""

    def __init__(self) -> None:
        self.coins, self.noise = RepeatableBits(1), secure()

    def words(self, count: int) -> Words:
        return (self.coins if count <= RECORDS else self.noise).words(count)


def test_equal_streams_on_two_ranks_would_be_seen(threads, monkeypatch):
    """Power of the test above: the published code's workers, had they been seeded alike."""
    monkeypatch.setattr(worker, "secure", SeededCoins)
    monkeypatch.setattr("tests.training.crews.secure", SeededCoins)
    included = np.rint(signals(gradients(replace_steps(COINS, 100), threads())))
    assert np.array_equal(included[:, 0::2], included[:, 1::2])
    assert not coins_are_right(included, RATES)


def test_wrong_rates_would_be_seen():
    chance = np.random.default_rng(0)
    for factor, right in [(1.0, True), (0.7, False)]:
        included = chance.random((COINS.steps, RECORDS)) < factor * RATES
        assert coins_are_right(included.astype(float), RATES) is right


def test_a_record_with_two_owners_would_be_seen(threads, monkeypatch):
    monkeypatch.setattr(Share, "of", lambda share, rows: np.arange(rows.size))
    included = signals(gradients(replace_steps(COINS, 20), threads()))
    assert included.max() > 1.9


def replace_steps(one: Phase, steps: int) -> Phase:
    return replace(one, training=replace(one.training, steps=steps))


NOISY = phase(200, noise=1.0)


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    return gradients(replace_steps(NOISY, 400))


def same_law(alone: np.ndarray, together: np.ndarray) -> bool:
    """Whether releases look alike; wrongly denied with chance ALARM.

    Of every record one projection is looked at in which it contributes C, and one in which
    nobody contributes anything. All are independent, in both laws.
    """
    found = [
        stats.ks_2samp(look(alone).ravel(), look(together).ravel()).pvalue
        for look in (signals, noises)
    ]
    return min(found) > ALARM / 2


@pytest.mark.slow
def test_releases_are_distributed_as_those_of_one_process(crew, alone):
    together = gradients(NOISY, crew)
    assert same_law(alone, together)
    # 12,800 draws: the standard error of a deviation is 1 / sqrt(25,600). 5.4 of them.
    assert abs(noises(together).std() - 1.0) < 5.4 / np.sqrt(2 * noises(together).size)


class NoiseOnEveryRank(Team):
    def add_up(self, vector, *, watch):
        own = 0.5 * np.random.default_rng().normal(size=vector.size)
        return super().add_up(vector + own * (self._group.rank() > 0), watch=watch)


class Mean(Team):
    def add_up(self, vector, *, watch):
        return super().add_up(vector, watch=watch) / 2


class OneRankOnly(Team):
    def add_up(self, vector, *, watch):
        return super().add_up(vector * (self._group.rank() == 0), watch=watch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [NoiseOnEveryRank, Mean, OneRankOnly],
)
def test_another_law_would_be_seen(threads, monkeypatch, alone, planted):
    monkeypatch.setattr(crews, "Team", planted)
    monkeypatch.setattr(worker, "Team", planted)
    assert not same_law(alone, gradients(NOISY, threads()))


@pytest.mark.slow
@pytest.mark.statistical
def test_threads_stand_for_processes(threads, alone):
    """What the planted faults are seen against."""
    assert same_law(alone, gradients(NOISY, threads()))


def test_an_owner_of_nothing_contributes_zeros(threads):
    """Shares are by row: where all odd rows are unlabeled, one of two ranks has no record."""
    only = replace(
        UNITS, inputs=UNITS.inputs[:1], labels=UNITS.labels[:1], cohorts=UNITS.cohorts[:1]
    )
    one = phase(3, noise=SILENT, old=1.0, new=1.0)
    model = nn.Linear(RECORDS, 2, bias=False)
    load = crews.in_memory(only)
    helped = threads(load)
    train_dp_sgd(model, torch.optim.SGD(model.parameters(), lr=0.0), load(share=helped.share), one,
                STILL, physical_batch=8, rng=secure(), crew=helped)  # fmt: skip
    assert gradient_of(model.weight).norm() * BATCH / STILL.max_grad_norm == pytest.approx(
        1, rel=1e-3
    )


def test_records_of_another_share_are_refused(crew):
    with pytest.raises(ParameterError, match="the share"):
        crew.begin(network(), None, UNITS)


def test_a_share_alone_is_refused():
    model, part = network(), LOAD(share=Share(rank=1, processes=2))
    with pytest.raises(ParameterError, match="of 2 processes"):
        train_dp_sgd(
            model, build_optimizer(STILL, model.parameters()), part, COINS, STILL,
            physical_batch=8, rng=secure(),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("load", "error", "words"),
    [
        (Refusing(), DataError, r"^row \[\.\.\.\] has no image"),
        (Failing(), ProcessLost, "process 2 of the 2 .*RuntimeError"),
        (Greedy(), ParameterError, "loaded, not"),
        (Mislabeling(), ProcessLost, r"process 2 of the 2 .* failed \(IndexError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_helper_cannot_do_is_said_in_one_sentence(threads, load, error, words):
    before = torch.get_num_threads()
    helped = threads(load)
    with pytest.raises(error, match=words) as told:
        gradients(COINS, helped)
    assert "somebody" not in str(told.value)
    assert torch.get_num_threads() == before
    with pytest.raises(ParameterError, match="has ended"):
        gradients(COINS, helped)


@pytest.mark.parametrize("name", ["tutorial_cnn", "resnet9", "equivariant_resnet9"])
def test_models_can_be_sent(name):
    gray = Normalisation(mean=(0.5,), std=(0.2,))
    spec = ModelSpec(name=name, input_shape=(1, 28, 28), classes=10, normalisation=gray)
    model, images = build_model(spec), torch.randn(2, 1, 28, 28)
    assert torch.equal(copy_to(model, torch.device("cpu"))(images), model(images))


def test_a_stand_in_ends_with_its_crew(threads):
    helped = threads()
    gradients(replace_steps(COINS, 2), helped)
    (one,) = helped._helpers
    helped.close()
    assert isinstance(one.process, Beside)
    one.process.thread.join(10)
    assert not one.process.thread.is_alive()


@pytest.mark.parametrize(
    ("given", "gpus", "processes", "taken"),
    [
        ("cpu", 0, 2, ["cpu", "cpu"]),
        ("cuda", 1, 2, ["cuda:0", "cuda:0"]),
        ("cuda:1", 2, 3, ["cuda:1", "cuda:1", "cuda:1"]),
        ("cuda", 2, 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, 2, ["cuda:1", "cuda:0"]),
    ],
)
def test_which_device_each_process_takes(monkeypatch, given, gpus, processes, taken):
    """Always by its number: torch lets no process choose a GPU without one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    ranks = [Share(rank=rank, processes=processes) for rank in range(processes)]
    assert [str(place(torch.device(given), rank)) for rank in ranks] == taken
