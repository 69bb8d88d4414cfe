"""A student of released answers, with and without the records that have none."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.planning.student_recipe import StudentTraining
from dpal.training.evaluation import probabilities
from dpal.training.label_metrics import label_figures
from dpal.training.plain_training import fine_tune
from dpal.training.semi_supervised import (
    answer_weights,
    answered_records,
    blend,
    label_weights,
    masked_error,
    masked_loss,
    mixing_shares,
    sharpen,
    sharpen_classes,
    student_steps,
    train_student,
)
from tests.conftest import having
from tests.variants import quick_and_slow

WIDTH, NAN = 12, float("nan")
SPEC = ModelSpec(name="mlp", input_shape=(WIDTH,), classes=3, hidden=(32,), task=Task.MULTI_LABEL)
LINEAR = replace(SPEC, name="logistic", hidden=())
SUPERVISED = StudentTraining(
    method="supervised", optimizer="adam", learning_rate=0.01, epochs=20, batch_size=16
)
MIXMATCH = replace(SUPERVISED, method="mixmatch", noise=0.3)


def groups(count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """One cloud of points for each of the eight sets of three labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, 3, generator=draw) < 0.4).float()
    centres = 1.2 * torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(77))
    cloud = (labels @ torch.tensor([1.0, 2, 4])).long()
    return centres[cloud] + torch.randn(count, WIDTH, generator=draw), labels


def trained(spec: StudentTraining, inputs: Tensor, labels: Tensor, **more: Any) -> nn.Module:
    model = build_model(SPEC)
    train_student(model, inputs, labels, spec, **more)
    return model


def weights(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def test_without_gaps_it_is_plain_training() -> None:
    """In the same order, hence the same weights up to rounding."""
    inputs, labels = groups(40, seed=0)
    plain = FineTuning(
        optimizer="adam", learning_rate=0.01, epochs=20, batch_size=16, weight_decay=0.0, shift=0
    )
    model, steps = build_model(SPEC), list[int]()
    fine_tune(model, inputs, labels, plain, task=Task.MULTI_LABEL)
    student = trained(SUPERVISED, inputs, labels, on_step=lambda: steps.append(1))
    torch.testing.assert_close(weights(student), weights(model), rtol=1e-3, atol=1e-4)
    assert len(steps) == student_steps(SUPERVISED, labels) == 60
    assert not student.training


def test_class_numbers_are_learned_too() -> None:
    inputs = 3 * nn.functional.one_hot(torch.arange(60) % 3, WIDTH).float()
    labels, single = (torch.arange(60) % 3).float(), replace(SPEC, task=Task.SINGLE_LABEL)
    labels[30:] = NAN
    students = [build_model(single) for _ in range(2)]
    train_student(students[0], inputs, labels, SUPERVISED, task=Task.SINGLE_LABEL)
    assert torch.equal(students[0](inputs).argmax(dim=1), torch.arange(60) % 3)
    train_student(students[1], inputs[:30], labels[:30].long(), SUPERVISED, task=Task.SINGLE_LABEL)
    assert torch.equal(weights(students[0]), weights(students[1]))


def classes_reached(spec: StudentTraining, *, answers: int) -> float:
    """Mean accuracy on 1000 fresh records of three classes, beside 600 without an answer."""

    def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        classes = torch.randint(3, (count,), generator=draw)
        centres = 2 * nn.functional.one_hot(classes, WIDTH).float()
        return centres + 0.8 * torch.randn(count, WIDTH, generator=draw), classes

    test, truth = drawn(1000, 99)
    found = []
    for seed in range(3):
        inputs, labels = drawn(answers, seed)
        model = build_model(replace(SPEC, task=Task.SINGLE_LABEL, seed=seed))
        train_student(
            model,
            inputs,
            labels.float(),
            replace(spec, epochs=120, batch_size=64, noise=0.3, seed=seed),
            task=Task.SINGLE_LABEL,
            unlabeled=drawn(600, seed + 50)[0],
        )
        scores = probabilities(model, test, physical_batch=500, task=Task.SINGLE_LABEL)
        found.append((scores.argmax(axis=1) == truth.numpy()).mean())
    return float(np.mean(found))


@pytest.mark.slow
def test_records_without_answers_help_with_classes_too() -> None:
    supervised = classes_reached(SUPERVISED, answers=6)
    assert classes_reached(MIXMATCH, answers=6) > supervised + 0.02


def test_classes_are_sharpened_row_by_row() -> None:
    chances = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    powers = chances**2 / (chances**2).sum(dim=1, keepdim=True)
    torch.testing.assert_close(sharpen_classes(chances, 0.5), powers)
    torch.testing.assert_close(sharpen_classes(chances, 1.0), chances)


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_what_is_masked_has_exactly_no_gradient(seed: int, share: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (10 * torch.randn(7, 4, generator=draw)).requires_grad_()
    targets, known = torch.rand(7, 4, generator=draw), torch.rand(7, 4, generator=draw) < share
    loss = masked_loss(logits, targets.where(known, NAN))
    (slope,) = torch.autograd.grad(loss, logits)
    assert (slope[~known] == 0).all()
    # By the definition, answer by answer.
    by_hand = (torch.sigmoid(logits) - targets) / max(1, int(known.sum()))
    torch.testing.assert_close(slope[known], by_hand[known].detach())
    (slope,) = torch.autograd.grad(masked_error(logits, targets.where(known, NAN)), logits)
    assert (slope[~known] == 0).all()
    assert slope.isfinite().all()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_label_without_answers_teaches_nothing(optimizer: str) -> None:
    inputs, labels = groups(40, seed=1)
    labels[:, 1] = NAN
    model = build_model(LINEAR)
    weight = model.get_parameter("1.weight")
    before = weight.detach().clone()
    train_student(model, inputs, labels, replace(SUPERVISED, optimizer=optimizer))
    assert torch.equal(weight[1], before[1])
    assert not torch.equal(weight[0], before[0])


def test_records_without_any_answer_are_left_out() -> None:
    inputs, labels = groups(50, seed=2)
    labels[10:30] = NAN
    kept = answered_records(labels)
    assert kept.sum() == 30
    one = trained(SUPERVISED, inputs, labels)
    other = trained(SUPERVISED, inputs[kept], labels[kept])
    assert torch.equal(weights(one), weights(other))
    # With mixmatch they are what is guessed about: handed over apart, they do the same.
    one = trained(MIXMATCH, inputs, labels)
    other = trained(MIXMATCH, inputs[kept], labels[kept], unlabeled=inputs[~kept])
    assert torch.equal(weights(one), weights(other))


@given(st.floats(0, 1), st.sampled_from([0.1, 0.5, 1.0, 2.0]))
def test_sharpening_is_its_formula(chance: float, temperature: float) -> None:
    yes, no = chance ** (1 / temperature), (1 - chance) ** (1 / temperature)
    found = sharpen(torch.tensor([chance], dtype=torch.float64), temperature).item()
    assert found == pytest.approx(yes / (yes + no), rel=1e-6, abs=1e-12)


def test_limits_of_sharpening() -> None:
    chances = torch.tensor([0.0, 0.2, 0.5, 0.7, 1.0])
    torch.testing.assert_close(sharpen(chances, 1.0), chances)
    assert sharpen(chances, 1e-4).tolist() == [0, 0, 0.5, 1, 1]
    assert sharpen(chances[1:4], 1e4) == pytest.approx([0.5] * 3, abs=1e-4)


@pytest.mark.parametrize("parameter", [0.5, 0.75, 4.0])
def test_shares_of_mixtures_follow_their_law(parameter: float) -> None:
    shares = mixing_shares(4000, parameter, rng=np.random.default_rng(0)).double()
    assert ((shares >= 0.5) & (shares <= 1)).all()

    def law(share: Any) -> Any:
        return 2 * stats.beta.cdf(share, parameter, parameter) - 1

    # False alarm: once in a thousand seeds; the law without the maximum is told apart.
    assert stats.kstest(shares, law).pvalue > 1e-3
    raw = np.random.default_rng(0).beta(parameter, parameter, size=4000)
    assert stats.kstest(raw, law).pvalue < 1e-12


def test_mixtures_have_the_targets_that_both_records_have() -> None:
    """An answer, none, and a guess; the second and third are each other's partners."""
    targets, partner = torch.tensor([[1.0, 0], [NAN, 1], [0.3, 0.5]]), torch.tensor([0, 2, 1])
    mixed = blend(targets, partner, torch.tensor([0.6, 0.75, 0.9]))
    expected = torch.tensor([[1.0, 0], [NAN, 0.875], [NAN, 0.55]])
    torch.testing.assert_close(mixed, expected, equal_nan=True)


def test_unanswered_labels_are_no_target_of_mixtures() -> None:
    """What stands where there is no answer would otherwise reach some weight."""
    inputs, labels = groups(40, seed=3)
    labels[:, 1] = NAN
    model = build_model(LINEAR)
    weight = model.get_parameter("1.weight")
    before = weight.detach().clone()
    # Weight 0 silences the squared error of guesses; answers are mixed with answers and guesses.
    unlabeled, spec = groups(40, seed=4)[0], replace(MIXMATCH, unlabeled_weight=0.0)
    train_student(model, inputs, labels, spec, unlabeled=unlabeled)
    assert torch.equal(weight[1], before[1])
    assert not torch.equal(weight[0], before[0])


def test_without_weight_or_mixing_it_is_supervised() -> None:
    inputs, labels = groups(40, seed=5)
    labels[::3, 0] = NAN
    spec = replace(MIXMATCH, mixup=0.0, unlabeled_weight=0.0, noise=0.0)
    one = weights(trained(spec, inputs, labels, unlabeled=groups(30, seed=6)[0]))
    other = weights(trained(SUPERVISED, inputs, labels))
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def reached(spec: StudentTraining, *, answers: int, gaps: float) -> Any:
    """Mean BAC and AUC on 1000 fresh records, beside 600 without an answer; three seeds."""
    test, truth = groups(1000, seed=99)
    means = []
    for seed in range(3):
        inputs, labels = groups(answers, seed=seed)
        draw = torch.Generator().manual_seed(seed + 100)
        labels[torch.rand(labels.shape, generator=draw) < gaps] = NAN
        model = trained(
            replace(spec, epochs=120, batch_size=64, noise=0.3, seed=seed),
            inputs,
            labels,
            unlabeled=groups(600, seed=seed + 50)[0],
        )
        scores = probabilities(model, test, physical_batch=500, task=Task.MULTI_LABEL)
        found = label_figures(scores, truth.numpy(), np.full(3, 0.5)).averages()
        means.append((found["bac"], found["auc"]))
    return np.mean(means, axis=0)


@pytest.mark.slow
def test_records_without_answers_help() -> None:
    """More than mixing alone does, where the squared error of guesses has no weight."""
    supervised = reached(SUPERVISED, answers=30, gaps=0.0)
    mixed = reached(replace(MIXMATCH, unlabeled_weight=0.0), answers=30, gaps=0.0)
    mixmatch = reached(MIXMATCH, answers=30, gaps=0.0)
    assert (mixmatch > supervised + 0.01).all()
    assert (mixmatch > mixed).all()


@pytest.mark.slow
def test_they_help_where_half_of_the_answers_are_missing() -> None:
    supervised, mixmatch = (reached(one, answers=100, gaps=0.5) for one in (SUPERVISED, MIXMATCH))
    assert (mixmatch > supervised + 0.005).all()


@pytest.mark.parametrize("spec", [SUPERVISED, MIXMATCH])
def test_the_same_settings_give_the_same_student(spec: StudentTraining) -> None:
    inputs, labels = groups(20, seed=7)
    unlabeled = groups(30, seed=8)[0]
    short, students = replace(spec, epochs=3), list[Tensor]()
    for seed in (0, 0, 1):
        model = nn.Sequential(nn.Dropout(0.3), build_model(SPEC))
        torch.rand(1)  # whatever others draw
        state = torch.get_rng_state()
        train_student(model, inputs, labels, replace(short, seed=seed), unlabeled=unlabeled)
        assert torch.equal(torch.get_rng_state(), state)
        students.append(weights(model))
    assert torch.equal(students[0], students[1])
    assert not torch.equal(students[0], students[2])


def test_images_are_shifted() -> None:
    images = torch.randint(0, 255, (24, 1, 16, 16), dtype=torch.uint8)
    labels = (torch.rand(24, 3) > 0.5).float()
    labels[12:] = NAN
    spec = ModelSpec(name="tutorial_cnn", input_shape=(1, 16, 16), classes=3, task=Task.MULTI_LABEL)
    still, moved = build_model(spec), build_model(spec)
    for model, shift in ((still, 0), (moved, 2)):
        train_student(model, images, labels, replace(MIXMATCH, noise=0.0, epochs=2, shift=shift))
    assert not torch.equal(weights(still), weights(moved))


def test_weights_are_by_what_was_answered_and_one_on_average() -> None:
    """Seen red without the missing ones taken out, and without the mean taken to 1."""
    labels = torch.tensor([[0, NAN, 1], [0, 1, 1], [1, 0, NAN], [0, NAN, 1.0]])
    for balance in (0.0, 0.5, 1.0):
        rows = label_weights(labels, balance)
        for row, answers in zip(rows, labels.T, strict=True):
            given = answers[~answers.isnan()].long()
            assert row[given].mean() == pytest.approx(1.0)
            counts = torch.bincount(given, minlength=2) + 1
            rarer = float(counts[0] / counts[1]) ** balance
            assert float(row[1] / row[0]) == pytest.approx(rarer)
    classes = answer_weights(torch.tensor([0, 0, 0, NAN, 2]), 3, 1.0)
    assert classes[1] == 2 * classes[2] == 4 * classes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "method"),
    list(product(Task, ["supervised", "mixmatch"])),
)
def test_rare_answers_count_where_they_are_balanced(method: str, task: Task) -> None:
    """All records look alike: what is learned is how much each answer weighs in all."""
    single = task is Task.SINGLE_LABEL
    yes = (torch.arange(200) % 20 == 0).float()
    labels = yes if single else torch.stack([yes, 1 - yes, yes], dim=1)
    labels[7] = NAN
    spec = replace(LINEAR, classes=2, task=task) if single else LINEAR
    about = replace(
        SUPERVISED, method=method, learning_rate=0.02, epochs=60, unlabeled_weight=0.0, mixup=0.0
    )
    chances = {}
    for balance in (0.0, 1.0):
        model = build_model(spec)
        train_student(model, torch.ones(200, WIDTH), labels, replace(about, balance=balance),
                      task=task)  # fmt: skip
        logits = model(torch.ones(1, WIDTH))[0].detach()
        first = torch.softmax(logits, 0)[1] if single else torch.sigmoid(logits)[0]
        chances[balance] = float(first)
    # A twentieth says yes; balanced, each yes weighs 191/11 of a no: 10 * 191 against 190 * 11.
    assert chances[0.0] == pytest.approx(0.05, abs=0.02)
    assert chances[1.0] == pytest.approx(0.478, abs=0.03)


def test_refusals_say_what_to_do() -> None:
    inputs, labels = groups(20, seed=9)
    one = groups(5, seed=10)[0]
    bad = inputs.clone()
    bad[3, 2] = NAN
    cases: list[tuple[str, StudentTraining, Tensor, Tensor, Tensor | None]] = [
        ("one answer", SUPERVISED, inputs, torch.full((20, 3), NAN), None),
        ("a row for each record", SUPERVISED, inputs[:5], labels, None),
        ("leave these", SUPERVISED, bad, labels, None),
        ("leave these", MIXMATCH, inputs, labels, bad),
        ("zeros and ones", SUPERVISED, inputs, 2 * labels, None),
        ("zeros and ones", SUPERVISED, inputs, labels[:, 0], None),
        ("the others", MIXMATCH, inputs, labels, one[:, :4]),
        ("the others", MIXMATCH, inputs, labels, one.half()),
        ("take supervised", MIXMATCH, inputs, labels, None),
        (r"augmentation\.shift", replace(SUPERVISED, shift=1), inputs, labels, None),
    ]
    for message, spec, records, answers, more in cases:
        model = build_model(SPEC)
        before = weights(model)
        with pytest.raises(ParameterError, match=message):
            train_student(model, records, answers, spec, unlabeled=more)
        assert torch.equal(weights(model), before)
    with pytest.raises(ParameterError, match="one class number"):
        answered_records(torch.tensor([0.5, 1.0]), task=Task.SINGLE_LABEL)


@pytest.mark.parametrize("spec", [SUPERVISED, MIXMATCH])
def test_what_diverges_is_said(spec: StudentTraining) -> None:
    hot = replace(spec, optimizer="sgd", learning_rate=3e38, noise=0.0)
    inputs, labels = groups(40, seed=11)
    model = build_model(LINEAR)
    with pytest.raises(ParameterError, match=r"student.learning_rate 3e\+38"):
        train_student(model, inputs, labels, hot, unlabeled=groups(40, seed=12)[0])


OUT_OF_RANGE: dict[str, Any] = {
    **{"method": "remixmatch", "optimizer": "lamb", "learning_rate": 0.0, "temperature": NAN},
    **dict.fromkeys(("epochs", "views", "batch_size"), 0),
    **dict.fromkeys(("noise", "mixup", "shift", "weight_decay", "unlabeled_weight"), -1e-3),
    "ramp": 1.5,
    "balance": 1.5,
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, check=having(parameter=f"student.{name}")):
        replace(SUPERVISED, **{name: OUT_OF_RANGE[name]})


@pytest.mark.parametrize("task", quick_and_slow([Task.SINGLE_LABEL], Task))
def test_shares_of_votes_teach_what_the_votes_say(task):
    """Noise on shares is as wide as their range; a student of answers would learn a coin."""
    inputs, labels = groups(1500, seed=3)
    if task is Task.SINGLE_LABEL:
        labels = nn.functional.one_hot((labels @ torch.tensor([1.0, 2, 4])).long() % 3, 3).float()
    shares = labels + torch.randn(labels.shape, generator=torch.Generator().manual_seed(8))
    assert float(((shares < 0) | (shares > 1)).float().mean()) > 0.2
    spec = replace(SUPERVISED, epochs=10)
    model = build_model(replace(LINEAR, task=task))
    train_student(model, inputs, shares, spec, task=task, shares=True)
    unseen, truth = groups(1000, seed=4)
    if task is Task.SINGLE_LABEL:
        truth = nn.functional.one_hot((truth @ torch.tensor([1.0, 2, 4])).long() % 3, 3).float()
    logits = model(unseen).detach()
    found = (
        logits.argmax(1) == truth.argmax(1)
        if task is Task.SINGLE_LABEL
        else ((logits > 0).float() == truth)
    )
    taught = build_model(replace(LINEAR, task=task))
    clean = truth.argmax(1).float() if task is Task.SINGLE_LABEL else truth
    train_student(taught, unseen, clean, spec, task=task)
    best = taught(unseen).detach()
    most = (
        best.argmax(1) == truth.argmax(1)
        if task is Task.SINGLE_LABEL
        else ((best > 0).float() == truth)
    )
    assert float(found.float().mean()) > float(most.float().mean()) - 0.06
    assert student_steps(spec, shares, task=task, shares=True) == 10 * 94


def test_methods_that_are_not_trained_so_are_refused():
    inputs, labels = groups(20, seed=1)
    for method, shares in (("least_squares", False), ("least_squares", True), ("mixmatch", True)):
        with pytest.raises(ParameterError):
            trained(replace(SUPERVISED, method=method), inputs, labels, shares=shares)


@pytest.mark.parametrize("wrong", [torch.tensor([0.5, 0.1]), torch.tensor([[0.5, NAN]])])
def test_shares_are_rows_of_finite_numbers(wrong):
    with pytest.raises(ParameterError):
        student_steps(SUPERVISED, wrong, shares=True)
