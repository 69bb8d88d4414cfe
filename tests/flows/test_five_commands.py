"""From a file to predictions in five commands, with what `dpal init` writes and no edit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from tests.flows.calling import call

SETS = {"breast cancer": load_breast_cancer, "iris": load_iris, "digits": load_digits}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_small_real_tables_in_five_commands(tmp_path, monkeypatch, orchestrated, name):
    """Tables of 569, 150 and 1,797 records whose columns differ in scale up to 100,000-fold.

    Reached in trials: 98.6, 97.4 and 93.7 %; most frequent are 62, 36 and 12 %. Of 33 records or
    more, what is right 94 times in 100 is right less than 73 times in one run of 20,000.
    """
    monkeypatch.chdir(tmp_path)
    table = SETS[name](as_frame=True).frame
    new = np.random.default_rng(1).random(len(table)) < 0.25
    table[~new].to_csv("mine.csv", index=False)
    table[new].drop(columns="target").to_csv("new.csv", index=False)
    for command in (
        ["import", "mine.csv", "--to", "pool.parquet", "--split", "0.2"],
        ["init", "mine", "--data", "pool.parquet", "--why-public", "comes with scikit-learn"],
        ["plan", "mine.yaml"],
        ["run", "mine.yaml"],
        ["predict", "artifacts/mine", "new.csv", "--to", "said.parquet"],
    ):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    said = pd.Series(pq.read_table("said.parquet")["class_name"].to_pylist()).astype(int)
    truth = table[new]["target"].reset_index(drop=True)
    assert (said == truth).mean() > 0.73 > truth.value_counts(normalize=True).max() + 0.1
