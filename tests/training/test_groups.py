"""Groups: a person's records are averaged, clipped once, and sampled by one coin."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import TRAINING, Charge, PhaseExposure, Release
from dpal.data.labeled_records import LabeledSet
from dpal.data.process_share import Share
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.architectures import ARCHITECTURES
from dpal.planning.campaign_plan import TrainingPhase
from dpal.planning.training_recipe import Augmentation, Clipping, ClippingKind, Recipe
from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.training.backend_names import Backend
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.losses import per_record_loss
from dpal.training.per_record.backend import stretches_by_size
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.physical_batches import group_chunks
from dpal.training.poisson_batches import GroupBatches, group_sizes
from dpal.training.train_phase import train_dp_sgd
from tests.training.crews import STILL, phase
from tests.training.gradients import flat_gradient
from tests.training.per_record.oracle import (
    assert_same_norms,
    assert_same_sums,
    model_gradients,
    normal,
    norms_of,
)
from tests.training.per_record.test_models import HEAVY, build
from tests.variants import quick_and_slow

SIZES = (1, 2)  # of the groups of a model's first records
LONG = (*HEAVY, "wide_resnet16_4")  # its groups are those of resnet9, in more channels


def mean_by_group(gradients, sizes):
    """Gradients (records, *shape) averaged over each group."""
    return [
        torch.stack([part.mean(dim=0) for part in torch.split(each, list(sizes))])
        for each in gradients
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in ARCHITECTURES]
)
def test_every_models_groups_beside_autograd(name, tmp_path):
    """Norms to 1e-5 and clipped sums to 1e-4 of each other, one record after the other."""
    model, inputs = build(name, tmp_path)
    inputs = torch.cat([inputs, inputs + 1 if inputs.is_floating_point() else inputs])[:3]
    targets = torch.tensor([0, 2, 1])
    means = mean_by_group(model_gradients(model, inputs, targets), SIZES)
    norms = norms_of(means)
    bound = float(norms.mean())  # one is clipped, and one is not
    engine = BookKeeping(model, loss=per_record_loss(Task.SINGLE_LABEL), groups=[0] * len(means))
    stretches = stretches_by_size(SIZES)
    found = engine.squared_norms(inputs, targets, copies=stretches)[0].sqrt()
    assert_same_norms(found, norms, name)
    sums = engine.weighted_sum(
        inputs, targets, real=2, copies=stretches,
        weigh=lambda squared: (bound / squared.sqrt()).clamp(max=1.0),
    )  # fmt: skip
    weights = (bound / norms).clamp(max=1.0)
    assert_same_sums(sums, [torch.tensordot(weights, mean, 1) for mean in means])


def network(seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    ).double()


def clipped_sum(model, inputs, targets, sizes, *, backend=Backend.BOOK_KEEPING, norm=0.2,
                recipe=None, physical=64):  # fmt: skip
    gradient = PrivateGradient(
        model, max_grad_norm=norm, noise_multiplier=1.0, expected_batch_size=4.0,
        physical_batch=physical, rng=secure(), recipe=recipe, backend=backend,
    )  # fmt: skip
    try:
        return gradient.clipped_sum(inputs, targets, sizes)
    finally:
        gradient.close()


def expected_sum(model, inputs, targets, sizes, *, norm=0.2):
    """By torch.func on each record, then averages, then clipping."""
    named = {name: p.detach().double() for name, p in model.named_parameters()}

    def loss(parameters, record, target):
        logits = torch.func.functional_call(model, parameters, (record[None],))
        return nn.functional.cross_entropy(logits, target[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(named, inputs, targets)
    flat = torch.cat([each[name].reshape(len(inputs), -1) for name in named], dim=1)
    means = torch.stack([part.mean(dim=0) for part in torch.split(flat, sizes.tolist())])
    weights = (norm / means.norm(dim=1)).clamp(max=1.0)
    assert weights.min() < 1  # something is clipped
    return (weights @ means).numpy(), means


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("physical", [64, 5, 1])
@pytest.mark.parametrize("sizes", [(1, 1, 2, 2, 3), (3, 1, 2, 1, 2), (9,), (1,) * 9])
def test_sums_of_groups_are_those_of_torch_func(backend, physical, sizes):
    model, sizes = network(), np.array(sizes)
    inputs, targets = normal(9, 1, 4, 4, seed=1).double(), torch.arange(9) % 3
    expected, means = expected_sum(model, inputs, targets, sizes, norm=0.9)
    found = clipped_sum(model, inputs, targets, sizes, backend=backend, norm=0.9, physical=physical)
    # Clipping aims below the norm by 1e-4; nothing else may be off by more than 1e-5.
    slack = 1e-4 * min(0.9, float(means.norm(dim=1).max())) * len(sizes)
    assert np.linalg.norm(found - expected) <= slack + 1e-5 * np.linalg.norm(expected)


def test_without_clipping_nothing_but_rounding_is_left():
    model, sizes = network(), np.array([1, 3, 5])
    inputs, targets = normal(9, 1, 4, 4, seed=1).double(), torch.arange(9) % 3
    _, means = expected_sum(model, inputs, targets, sizes, norm=0.2)
    found = clipped_sum(model, inputs, targets, sizes, norm=1e3)
    total = means.sum(dim=0).numpy()
    assert np.linalg.norm(found - total) <= 1e-5 * np.linalg.norm(total)


@pytest.mark.parametrize("backend", Backend)
def test_a_group_with_a_broken_record_contributes_nothing(backend):
    model = network()
    inputs, targets = normal(5, 1, 4, 4, seed=1).double(), torch.arange(5) % 3
    inputs[3] = math.nan
    sizes = np.array([1, 2, 2])
    found = clipped_sum(model, inputs, targets, sizes, backend=backend)
    without = clipped_sum(model, inputs[:3], targets[:3], sizes[:2], backend=backend)
    assert np.isfinite(found).all()
    assert np.allclose(found, without, rtol=1e-6, atol=1e-9)


RECIPES = {
    "flat": Recipe(),
    "views": Recipe(augmentation=Augmentation(multiplicity=3, flip=True, shift=1)),
    "per layer": Recipe(clipping=Clipping(kind=ClippingKind.PER_LAYER)),
    "adaptive": Recipe(clipping=Clipping(kind=ClippingKind.ADAPTIVE, count_noise=10.0)),
}


@pytest.mark.parametrize(
    ("backend", "name"),
    quick_and_slow(
        [(Backend.FUNCTIONAL, "flat")]
        + [(Backend.BOOK_KEEPING, name) for name in ("views", "adaptive")],
        product(Backend, RECIPES),
    ),
)
def test_replacing_a_whole_person_moves_the_sum_by_at_most_c(backend, name):
    """Blanking moves it by C at most, and any other content by 2 C, however large it is."""
    model, bound, sizes, recipe = network(), 0.3, np.array([1, 2, 4]), RECIPES[name]
    inputs, targets = normal(7, 1, 4, 4, seed=1).double(), torch.arange(7) % 3
    take = partial(clipped_sum, model, backend=backend, norm=bound, recipe=recipe)
    for person, rows in ((0, slice(0, 1)), (1, slice(1, 3)), (2, slice(3, 7))):
        others = np.r_[0:7][[not rows.start <= row < rows.stop for row in range(7)]]
        for size in (1e-3, 1.0, 1e3):
            torch.manual_seed(5)
            changed = inputs.clone()
            changed[rows] = size * normal(rows.stop - rows.start, 1, 4, 4, seed=2).double()
            alone = take(changed[rows], targets[rows], sizes[[person]])
            assert np.linalg.norm(alone) <= bound  # never above C
            if recipe.augmentation.changes_records:
                continue  # views are drawn anew in every call
            here, there = (take(all_of, targets, sizes) for all_of in (inputs, changed))
            blank = take(changed[others], targets[others], np.delete(sizes, person))
            assert np.linalg.norm(there - blank) <= bound * (1 + 1e-6)
            assert np.linalg.norm(there - here) <= 2 * bound * (1 + 1e-6)


def test_what_is_clipped_is_the_person_and_not_the_record():
    """Forty records of one person together weigh as one of another's."""
    model = network()
    one = normal(1, 1, 4, 4, seed=1).double()
    many = one.repeat(40, 1, 1, 1)
    labels = torch.zeros(41, dtype=torch.long)
    alone = clipped_sum(model, one, labels[:1], np.array([1]), norm=0.01)
    found = clipped_sum(model, many, labels[:40], np.array([40]), norm=0.01)
    assert np.linalg.norm(found - alone) <= 1e-5 * np.linalg.norm(alone)
    both = clipped_sum(model, torch.cat([one, many]), labels, np.array([1, 40]), norm=0.01)
    assert np.linalg.norm(both - 2 * alone) <= 2e-5 * np.linalg.norm(alone)


def test_sizes_that_are_not_those_of_the_batch_are_refused():
    inputs, targets = normal(3, 1, 4, 4, seed=1).double(), torch.zeros(3, dtype=torch.long)
    for wrong in ([1, 1], [1, 1, 1, 1], [0, 3], [4, -1]):
        with pytest.raises(ParameterError):
            clipped_sum(network(), inputs, targets, np.array(wrong))


def test_no_group_is_broken_up():
    inputs = torch.arange(12.0)[:, None]
    parts = list(group_chunks(inputs, [1, 2, 4, 3, 2], physical_batch=4))
    assert [(rows.start, rows.stop, members) for rows, _, members in parts] == [
        (0, 3, [1, 2]), (3, 7, [4]), (7, 10, [3]), (10, 12, [2]),
    ]  # fmt: skip
    assert all(len(chunk) == 4 for _, chunk, _ in parts)
    (only,) = group_chunks(inputs[:5], [5], physical_batch=4)
    assert (only[0], len(only[1]), only[2]) == (slice(0, 5), 8, [5])
    assert list(group_chunks(inputs[:0], [], physical_batch=4)) == []


def part(steps: int, *, old=0.5, new=0.5) -> TrainingPhase:
    return TrainingPhase(
        steps=steps, noise_multiplier=1.0, sample_rate_old=old, sample_rate_new=new,
        expected_batch_size=4.0,
    )  # fmt: skip


OWNERS = np.array([9, 2, 2, 9, 5, 2])  # groups 2 (rows 1, 2, 5), 5 (row 4) and 9 (rows 0, 3)
COHORTS = np.array([0, 1, 1, 0, 1, 1], dtype=np.int16)


def batches(steps, *, most, old=0.5, new=0.5):
    return GroupBatches.of_part(part(steps, old=old, new=new), 1, COHORTS, OWNERS, most=most)


def test_a_group_joins_by_one_coin_and_with_most_of_its_records(bits):
    drawn = list(batches(6000, most=2).draw(rng=bits))
    groups = [set(OWNERS[rows]) for rows in drawn]
    for group, size in ((2, 2), (5, 1), (9, 2)):
        assert {int((OWNERS[rows] == group).sum()) for rows in drawn} == {0, size}
        joined = np.mean([group in there for there in groups])
        assert joined == pytest.approx(0.5, abs=0.04)  # 6 standard deviations: 1e-9
    together = np.mean([{2, 5, 9} <= there for there in groups])
    assert together == pytest.approx(1 / 8, abs=0.026)
    # Each record of the large group as often as the others: 2 of 3, in half of the steps.
    often = np.bincount(np.concatenate(drawn), minlength=6) / 6000
    assert often[[1, 2, 5]] == pytest.approx([1 / 3] * 3, abs=0.037)


def test_old_and_new_groups_have_rates_of_their_own(bits):
    (rows,) = batches(1, most=5, old=1.0, new=0.0).draw(rng=bits)
    assert sorted(rows) == [0, 3]
    (rows,) = batches(1, most=5, old=0.0, new=1.0).draw(rng=bits)
    assert rows[0] == 4  # the smallest group first, each side by side
    assert sorted(rows[1:]) == [1, 2, 5]
    assert group_sizes(OWNERS[rows]).tolist() == [1, 3]


def test_batches_of_nobody(bits):
    empty = np.empty(0, dtype=np.int64)
    nobody = GroupBatches.of_part(part(3), 1, empty.astype(np.int16), empty, most=2)
    assert [rows.size for rows in nobody.draw(rng=bits)] == [0, 0, 0]
    assert group_sizes(empty).size == 0


def test_a_group_with_two_histories_is_refused():
    torn = COHORTS.copy()
    torn[3] = 1
    with pytest.raises(ParameterError):
        GroupBatches.of_part(part(1), 1, torn, OWNERS, most=2)
    factors = np.array([1, 1, 0.5, 1, 1, 1])
    with pytest.raises(ParameterError):
        GroupBatches.of_part(part(1), 1, COHORTS, OWNERS, most=2, participation=factors)


def hockey_stick(one, other, epsilon: float, deviation: float) -> float:
    """Of two mixtures of normal laws on the line, each {mean: chance}, on a fine grid."""
    grid = np.linspace(-12 * deviation - 4, 12 * deviation + 4, 40001)
    density = [
        sum(chance * stats.norm.pdf(grid, mean, deviation) for mean, chance in law.items())
        for law in (one, other)
    ]
    gap = np.maximum(density[0] - math.exp(epsilon) * density[1], 0.0)
    return float(np.sum(gap) * (grid[1] - grid[0]))


def outcomes(pool, rate: float, most: int) -> dict[float, float]:
    """The law of a step's clipped sum, C = 1: all coins of all persons, all choices of records.

    A person is a tuple of numbers, the gradients of its records; None is a blank record.
    """
    law: dict[float, float] = {0.0: 1.0}
    for person in pool:
        count = min(most, len(person))
        chosen = [c for c in product(range(len(person)), repeat=count) if len(set(c)) == count]
        after: dict[float, float] = {}
        for total, chance in law.items():
            after[total] = after.get(total, 0.0) + chance * (1 - rate)
            for rows in chosen:
                mean = sum(person[row] or 0.0 for row in rows) / count
                step = total + min(1.0, max(-1.0, mean))
                after[step] = after.get(step, 0.0) + chance * rate / len(chosen)
        law = after
    return law


def test_exhaustively_no_pool_of_three_persons_loses_more_than_is_charged():
    """Every content of 1 to 3 records a person, every coin, against what the accountant says."""
    rate, noise, delta, most = 0.4, 0.8, 1e-3, 2
    exposure = PhaseExposure(steps=1, sample_rate=rate, noise_multiplier=noise)
    charged = Release(
        name="step", kind=TRAINING, phase=0, charges=(Charge(cohorts=("0",), event=exposure),)
    )
    epsilon = campaign_epsilon([charged], PrivacyTarget(epsilon=8.0, delta=delta))
    values = (-3.0, 0.25, 3.0)
    others = ((0.5,), (3.0, -3.0, 0.25))
    blank = {size: (None,) * size for size in (1, 2, 3)}
    worst = 0.0
    for size in (1, 2, 3):
        without = outcomes([blank[size], *others], rate, most)
        for person in product(values, repeat=size):
            with_person = outcomes([person, *others], rate, most)
            for pair in ((with_person, without), (without, with_person)):
                worst = max(worst, hockey_stick(*pair, epsilon, noise))
    assert worst <= delta * (1 + 1e-6)
    # The power of it: clipping records and adding them up would be seen.
    alone = [(3.0, 3.0)]
    doubled = {0.0: 1 - rate, 2.0: rate}
    assert hockey_stick(doubled, {0.0: 1.0}, epsilon, noise) > 5 * delta
    # And it is tight: a lone person at the clipping norm loses what is charged.
    pair = outcomes(alone, rate, most), outcomes([blank[2]], rate, most)
    assert max(hockey_stick(*pair, epsilon, noise), hockey_stick(*pair[::-1], epsilon, noise)) > (
        0.95 * delta
    )


# Person i owns records 2 i and 2 i + 1, both the i-th unit vector: as in `crews`, with pairs.
PEOPLE = 32
PAIRS = LabeledSet(
    inputs=torch.eye(PEOPLE).repeat_interleave(2, dim=0),
    labels=torch.zeros(2 * PEOPLE, dtype=torch.int64),
    cohorts=np.zeros(2 * PEOPLE, dtype=np.int16),
    owners=np.repeat(np.arange(PEOPLE), 2),
)


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    """This process and a spawned one."""
    load = in_memory(PAIRS)
    with WorkerPool(load, processes=2, scratch=tmp_path_factory.mktemp("crew")) as both:
        yield both


def released(crew: WorkerPool | None, steps: int, *, most: int, noise: float = 1e-6) -> np.ndarray:
    """(steps, PEOPLE): how often the mean of a person's records is in the sum, over C."""
    model = nn.Linear(PEOPLE, 2, bias=False)
    nn.init.zeros_(model.weight)
    seen = []
    whole = phase(steps, noise=noise)
    train_dp_sgd(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-30),
        PAIRS if crew is None else in_memory(PAIRS)(share=crew.share),
        replace(whole, training=replace(whole.training, sample_rate_old=0.5)),
        STILL,
        physical_batch=16,
        rng=secure(),
        crew=crew,
        group_records=most,
        on_step=lambda _: seen.append(flat_gradient(model).double().numpy()),
    )
    found = np.stack(seen).reshape(steps, 2, PEOPLE) * whole.training.expected_batch_size
    return (found[:, 1] - found[:, 0]) / np.sqrt(2) / STILL.max_grad_norm


@pytest.mark.parametrize(("most", "processes"), quick_and_slow([(2, 2)], product([1, 2], [1, 2])))
def test_persons_join_whole_in_one_process_and_in_two(processes, most, crew):
    joined = released(crew if processes == 2 else None, 60, most=most)
    ones = joined > 0.5
    # A person is there once or not at all, never by halves, whoever owns its records.
    assert np.abs(joined - ones).max() < 1e-3
    chance = stats.binomtest(int(ones.sum()), ones.size, 0.5).pvalue
    assert chance > 1e-7
    assert ones.any(axis=0).all()  # both processes' persons take part; 32 * 2^-60 of a false alarm


@pytest.mark.slow
def test_processes_share_persons_and_not_records():
    parts = [in_memory(PAIRS)(share=Share(rank=rank, processes=2)) for rank in (0, 1)]
    owners = [set(np.asarray(part.owners).tolist()) for part in parts]
    assert not owners[0] & owners[1]
    assert owners[0] | owners[1] == set(range(PEOPLE))
    assert [len(part.labels) for part in parts] == [PEOPLE, PEOPLE]
