"""The benchmark of orchestration, run once: that it measures, and what is promised."""

from __future__ import annotations

import pytest

from tests.benchmarks.orchestration import SAMPLE, measure, show


@pytest.mark.slow
def test_what_orchestration_adds_to_the_sample_campaign(capsys):
    # CPU seconds: other tests may share the cores.
    found = measure(SAMPLE, rounds=1)
    show(found, file=SAMPLE)
    assert "between tasks" in capsys.readouterr().out
    alone, whole, between = found["alone"][0], found["whole"][0], found["between"][0]
    assert between["tasks"] >= 30
    assert whole["cpu"] > alone["cpu"] > 5
    assert between["cpu_between"] < 0.05
