"""Ballots, records with several labels, and private voting of seconds, for many tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray

from dpal.errors import LedgerMissing
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import PUBLIC, flows_at
from tests.flows.calling import Result, call

LABELS, WIDTH, TEACHERS = 4, 8, 6
NAMES = ("calm", "loud", "short", "long")


def ballots(seed: int, *, queries: int = 20, teachers: int = 9) -> NDArray[np.uint8]:
    """(queries, teachers, LABELS) votes of teachers that mostly agree."""
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, LABELS)) < 0.4
    return (truth ^ (rng.random((queries, teachers, LABELS)) < 0.1)).astype(np.uint8)


def write_ballots(
    path: str | Path,
    votes: NDArray[Any],
    *,
    column: str = "ballot",
    names: Sequence[str] = NAMES,
    teachers: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
) -> str:
    """Writes a row for each query and teacher; classes where votes are (queries, teachers)."""
    asked = list(queries or (f"q-{query:03d}" for query in range(votes.shape[0])))
    who = list(teachers or (f"t{at}" for at in range(votes.shape[1])))
    rows = [(query, at) for query in range(votes.shape[0]) for at in range(len(who))]
    said = [votes[row].tolist() for row in rows]
    table = pa.table(
        {
            "id": [asked[query] for query, _ in rows],
            "teacher": [who[at] for _, at in rows],
            column: said,
        }
    )
    about = {"class_names": json.dumps(list(names))} if names else None
    pq.write_table(table.replace_schema_metadata(about), path)
    return str(path)


def vote(*arguments: str) -> Result:
    """Runs `dpal vote` under a small promise, which is certified in less time."""
    small = () if "--epsilon" in arguments else ("--epsilon", "2")
    return call("vote", *arguments, *small, "--records", "2000")


def write_records(
    path: Path, rows: int, *, seed: int, prefix: str, groups: int | None = None
) -> Path:
    """Writes records whose labels are signs of their features, ids such as v-00007."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    labels = (values[:, :LABELS] > 0.3).astype(np.int8)
    columns: dict[str, Any] = {
        "id": [f"{prefix}-{at:05d}" for at in range(rows)],
        "features": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), WIDTH),
        "label": pa.array(labels.tolist(), pa.list_(pa.int8())),
    }
    if groups is not None:
        columns["patient"] = [f"patient-{at % groups}" for at in range(rows)]
    about = {"class_names": json.dumps(list(NAMES))}
    pq.write_table(pa.table(columns).replace_schema_metadata(about), path)
    return path


def settings(name: str, **sections: Any) -> dict[str, Any]:
    """Private voting of seconds; whole sections may be replaced, or changed by dotted keys."""
    values: dict[str, Any] = {
        "kind": "pate",
        "name": name,
        "data": {"pool": "private.parquet", "validation": "validation.parquet"},
        "validation": dict(PUBLIC),
        "public": {"pool": "public.parquet"},
        "teachers": {"count": TEACHERS, "epochs": 2},
        "voting": {"queries": 30, "blocks": 6, "block_size": 20},
        "privacy": {"epsilon": 8.0, "delta": 1e-4},
        "student": {"epochs": 10},
        "model": {"name": "logistic"},
    }
    for key, value in sections.items():
        section, _, entry = key.partition("__")
        if entry:
            values[section] = {**values.get(section, {}), entry: value}
        else:
            values[section] = value
    return values


def write_settings(name: str, **sections: Any) -> str:
    """The same as YAML in this folder."""
    Path(f"{name}.yaml").write_text(yaml.safe_dump(settings(name, **sections)), encoding="utf-8")
    return f"{name}.yaml"


def write_data(folder: Path, *, groups: int | None = None) -> None:
    """Private, public and validation records, and a pool of another site."""
    write_records(folder / "private.parquet", 240, seed=1, prefix="secret", groups=groups)
    write_records(folder / "public.parquet", 120, seed=2, prefix="open")
    write_records(folder / "validation.parquet", 120, seed=3, prefix="check")
    write_records(folder / "site.parquet", 200, seed=4, prefix="site")


def campaign_settings(name: str, **sections: Any) -> dict[str, Any]:
    """A campaign of seconds that buys its labels from the teachers `votes`."""
    return {
        "name": name,
        "data": {"pool": "site.parquet", "validation": "validation.parquet"},
        "validation": dict(PUBLIC),
        "labeler": {"kind": "teachers", "teachers": "votes"},
        "privacy": {"epsilon": 8.0, "delta": 1e-4, "selection": "visible"},
        "schedule": {"initial": 30, "queries": [15], "batch_size": 15, "epochs_per_phase": 2},
        "strategy": "naive",
        "model": {"name": "logistic"},
        "training": {"optimizer": "sgd", "learning_rate": 0.5, "max_grad_norm": 1.0},
        **sections,
    }


def write_campaign(name: str, **sections: Any) -> str:
    """The same as YAML in this folder."""
    values = campaign_settings(name, **sections)
    Path(f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return f"{name}.yaml"


def entries(account: str) -> list[Entry]:
    """What the ledger holds of an account; nothing where there is no ledger."""
    try:
        store = LedgerStore(Path("artifacts/ledger.sqlite"), create=False)
    except LedgerMissing:
        return []
    try:
        return store.entries(account)
    finally:
        store.close()


def releases(account: str, kind: EntryKind = EntryKind.RESERVE) -> list[str]:
    """Releases that were reserved, or committed, in order."""
    return [one.release for one in entries(account) if one.kind is kind]


def certificate(account: str) -> dict[str, Any]:
    """The certificate of an account."""
    place = Path("artifacts", account, "certificate.json")
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def checked(account: str, *more: str) -> Result:
    """Runs `dpal verify` with the ledger."""
    folder = f"artifacts/{account}"
    return call("verify", folder, "--ledger", folder, "--key", "own", *more)


def mode_of(path: Path) -> int:
    """Who may read a file or folder."""
    return path.stat().st_mode & 0o777


@pytest.fixture(scope="module")
def voted(
    prefect_api: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Result, Result, dict[Path, bytes]]]:
    """Six teachers with spare blocks, and a student; run twice."""
    folder = tmp_path_factory.mktemp("votes")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(folder)
        write_data(folder)
        file = write_settings("votes")
        first = call("run", file)
        assert first.returncode == 0, first
        before = {path: path.read_bytes() for path in files_of(folder)}
        again = call("run", file)
        assert again.returncode == 0, again
        yield folder, first, again, before


def files_of(folder: Path) -> list[Path]:
    """Files of the account, but for locks."""
    found = sorted((folder / "artifacts" / "votes").rglob("*"))
    return [one for one in found if one.is_file() and not one.name.startswith(".")]
