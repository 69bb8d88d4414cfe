"""A step of groups beside torch.func: every model, backend and view, and two processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpal.data.labeled_records import LabeledSet
from dpal.errors import ParameterError
from dpal.models.architectures import ARCHITECTURES
from dpal.planning.training_recipe import Augmentation, Precision, Recipe
from dpal.randomness import secure
from dpal.training import dp_sgd
from dpal.training.augmentation import augment
from dpal.training.backend_names import Backend
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.train_phase import train_dp_sgd
from tests.accuracy.groups import People, made
from tests.accuracy.selections import features
from tests.conftest import shared_file
from tests.training.crews import STILL, phase
from tests.training.gradients import flat_gradient
from tests.training.per_record.oracle import normal
from tests.training.per_record.test_models import HEAVY, SHAPES, build
from tests.variants import quick_and_slow

SIZES = (1, 2, 3)
CLOSE = 1e-5  # relative, of the whole sum
PLAIN = Recipe()
VIEWS = Recipe(augmentation=Augmentation(multiplicity=2, flip=True, shift=1))
SLACK = 1 + Precision.FP32.slack  # clipping aims below the bound by as much


def means_by_torch_func(
    model: nn.Module, inputs: Tensor, targets: Tensor, sizes: Sequence[int]
) -> Tensor:
    """(groups, parameters) gradient of the mean loss of each group's rows."""
    # Those that do not train have no gradient, and functional_call finds them in the model.
    named = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (rows,)), labels)

    gradient, found, first = torch.func.grad(loss), [], 0
    for size in sizes:
        rows = slice(first, first + size)
        each = gradient(named, inputs[rows], targets[rows])
        found.append(torch.cat([each[name].reshape(-1) for name in named]))
        first += size
    return torch.stack(found)


def clipped(means: Tensor, norm: float) -> np.ndarray:
    weights = (norm / (means.norm(dim=1) * SLACK)).clamp(max=1.0)
    assert weights.min() < 1
    return (weights @ means).numpy()


def step(model, inputs, targets, *, norm, backend, recipe, physical):
    gradient = PrivateGradient(
        model, max_grad_norm=norm, noise_multiplier=1.0, expected_batch_size=4.0,
        physical_batch=physical, rng=secure(), recipe=recipe, backend=backend,
    )  # fmt: skip
    try:
        return gradient.clipped_sum(inputs, targets, np.array(SIZES))
    finally:
        gradient.close()


def a_batch(name: str, tmp_path) -> tuple[nn.Module, Tensor, Tensor]:
    """Six records, in float64: at a kink of a rectifier float32 alone would turn a gradient."""
    model, inputs = build(name, tmp_path)
    if inputs.is_floating_point():
        inputs = normal(6, *inputs.shape[1:], seed=7).double()
    else:
        inputs = torch.cat([inputs, inputs.flip(0)])[:6]
    return model.double(), inputs, torch.tensor([0, 2, 1, 1, 0, 2])


WIDE = ("wide_resnet16_4",)  # its groups are those of resnet9, in four times as many channels
# Of those that take longer, one is in the default suite with the backend of our own.
QUICK = {("equivariant_resnet9", False)}
LONG = {"resnet9", "equivariant_resnet9"}


def is_slow(name: str, backend: Backend, views: bool) -> bool:
    """Whether a case is left to the slow tests."""
    if name in LONG:
        return backend is not Backend.BOOK_KEEPING or (name, views) not in QUICK
    return name in HEAVY or name in WIDE


CASES = [
    pytest.param(name, backend, views, id=f"{name}-{backend}-{'views' if views else 'once'}",
                 marks=[pytest.mark.slow] if is_slow(name, backend, views) else [])
    for name in ARCHITECTURES
    for backend in Backend
    if (name, backend) != ("equivariant_resnet9", Backend.OPACUS)  # refused
    for views in (False, True)
    if not views or len(SHAPES.get(name, ())) == 3  # only images have views
    if not views or name not in HEAVY or backend is Backend.BOOK_KEEPING  # in seconds
]  # fmt: skip


# Of attention: said by torch and Opacus, and about speed, or about layers that train nothing.
@pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.parametrize(("name", "backend", "views"), CASES)
def test_the_sum_is_that_of_torch_func(name, backend, views, tmp_path, monkeypatch):
    model, inputs, targets = a_batch(name, tmp_path)
    seen: list[Tensor] = []
    real = augment

    def watched(*given, **named):
        seen.append(real(*given, **named))
        return seen[-1]

    monkeypatch.setattr(dp_sgd, "augment", watched)
    recipe, most = (VIEWS, 12) if views else (PLAIN, 6)
    norm = 0.7 * float(means_by_torch_func(model, inputs, targets, SIZES).norm(dim=1).median())
    found = step(model, inputs, targets, norm=norm, backend=backend, recipe=recipe, physical=most)
    rows = torch.cat(seen) if views else inputs
    copies = len(rows) // len(inputs)
    assert copies == (2 if views else 1)
    sizes = [copies * size for size in SIZES]
    means = means_by_torch_func(model, rows, targets.repeat_interleave(copies), sizes)
    expected = clipped(means, norm)
    assert np.linalg.norm(found - expected) <= CLOSE * np.linalg.norm(expected)


def test_a_model_that_opacus_does_not_know_is_refused(tmp_path):
    model, inputs, targets = a_batch("equivariant_resnet9", tmp_path)
    with pytest.raises(ParameterError) as refused:
        step(model, inputs, targets, norm=1.0, backend=Backend.OPACUS, recipe=PLAIN, physical=6)
    assert "runtime.backend" in str(refused.value)


ROWS = normal(24, 6, seed=3)
FEW = LabeledSet(
    inputs=ROWS,
    labels=torch.arange(24) % 3,
    cohorts=np.zeros(24, dtype=np.int16),
    owners=np.sort(np.concatenate([np.arange(12), np.arange(8), np.arange(4)])),
)


@pytest.mark.parametrize("processes", quick_and_slow([1], [1, 2]))
def test_processes_make_the_same_step_together(processes, tmp_path):
    """Everybody joins, with all records: what leaves is the sum over C, and next to no noise."""
    torch.manual_seed(3)
    model = nn.Linear(6, 3)
    sizes = np.unique(np.asarray(FEW.owners), return_counts=True)[1].tolist()
    means = means_by_torch_func(model.double(), ROWS.double(), FEW.labels, sizes)
    norm = float(means.norm(dim=1).median())
    expected = clipped(means, norm)
    whole = phase(1, noise=1e-9, old=1.0, new=1.0)
    seen: list[np.ndarray] = []

    def train(records: LabeledSet, crew: WorkerPool | None) -> None:
        fresh = nn.Linear(6, 3)
        fresh.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
        train_dp_sgd(
            fresh,
            torch.optim.SGD(fresh.parameters(), lr=1e-30),
            records,
            whole,
            replace(STILL, max_grad_norm=norm),
            physical_batch=5,
            rng=secure(),
            crew=crew,
            group_records=3,
            on_step=lambda _: seen.append(flat_gradient(fresh).double().numpy()),
        )

    if processes == 1:
        train(FEW, None)
    else:
        load = in_memory(FEW)
        with WorkerPool(load, processes=2, scratch=tmp_path) as crew:
            train(load(share=crew.share), crew)
    (found,) = seen
    found = found * whole.training.expected_batch_size
    assert np.linalg.norm(found - expected) <= CLOSE * np.linalg.norm(expected)


def chest_patients() -> People:
    """The first X-rays of the file, of patients with one to many."""
    whole = pq.read_table(shared_file("nih-cxr14-small.parquet"))
    table = whole.filter(pc.is_in(whole["group"], value_set=whole["group"].unique()[:60]))
    persons = np.unique(table["group"].to_pylist(), return_inverse=True)[1]
    labels = torch.tensor(table["label"].to_pylist()).any(dim=1).long()
    parts = np.full(len(labels), "pool")
    return People(
        inputs=features(table, (32, "L")),
        labels=labels,
        persons=persons.astype(np.int64),
        parts=parts,
    )


PEOPLE = {
    "made, independent": lambda: made(alike=0.0),
    "made, alike": lambda: made(alike=0.7),
    "chest": chest_patients,
}


@pytest.mark.parametrize("name", quick_and_slow(["made, alike"], PEOPLE))
def test_a_step_of_people_is_that_of_torch_func_and_one_of_them_moves_it_by_c(name):
    """Persons of 1 to 50 records, all of which take part: each is blanked, and replaced."""
    people = PEOPLE[name]()
    inputs, labels, persons = people.of("pool")
    mine = np.flatnonzero(persons < np.unique(persons)[60 if name != "chest" else -1])
    order = torch.from_numpy(mine[np.argsort(persons[mine], kind="stable")])
    rows, targets = inputs[order].flatten(1).double(), labels[order]
    sizes = np.unique(persons[mine], return_counts=True)[1]
    assert sizes.min() == 1 and sizes.max() > (5 if name == "chest" else 25)
    torch.manual_seed(5)
    model = nn.Linear(rows.shape[1], people.classes).double()
    means = means_by_torch_func(model, rows, targets, sizes.tolist())
    norm = float(means.norm(dim=1).median())
    gradient = PrivateGradient(
        model, max_grad_norm=norm, noise_multiplier=1.0, expected_batch_size=4.0,
        physical_batch=64, rng=secure(),
    )  # fmt: skip
    found = gradient.clipped_sum(rows, targets, sizes)
    expected = clipped(means, norm)
    assert np.linalg.norm(found - expected) <= CLOSE * np.linalg.norm(expected)
    ends = np.cumsum(sizes)
    for person in (0, int(sizes.argmax()), sizes.size - 1):
        her = slice(ends[person] - sizes[person], ends[person])
        others = np.r_[0 : her.start, her.stop : len(rows)]
        blanked = gradient.clipped_sum(rows[others], targets[others], np.delete(sizes, person))
        assert np.linalg.norm(found - blanked) <= norm * (1 + 1e-6)
        for size in (0.0, 1.0, 1e4):
            changed, answers = rows.clone(), targets.clone()
            changed[her] = size * normal(*changed[her].shape, seed=6).double()
            answers[her] = people.classes - 1 - answers[her]
            there = gradient.clipped_sum(changed, answers, sizes)
            assert np.linalg.norm(there - blanked) <= norm * (1 + 1e-6)
            assert np.linalg.norm(there - found) <= 2 * norm * (1 + 1e-6)
    gradient.close()
