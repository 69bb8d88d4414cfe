"""Who asks the sites of the demo and retrains: settings, records, and what was charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dpal.runs.sites_demo_files import Demo, _read, questions_of
from tests.conftest import ROOT

PUBLIC = "published digits"
OWN, TESTED = 40, 400  # records


def retraining_values(**changes: Any) -> dict[str, Any]:
    """Settings of a retraining, of files that need not be there."""
    files = ("vote", "key_folder", "queries", "answers", "records")
    return {"name": "bought", "querier": "ministry", **{one: one for one in files}, **changes}


def write_retraining_settings(demo: Demo, **changes: Any) -> Path:
    """Settings beside those of who asks in a demo, with records of its own and test records."""
    place = demo.querier.parent
    features, digits = _read(ROOT / "data" / "digits-validation.parquet", OWN + TESTED)
    for name, rows in (("own", slice(OWN)), ("test", slice(OWN, None))):
        write_records(place / f"{name}.parquet", name, features[rows], questions_of(digits[rows]))
    values = {
        "name": "bought", "vote": "../vote.yaml", "key_folder": "keys", "querier": "ministry",
        "queries": "queries.parquet", "answers": "answers.parquet", "records": "own.parquet",
        "test": "test.parquet", "why_public": PUBLIC, "why_own_public": PUBLIC,
        "runtime": {"artifacts": "artifacts"},
        **changes,
    }  # fmt: skip
    file = place / "retrain.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def write_records(path: Path, prefix: str, features: np.ndarray, labels: np.ndarray) -> None:
    ids = [f"{prefix}-{number}" for number in range(len(features))]
    pq.write_table(pa.table({"id": ids, "features": list(features), "labels": list(labels)}), path)
