"""A tiny book on made records, in a folder that has its files."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

TINY: dict[str, Any] = {
    "name": "tiny",
    "title": "A tiny book",
    "about": "For tests",
    "public": True,
    "why": "the records are made up",
    "protocol": "Validation records choose, test records judge.",
    "seeds": [0, 1],
    "settings": {
        "model.name": "logistic",
        "training.learning_rate": 1.0,
        "schedule.initial": 90,
        "schedule.queries": [30],
        "schedule.batch_size": 60,
        "schedule.epochs_per_phase": 4,
    },
    "sets": {
        "blobs": {
            "train": "pool.parquet",
            "test": "validation.parquet",
            "pool": 400,
            "validation": 100,
            "judged": 200,
            "is_what": "three blobs",
        }
    },
    "tables": [
        {
            "name": "table-1",
            "title": "Ways",
            "source": "nobody",
            "columns": "set",
            "grid": {
                "ways": {
                    "one phase": {"method": "one_phase"},
                    "random": {"acquisition": "random"},
                    "not private": {"method": "not_private"},
                },
                "set": ["blobs"],
            },
            "claims": [{"says": "x", "at": "y", "row": "not private", "than": "random"}],
            "printed": [{"row": "random", "column": "blobs", "value": 50.0, "at": "z"}],
        }
    ],
}


def tiny(**changes: Any) -> dict[str, Any]:
    """The book with other values at its top."""
    return {**deepcopy(TINY), **changes}


def with_table(**changes: Any) -> dict[str, Any]:
    """The book with another table."""
    book = tiny()
    book["tables"][0] |= changes
    return book
