"""A campaign whose records have several labels, in memory, from plan to figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpal.acquisition.scores import score, score_function
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.campaign_spec import Acquisition
from dpal.planning.certify_campaign import certified_plan
from dpal.randomness import seeded
from dpal.simulation import rehearsal
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from tests.conftest import WIDTH, small_spec

LABELS = 4


def records(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Label j is there where value j is above zero; the other values are noise."""
    values = np.random.default_rng(seed).normal(0, 1, (rows, WIDTH)).astype(np.float32)
    return torch.from_numpy(values), torch.from_numpy((values[:, :LABELS] > 0).astype(np.int8))


DATA = PublicData(*records(600, 1), *records(300, 2))


@pytest.fixture(scope="module")
def plans():
    one = small_spec(strategy="naive", acquisition="entropy", training__learning_rate=5.0)
    spec = replace(one, model=replace(one.model, classes=LABELS, task=Task.MULTI_LABEL))
    methods = (RehearsalMethod.VISIBLE, RehearsalMethod.EXACT)
    return {method: certified_plan(spec_for(method, spec)).plan for method in methods}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "acquisition"),
    [
        (RehearsalMethod.VISIBLE, Acquisition.ENTROPY),
        (RehearsalMethod.EXACT, Acquisition.LEAST_CONFIDENCE),
        (RehearsalMethod.EXACT, Acquisition.BALD),
    ],
)
def test_several_labels_are_bought_and_learnt(plans, method, acquisition, monkeypatch):
    widths: list[float] = []

    def scored(name, guesses, **named):
        assert named["task"] is Task.MULTI_LABEL
        assert guesses.shape[-1] == LABELS
        sums = guesses.sum(axis=-1)
        assert sums.min() < 0.9 < 1.1 < sums.max()  # sigmoids: they need not add up to 1
        values = score(name, guesses, **named)
        widths.append(values.max())
        return values

    monkeypatch.setattr(rehearsal, "score", scored)
    phases = rehearse(plans[method], DATA, method, acquisition=acquisition, physical_batch=64)
    assert [phase.labels for phase in phases] == [100, 140, 180]
    # Fair coins have 1/2 in both; twenty runs gave 0.886 to 0.939 and 0.965 to 0.991.
    assert phases[-1].figures["micro_f1"] > 0.8
    assert phases[-1].figures["macro_auc"] > 0.9
    assert len(widths) == 2
    assert max(widths) <= score_function(acquisition, task=Task.MULTI_LABEL).full_width(LABELS)


def test_there_is_no_margin_between_labels(plans):
    exact, margin = RehearsalMethod.EXACT, Acquisition.MARGIN
    with pytest.raises(ParameterError, match=r"margin .*multi_label"):
        rehearse(plans[exact], DATA, exact, acquisition=margin, physical_batch=64)


def test_labels_have_no_long_tail():
    with pytest.raises(ParameterError, match="leave --long-tail out"):
        DATA.long_tailed(0.5, rng=seeded(1, "tail"))
