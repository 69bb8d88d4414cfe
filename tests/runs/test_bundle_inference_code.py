"""The package beside a model: its name, its imports, and models that it cannot hold."""

from __future__ import annotations

import ast
import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.data.sources import Content
from dpal.errors import ParameterError
from dpal.features.spec import ExtractorSpec
from dpal.inference.released_model import ReleasedModel
from dpal.models.architectures import ARCHITECTURES, Architecture
from dpal.models.spec import ModelSpec
from dpal.runs.bundle_inference_code import imported_modules, write_bundle

MODEL = ReleasedModel(
    weights=Path("model.safetensors"),
    spec=ModelSpec(name="logistic", input_shape=(3,), classes=2),
    content=Content.FEATURES,
    texts=(),
    extractor=ExtractorSpec(),
    class_names=("no", "yes"),
    recipe=None,
    public_model=None,
)


def test_it_imports_itself_by_its_own_name(tmp_path):
    bundle = write_bundle(tmp_path, MODEL)
    folder = tmp_path / bundle.name
    assert bundle.folder == folder
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] != "dpal", path
    assert (folder / "models" / "small.py").is_file()
    assert not (folder / "models" / "resnet9.py").exists()


def test_its_name_is_its_content(tmp_path):
    first, again = (write_bundle(tmp_path / place, MODEL) for place in ("first", "again"))
    other = write_bundle(
        tmp_path / "other", replace(MODEL, spec=replace(MODEL.spec, name="resnet9"))
    )
    assert first.name == again.name != other.name


def test_texts_need_a_tokenizer(tmp_path):
    texts = write_bundle(tmp_path / "texts", replace(MODEL, content=Content.TEXT))
    others = write_bundle(tmp_path / "others", MODEL)
    more = {line.partition("==")[0] for line in texts.requirements}
    assert more - {line.partition("==")[0] for line in others.requirements} == {"tokenizers"}


def test_a_model_of_another_package_needs_that_and_dpal(tmp_path, monkeypatch):
    architecture = Architecture(name="theirs", made_by="typer.main.Typer")
    monkeypatch.setitem(ARCHITECTURES, "theirs", architecture)
    bundle = write_bundle(tmp_path, replace(MODEL, spec=replace(MODEL.spec, name="theirs")))
    assert bundle.folder is None and not list(tmp_path.iterdir())
    assert bundle.requirements == (
        f"dpal=={importlib.metadata.version('dpal')}",
        f"typer=={importlib.metadata.version('typer')}",
    )
    assert bundle.renamed("from dpal.errors import DpalError\n").startswith("from dpal.errors")


def test_an_import_that_cannot_be_renamed_is_refused(tmp_path):
    bundle = write_bundle(tmp_path, MODEL)
    assert bundle.renamed("def f():\n    from dpal.check import inside\n") == (
        f"def f():\n    from {bundle.name}.check import inside\n"
    )
    with pytest.raises(ParameterError):
        bundle.renamed("import dpal.check\n")


def test_imports_for_type_checkers_are_none():
    source = (
        "if TYPE_CHECKING:\n    import scipy\n"
        "import numpy\n"
        "def f():\n    from torch import nn\n"
        "try:\n    import pandas\nexcept ImportError:\n    pass\n"
    )
    assert dict(imported_modules(source)) == {"numpy": True, "torch": False, "pandas": True}
