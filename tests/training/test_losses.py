from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.losses import per_record_loss, probabilities_of
from tests.training.gradients import flat_gradient

SINGLE, MULTI = per_record_loss(Task.SINGLE_LABEL), per_record_loss(Task.MULTI_LABEL)

logits = st.lists(st.floats(-30, 30), min_size=1, max_size=6)


@given(logits, st.data())
def test_losses_are_what_their_definitions_say(row, data):
    """By probabilities in plain Python, where these are far from rounding to 0 or 1."""
    bits = data.draw(st.lists(st.integers(0, 1), min_size=len(row), max_size=len(row)))
    odds = torch.tensor([row], dtype=torch.float64)
    terms = [
        -math.log(1 / (1 + math.exp(-z if bit else z))) for z, bit in zip(row, bits, strict=True)
    ]
    several = MULTI(odds, torch.tensor([bits], dtype=torch.int8))
    assert several.shape == (1,)
    assert several.item() == pytest.approx(sum(terms) / len(row), rel=1e-9, abs=1e-9)
    number = data.draw(st.integers(0, len(row) - 1))
    expected = math.log(sum(math.exp(z - row[number]) for z in row))
    assert SINGLE(odds, torch.tensor([number])).item() == pytest.approx(
        expected, rel=1e-9, abs=1e-9
    )


def gradient_of(loss, rows, targets):
    odds = torch.tensor(rows, requires_grad=True)
    losses = loss(odds, targets)
    losses.sum().backward()
    assert odds.grad is not None
    return losses.tolist(), odds.grad.tolist()


def test_logits_of_ten_thousand_are_no_trouble():
    """A sure model that is right pays nothing, and one that is wrong 1e4, in float32."""
    losses, grads = gradient_of(
        MULTI, [[1e4, -1e4], [1e4, 1e4]], torch.tensor([[1, 0], [0, 1]], dtype=torch.int8)
    )
    assert losses == [0.0, 5e3]
    assert grads == [[0.0, 0.0], [0.5, 0.0]]
    losses, grads = gradient_of(SINGLE, [[1e4, -1e4], [-1e4, 1e4]], torch.tensor([0, 0]))
    assert losses == [0.0, 2e4]
    assert grads == [[0.0, 0.0], [-1.0, 1.0]]


@pytest.mark.parametrize("loss", [SINGLE, MULTI])
def test_a_broken_record_breaks_its_own_loss_alone(loss):
    targets = torch.tensor([0, 1, 0]) if loss is SINGLE else torch.ones(3, 2, dtype=torch.int8)
    rows = [[1.0, 2.0], [math.nan, 0.0], [math.inf, 1.0]]
    losses, grads = gradient_of(loss, rows, targets)
    alone, own = gradient_of(loss, rows[:1], targets[:1])
    assert losses[0] == alone[0]
    assert grads[0] == own[0]
    assert math.isnan(losses[1])


def test_an_empty_batch_has_no_losses():
    assert MULTI(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int8)).shape == (0,)
    assert SINGLE(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_more_labels_do_not_lengthen_a_records_gradient():
    """The reason for the mean: one clipping norm serves few labels and many."""

    def length(labels: int) -> float:
        model = build_model(ModelSpec(name="logistic", input_shape=(20,), classes=labels,
                                      task=Task.MULTI_LABEL))  # fmt: skip
        for one in model.parameters():
            torch.nn.init.zeros_(one)
        record = torch.ones(1, 20)
        MULTI(model(record), torch.ones(1, labels, dtype=torch.int8)).sum().backward()
        return float(flat_gradient(model).norm())

    # Each label's gradient is (s - 1) x / labels: their length falls with the root of labels.
    assert length(100) == pytest.approx(length(4) / 5, rel=1e-5)


def test_probabilities_belong_to_the_task():
    odds = torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64)
    assert probabilities_of(Task.SINGLE_LABEL)(odds).tolist() == [pytest.approx([0.25, 0.75])]
    assert probabilities_of(Task.MULTI_LABEL)(odds).tolist() == [pytest.approx([0.5, 0.75])]


def test_a_label_that_is_not_known_is_not_learned():
    """Loss and gradient are those of a model that has only the labels that are known."""
    rows = [[0.3, -2.0, 1e4], [1.5, 0.2, -0.7]]
    losses, grads = gradient_of(MULTI, rows, torch.tensor([[1, 0, -1], [-1, -1, -1]]))
    fewer, fewer_grads = gradient_of(MULTI, [rows[0][:2]], torch.tensor([[1, 0]]))
    assert losses == [pytest.approx(fewer[0]), 0.0]
    assert grads[0] == [*map(pytest.approx, fewer_grads[0]), 0.0]
    assert grads[1] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("classes", [2, 10, 300])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_softmax_is_that_of_torch(classes, kind):
    generator = torch.Generator().manual_seed(0)
    rows = 100 * torch.randn(2, 64, classes, generator=generator).to(kind)
    rows[0, 0] += 1e30  # nothing overflows
    rows[0, 1, 0] = -torch.inf
    rows[0, 2, 0], rows[0, 3] = torch.inf, -torch.inf  # no probabilities, there as here
    rows[0, 4, 0] = torch.nan
    found = probabilities_of(Task.SINGLE_LABEL)(rows)
    assert found.dtype == kind
    torch.testing.assert_close(
        found, torch.softmax(rows, dim=-1), rtol=0, atol=4 * torch.finfo(kind).eps, equal_nan=True
    )
