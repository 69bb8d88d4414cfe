"""Models that are registered already are loaded by the names that they were registered with.

MLflow keeps `served_model.py` as source beside the weights, so what it imports is a promise.
"""

from __future__ import annotations

import importlib

import pytest

# What the source of models of version 0.1 imports: module, names.
IMPORTED = {
    "dpal.data.sources": ["Content"],
    "dpal.data.readers": ["decode"],
    "dpal.data.texts": ["TextEncoding"],
    "dpal.features.extractors": ["build_extractor"],
    "dpal.features.feature_spec": ["ExtractorKind", "ExtractorSpec"],
    "dpal.labels": ["Task"],
    "dpal.models.build_model": ["build_model"],
    "dpal.models.normalisation": ["Normalisation"],
    "dpal.models.model_spec": ["ModelSpec", "spec_from"],
    "dpal.training.evaluation": ["probabilities"],
    "dpal.training.metrics": ["THRESHOLD"],
}


@pytest.mark.parametrize("module", IMPORTED)
def test_what_a_registered_model_imports_is_still_there(module):
    there = importlib.import_module(module)
    assert [name for name in IMPORTED[module] if not hasattr(there, name)] == []
