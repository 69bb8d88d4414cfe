"""The chart of what labels, and what a last phase without any, brought."""

from __future__ import annotations

from typing import Any

import pytest

from dpal.reports.campaign_charts import learning_chart

BOUGHT = [(700, 0.45, 2.3), (1000, 0.6, 4.7), (1300, 0.8, 6.8)]


def phases(*points: tuple[int, float, float]) -> list[dict[str, Any]]:
    return [
        {"labels": labels, "validation_accuracy": accuracy, "campaign_epsilon": epsilon}
        for labels, accuracy, epsilon in points
    ]


@pytest.mark.parametrize("key", ["labels", "campaign_epsilon"])
def test_labels_that_were_bought_are_one_line(key):
    (line,) = learning_chart(phases(*BOUGHT), key).lines
    assert [accuracy for _, accuracy in line.points] == [0.45, 0.6, 0.8]
    assert line.labels == ("45.0", "60.0", "80.0")


@pytest.mark.parametrize("key", ["labels", "campaign_epsilon"])
def test_a_phase_that_bought_none_is_a_line_of_its_own(key):
    bought, trained = learning_chart(phases(*BOUGHT, (1300, 0.85, 8.0)), key).lines
    assert [accuracy for _, accuracy in bought.points] == [0.45, 0.6, 0.8]
    # From where labels had come to, so that the gain is seen; each value is written once.
    assert [accuracy for _, accuracy in trained.points] == [0.8, 0.85]
    assert trained.labels == ("", "85.0")
    assert bought.style != trained.style
