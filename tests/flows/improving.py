"""Improvements of a few seconds, and how tests look at what they left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import PUBLIC, flows_at, write_blobs
from tests.flows.calling import Result, call

NEAR = ("near-private/components", "near-private/support")


def settings(name: str, **sections: Any) -> dict:
    """An improvement of a few seconds; whole sections may be replaced."""
    values = {
        "kind": "public",
        "name": name,
        "data": {"pool": "pool.parquet", "validation": "validation.parquet"},
        "validation": dict(PUBLIC),
        "public": {"pool": "public.parquet"},
        "start": {"batch_size": 100, "epochs": 3, "name": "begun"},
        "choice": {"labels": 60, "candidates": 150, "components": 3},
        "privacy": {"epsilon": 4.0, "delta": 1e-4},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"learning_rate": 0.5, "max_grad_norm": 1.0},
        "fine_tuning": {"epochs": 20, "learning_rate": 0.01, "batch_size": 16},
    }
    return {**values, **sections}


def write(name: str, **sections: Any) -> str:
    Path(f"{name}.yaml").write_text(yaml.safe_dump(settings(name, **sections)), encoding="utf-8")
    return f"{name}.yaml"


def entries(campaign: str) -> list:
    store = LedgerStore(Path("artifacts/ledger.sqlite"), create=False)
    try:
        return store.entries(campaign)
    finally:
        store.close()


def released(campaign: str) -> list[str]:
    return [one.release for one in entries(campaign) if one.kind is EntryKind.RESERVE]


def certificate(name: str) -> dict:
    return json.loads(Path(f"artifacts/{name}/certificate.json").read_text(encoding="utf-8"))


def verified(name: str, *more: str) -> Result:
    folder = f"artifacts/{name}"
    model = f"{folder}/phase-0/model.safetensors"
    given = ("--ledger", folder, "--model", model, "--key", "own")
    return call("verify", folder, *given, *more)


@pytest.fixture(scope="module")
def place(
    prefect_api: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, list[Result]]]:
    """A near_private run that trains its start, and a diverse_public one of the same start."""
    folder = tmp_path_factory.mktemp("public")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(folder)
        write_blobs(folder / "pool.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        write_blobs(folder / "public.parquet", 400, seed=3, prefix="p")
        choice = {"method": "near_private", "labels": 60, "candidates": 150, "components": 3}
        start = {"batch_size": 100, "epochs": 3, "name": "begun"}
        near = write("near", choice=choice, start=start)
        done = [call("run", near), call("run", near)]
        # Of the same start, which is there now.
        # Whose files are its own: what is said here is neither read nor kept.
        elsewhere = {"pool": "others.parquet", "validation": "others.parquet"}
        done += [call("run", write("diverse", start={"campaign": "begun"}, data=elsewhere))]
        assert [one.returncode for one in done] == [0] * 3, done
        yield folder, done
