"""What lies beside a served model stays slim: the list of what it imports is short, and here."""

from __future__ import annotations

import sys

import pytest

from dpal.features.library_backbones import LIBRARY_BACKBONES
from dpal.models.architectures import ARCHITECTURES
from dpal.runs.bundle_inference_code import ENTRY, bundled_sources, imported_modules

AT_ONCE = {"PIL", "numpy", "pandas", "pyarrow", "safetensors", "torch"}
# Inside functions: of texts alone, of noise, which no prediction draws, and of cells of tables,
# which plans get by without.
LATER = {"tokenizers", "cryptography", "pandas"}
# The rooms of dpal that predictions need. Training is there for `predictions.py` and its losses.
ROOMS = {"canonical", "check", "data", "errors", "features", "inference", "labels", "models",
         "plugins", "randomness", "training"}  # fmt: skip
MOST_LINES = 8_030


def sources() -> dict[str, str]:
    """All modules that any model of dpal's own needs."""
    made_by = [str(model.made_by) for model in ARCHITECTURES.values()]
    return bundled_sources([*ENTRY, *(maker.rpartition(".")[0] for maker in made_by)])


def third_party(modules: dict[str, str], *, at_once: bool) -> set[str]:
    found = {
        name.partition(".")[0]
        for source in modules.values()
        for name, now in imported_modules(source)
        if now is at_once
    }
    return found - {"dpal"} - sys.stdlib_module_names


@pytest.mark.parametrize(("at_once", "allowed"), [(True, AT_ONCE), (False, LATER)])
def test_it_imports_what_stands_here(at_once, allowed):
    assert third_party(sources(), at_once=at_once) == allowed


@pytest.mark.parametrize("library", LIBRARY_BACKBONES.values(), ids=lambda library: library.name)
def test_what_reads_another_librarys_models_imports_no_more(library):
    """The library itself is imported by its name, when a model is built."""
    further = bundled_sources([library.read_by.rpartition(".")[0]])
    assert third_party(further, at_once=True) <= AT_ONCE
    assert third_party(further, at_once=False) <= LATER
    assert not {"timm", "transformers"} & third_party(further, at_once=True)


def test_it_has_the_rooms_that_predictions_need():
    modules = sources()
    assert {name.split(".")[1] for name in modules if "." in name} == ROOMS
    assert {name for name in modules if name.startswith("dpal.training.")} == {
        "dpal.training.losses", "dpal.training.physical_batches", "dpal.training.predictions",
    }  # fmt: skip
    assert sum(len(source.splitlines()) for source in modules.values()) < MOST_LINES
