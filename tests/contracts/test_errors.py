"""Errors of ours say public things: by what their code quotes, and by what they carry."""

from __future__ import annotations

import ast
import copy
import copyreg
import importlib
import inspect
import pickle
import re
from functools import cache
from pathlib import Path
from typing import get_type_hints

import pytest

from dpal import errors
from dpal.errors import (
    ConfigError,
    DataError,
    DpalError,
    ParameterError,
    StorageError,
    UnexpectedError,
)
from tasks.boundary import is_public

ROOT = Path(__file__).resolve().parent.parent.parent

# What may be said of another library's exception without quoting it.
PLAIN = {"strerror", "name", "errno", "status_code"}
OURS = {name for name, one in vars(errors).items() if isinstance(one, type)}
# Quoted all the same: these libraries were handed nothing but what is public.
PUBLIC = {
    "dpal/book/book_file.py": "a book, which is about public records alone",
    "dpal/book/sites_cells.py": "likewise",
    "dpal/certificate/read_and_seal.py": "a certificate is public",
    "dpal/certificate/dsse.py": "a signature is public",
    "dpal/certificate/signed_exports.py": "a signature is public",
    **{
        f"dpal/config/{name}.py": "settings"
        for name in (
            "campaign",
            "pate",
            "vote",
            "improvement",
            "watch",
            "capc",
            "briefs",
            "yaml_loader",
        )
    },
    "dpal/data/inbox/folder.py": "an address in the settings, or a storage asked for names",
    "dpal/ledger/database.py": "the ledger holds no record",
    "dpal/models/weights.py": "the header of a model's file",
    "dpal/files/object_store_errors.py": "a storage that was asked for files by name",
    "tasks/tracking/mlflow_connection.py": "MLflow is told public things alone",
    "tasks/tracking/model_registry.py": "MLflow is told public things alone",
    "tasks/version_with_dvc.py": "DVC is told paths",
}


def quoted(tree: ast.Module) -> list[int]:
    """Lines where an error of ours quotes the exception that is being handled."""
    found = []
    for handler in (one for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler)):
        if handler.name is None or ast.unparse(handler.type or handler) in OURS:
            continue
        tainted = {handler.name}
        for node in ast.walk(handler):
            if isinstance(node, ast.Assign) and mentions(node.value, tainted):
                tainted |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)
                            and isinstance(one.ctx, ast.Store)}  # fmt: skip
        for node in ast.walk(handler):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            if any(mentions(one, tainted) for one in node.exc.args):
                found.append(node.lineno)
    return found


def mentions(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression depends on what one of these variables says."""
    if isinstance(node, ast.Attribute) and node.attr in PLAIN:
        return False
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "type":
        return False
    if isinstance(node, ast.Name) and node.id in names:
        return True
    return any(mentions(one, names) for one in ast.iter_child_nodes(node))


SOURCES = sorted(path for place in ("dpal", "tasks") for path in (ROOT / place).rglob("*.py"))


def test_no_message_quotes_another_librarys_exception():
    """It may quote a record; where it cannot, the file stands in the list above."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    found = {str(path.relative_to(ROOT)): quoted(ast.parse(text)) for path, text in texts.items()
             if re.search(r"^ *except .* as ", text, re.MULTILINE)}  # fmt: skip
    assert {name for name, lines in found.items() if lines} == PUBLIC.keys()


@pytest.mark.parametrize(
    ("body", "is_quoted"),
    [
        ("raise DataError(f'no ({error})') from error", True),
        ("raise DataError(str(error)) from error", True),
        ("said = str(error).splitlines()\n    raise DataError(f'no {said[0]}')", True),
        ("raise DataError(f'no ({type(error).__name__}, {error.strerror})') from error", False),
        ("raise DataError('no {said}', said=str(error)) from error", False),
    ],
)
def test_the_search_finds_what_is_quoted(body, is_quoted):
    text = f"try:\n    work()\nexcept ValueError as error:\n    {body}\n"
    assert bool(quoted(ast.parse(text))) is is_quoted


@cache
def family() -> list[type[DpalError]]:
    """All errors of ours, wherever they are defined."""
    for path in [*SOURCES, *(ROOT / "flows").rglob("*.py")]:
        if re.search(r"^ *class \w+\([^)]*Error", path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found, new = set(), {DpalError}
    while new:
        found |= new
        new = {one for kind in new for one in kind.__subclasses__()} - found
    return sorted(found, key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", family(), ids=lambda one: one.__name__)
def test_what_an_error_carries_is_what_it_was_given(kind):
    """So that public arguments make a public error, also after a pickle."""
    wanted = [one for one in inspect.signature(kind.__init__).parameters.values()
              if one.kind is one.POSITIONAL_OR_KEYWORD][1:]  # fmt: skip
    error = kind(*[f"value {number}" for number, _ in enumerate(wanted)]) if wanted else kind("no")
    told = {"detail", "kept", "advice"} | {one.name for one in wanted}
    assert vars(error).keys() <= told
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.args == error.args and vars(again) == vars(error)


GIVEN = {str: "a value", int: 3, int | None: None, float: 0.5, tuple[int, ...]: (3, 4)}


@pytest.mark.parametrize("kind", family(), ids=lambda one: one.__name__)
def test_every_error_of_ours_leaves_a_task_as_it_is(kind):
    """Else a person reads a number in place of the sentence that was written for them."""
    hints = get_type_hints(kind.__init__)
    names = [one.name for one in inspect.signature(kind.__init__).parameters.values()
             if one.kind is one.POSITIONAL_OR_KEYWORD][1:]  # fmt: skip
    assert is_public(kind(*[GIVEN[hints[name]] for name in names]))


@pytest.mark.parametrize("kind", [DataError, ParameterError])
def test_what_only_the_owner_may_read_is_in_no_message_and_no_pickle(kind, monkeypatch):
    # Dask registers a way of its own for errors that it met: it adds notes, of which we write none.
    monkeypatch.delitem(copyreg.dispatch_table, kind, raising=False)
    error = kind("row {row} of {file} has {count} labels", row="secret-7", count="secret-9")
    assert str(error) == "row [...] of {file} has [...] labels"
    assert error.for_owner() == "row secret-7 of {file} has secret-9 labels"
    error.kept = "confidential/errors/1.txt"
    assert str(error).endswith("labels (in full in confidential/errors/1.txt)")
    for one in (str(error), repr(error), str(error.args)):
        assert "secret" not in one
    error.add_note("secret-8")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert "secret" not in f"{again!r} {again} {vars(again)}"
        assert str(again) == str(error)


def test_what_a_refusal_is_about_survives_a_pickle():
    setting = ConfigError("no").about("privacy.epsilom", "extra_forbidden", "privacy.epsilon")
    for error in (setting, ParameterError("no").about("sigma")):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == "no"
        assert {**vars(again), "code": again.code} == {**vars(error), "code": error.code}
    assert (again.parameter, ParameterError("no").parameter) == ("sigma", "")


def test_errors_with_words_of_their_own_are_as_they_were():
    error = StorageError("a file", "disk full")
    assert error.for_owner() == str(error)
    assert str(UnexpectedError("train_model", "1a2b", "")).endswith("could not be written down")
