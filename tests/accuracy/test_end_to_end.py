"""Private training from pixels: all labels at once, mean of three runs with fresh noise.

Batch size, rate, length and clipping norm were chosen on this public set; that choice is
not accounted for.
"""

from __future__ import annotations

import pytest

from tests.accuracy.harness import configured, measure
from tests.conftest import shared_file

RUNS = 3


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "epsilon", "bar"), [("mnist-dp-sgd", 3.0, 0.981), ("mnist-tutorial", 3.2, 0.975)]
)
def test_mnist_end_to_end(name, epsilon, bar, capsys):
    """Epsilon by PLD at delta 1e-5."""
    files = {
        "data.pool": str(shared_file("mnist-train.parquet")),
        "data.validation": str(shared_file("mnist-test.parquet")),
    }
    found = measure(configured(name, **files), runs=RUNS)
    with capsys.disabled():
        print(f"\n{name}: {found}")
    assert found.mean >= bar
    assert (found.epsilon <= epsilon, found.delta) == (True, 1e-5)
