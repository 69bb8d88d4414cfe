"""Models that are registered already are loaded by the names that they were registered with.

MLflow keeps `served_model.py` as source beside the weights, so what it imports is a promise.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# What the source of models of versions 0.1 and 0.2 imports: module, names. Nothing is ever taken
# off, and a module that moves leaves one under its old name.
IMPORTED = {
    "dpal.data.catalog": ["Content"],
    "dpal.data.readers": ["decode"],
    "dpal.data.texts": ["TextEncoding"],
    "dpal.features.extractors": ["build_extractor"],
    "dpal.features.spec": ["ExtractorKind", "ExtractorSpec"],
    "dpal.labels": ["Task"],
    "dpal.models.registry": ["build_model"],
    "dpal.models.normalisation": ["Normalisation"],
    "dpal.models.spec": ["ModelSpec", "spec_from"],
    "dpal.training.evaluation": ["probabilities"],
    "dpal.training.metrics": ["THRESHOLD"],
    # Of those before what they import was copied beside them.
    "dpal.data.sources": ["Content"],
    "dpal.models.build_model": ["build_model"],
    "dpal.training.calibration": ["at_temperature"],
    # Of models whose architecture is another package's, for which dpal is installed still.
    "dpal.errors": ["DpalError"],
    "dpal.inference.served": ["BundledModel"],
}


def imported_now() -> set[str]:
    """Modules of ours that the source beside new models imports."""
    source = (ROOT / "tasks" / "tracking" / "served_model.py").read_text(encoding="utf-8")
    return {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dpal.")
    }


def test_what_new_models_import_is_promised():
    assert imported_now() - IMPORTED.keys() == set()


@pytest.mark.parametrize("module", IMPORTED)
def test_what_a_registered_model_imports_is_still_there(module):
    there = importlib.import_module(module)
    assert [name for name in IMPORTED[module] if not hasattr(there, name)] == []
