"""The part of dpal that a served model needs, as a package of its own beside the model.

Copied when a model is logged, and put on Python's path by MLflow (`code_paths`). A wheel beside the
model would do as well, but pip would have to install it first: what is copied also works with
`--env-manager local`, and in a process that loads the model only.

The package has a name of its own, made of its content. So a process that has dpal, or that loads
models of several versions, mixes nothing up.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from dpal.data.sources import Content
from dpal.errors import ParameterError
from dpal.features.library_backbones import LIBRARY_BACKBONES
from dpal.inference.released_model import ReleasedModel
from dpal.models.architectures import ARCHITECTURES

ENTRY = ("dpal.errors", "dpal.inference.served")  # what the source of a served model imports
_ROOT = Path(__file__).resolve().parent.parent
_NAME = "dpal_inference"
# What the bundle imports, by the name of the package that an index has it under.
_PACKAGES = ("numpy", "pandas", "pillow", "pyarrow", "safetensors", "torch")
_OF_TEXTS = "tokenizers"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Python packages beside a model, and what an index has to have for it.

    Attributes:
      name: by which dpal's modules are imported there.
      folder: of that package; None where dpal itself has to be installed.
      requirements: of pip, each one version.
    """

    name: str
    folder: Path | None
    requirements: tuple[str, ...] = field(default=())

    def renamed(self, source: str) -> str:
        """A module's source that imports from here what it imported from dpal."""
        return _renamed(source, self.name)


def write_bundle(folder: Path, model: ReleasedModel) -> Bundle:
    """Copies what a model needs of dpal into a folder.

    A model of another package than dpal is not copied, as that package imports what it likes of
    dpal: both are required then.

    Args:
      folder: an empty one, below which the package's own is made.
      model: that is to be served.
    """
    library = LIBRARY_BACKBONES.get(model.extractor.model or "")
    made_by = [ARCHITECTURES[name].made_by for name in _architectures(model)]
    texts = (_OF_TEXTS,) if model.content is Content.TEXT else ()
    further = () if library is None else library.packages
    if others := [maker for maker in made_by if not _is_ours(maker)]:
        extra = "[text]" if texts else ""
        packages = {_distribution_of(maker) for maker in others}
        pinned = (_pinned(name) for name in sorted(filter(None, packages)))
        others_of = (_pinned(name) for name in further)
        requirements = (f"dpal{extra}=={metadata.version('dpal')}", *pinned, *others_of)
        return Bundle(name="dpal", folder=None, requirements=requirements)
    makers = [str(maker).rpartition(".")[0] for maker in made_by]
    makers += [] if library is None else [library.read_by.rpartition(".")[0]]
    sources = bundled_sources((*ENTRY, *makers))
    version = metadata.version("dpal")
    sources["dpal"] = f'"""What predictions need of dpal {version} (Apache-2.0), as a copy."""\n'
    content = "".join(f"{module}\n{source}\n" for module, source in sorted(sources.items()))
    name = f"{_NAME}_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    for module, source in sources.items():
        path = folder / name / _file_of(module).relative_to(_ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_renamed(source, name), encoding="utf-8")
    return Bundle(
        name=name,
        folder=folder / name,
        requirements=tuple(map(_pinned, dict.fromkeys((*_PACKAGES, *texts, *further)))),
    )


def bundled_sources(entries: Iterable[str]) -> dict[str, str]:
    """Sources by module of all that some modules import of dpal, at any depth.

    Args:
      entries: names of modules.
    """
    sources: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        module = waiting.pop()
        if module in sources:
            continue
        source = sources[module] = _file_of(module).read_text(encoding="utf-8")
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        if module != "dpal":  # what it offers by name is imported when somebody asks for it
            waiting += [name for name, _ in imported_modules(source) if _is_ours(name)]
    return sources


def imported_modules(source: str) -> Iterator[tuple[str, bool]]:
    """Modules that a source imports, and whether at once; those for type checkers are not in."""
    yield from _imports(ast.parse(source), at_once=True)


def _imports(node: ast.AST, *, at_once: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield str(child.module), at_once
            inside = (f"{child.module}.{alias.name}" for alias in child.names)
            yield from ((name, at_once) for name in inside if _is_module(name))
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, at_once=at_once and not function)


def _is_ours(maker: object) -> bool:
    return isinstance(maker, str) and maker.partition(".")[0] == "dpal"


def _is_module(name: str) -> bool:
    return _is_ours(name) and _file_of(name).is_file()


def _file_of(module: str) -> Path:
    place = _ROOT.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _renamed(source: str, name: str) -> str:
    """A source whose imports from dpal are imports from a package of another name.

    Raises:
      ParameterError: it imports dpal in a way that cannot be renamed.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(_is_ours(alias.name) for alias in node.names):
            raise ParameterError("what a served model needs imports dpal by `from dpal...` alone")
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = re.sub(r"from dpal\b", f"from {name}", line, count=1)
    return "".join(lines)


def _architectures(model: ReleasedModel) -> list[str]:
    names = [model.spec.name, model.extractor.model]
    return [name for name in names if name is not None and name not in LIBRARY_BACKBONES]


def _distribution_of(maker: object) -> str | None:
    """The installed package that has a model; None for a module that somebody has lying about."""
    module = maker if isinstance(maker, str) else str(getattr(maker, "__module__", ""))
    by_module: Mapping[str, list[str]] = metadata.packages_distributions()
    return next(iter(by_module.get(module.partition(".")[0], [])), None)


def _pinned(package: str) -> str:
    # Without what one index calls its builds, such as +cpu: no other has them.
    return f"{package}=={metadata.version(package).partition('+')[0]}"
