"""Fixed features under privacy: all labels at once, one linear layer on scattering features.

Batch size, rate, length and clipping norm were chosen on these public sets; that choice is
not accounted for.
"""

from __future__ import annotations

import pytest

from tests.accuracy.harness import configured, measure
from tests.conftest import shared_file

RUNS = 3


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "bar"), [("mnist", 0.986), ("cifar10", 0.60)])
def test_scattering_at_epsilon_3(name, bar, capsys):
    """Mean of three runs with fresh noise, epsilon by PLD at delta 1e-5."""
    files = {
        "data.pool": str(shared_file(f"{name}-train.parquet")),
        "data.validation": str(shared_file(f"{name}-test.parquet")),
    }
    found = measure(configured(f"{name}-scattering", **files), runs=RUNS)
    with capsys.disabled():
        print(f"\n{name}: {found}")
    assert found.mean >= bar
    assert (found.epsilon <= 3, found.delta) == (True, 1e-5)
