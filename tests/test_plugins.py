"""What other installed packages offer can be named in settings, and imports what they read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dpal
from dpal.data.importing.importers import IMPORTERS, importer_of
from dpal.errors import ConfigError
from dpal.models.architectures import ARCHITECTURES
from dpal.plugins import load_plugins
from tests.conftest import small_values

MODULE = """
from torch import nn
from dpal.data.importing.importers import Importer, register_importer
from dpal.models.architectures import Architecture, register_architecture

def tiny(spec):
    return nn.Linear(spec.input_shape[0], spec.classes)

TINY = register_architecture(Architecture(name="offered_tiny", made_by=tiny, drops=False))
ROWS = register_importer(Importer(
    name="offered_rows", about="files of rows", reads=lambda place: place.suffix == ".rows",
    opens="dpal.data.importing.csv_tables.open_csv",
))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package of the given module, as pip leaves it, for one test."""

    def install(module: str, offered: str) -> None:
        site = tmp_path / "site"
        about = site / "offering-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(offered)
        (site / "offering_of_a_test.py").write_text(module)
        monkeypatch.syspath_prepend(str(site))

    load_plugins.cache_clear()
    yield install
    load_plugins.cache_clear()
    sys.modules.pop("offering_of_a_test", None)
    ARCHITECTURES.pop("offered_tiny", None)
    IMPORTERS.pop("offered_rows", None)


def test_what_a_package_offers_is_registered(installed, workplace):
    installed(
        MODULE,
        "[dpal.models]\noffered_tiny = offering_of_a_test:TINY\n"
        "[dpal.importers]\noffered_rows = offering_of_a_test:ROWS\n",
    )
    values = small_values(
        acquisition="random", schedule__queries=[], model={"name": "offered_tiny"}
    )
    certified = dpal.plan(dpal.settings(values))
    assert certified.summary()["name"] == "small"
    assert {"dpal.models offered_tiny", "dpal.importers offered_rows"} <= {*load_plugins()}
    Path("a.rows").touch()
    assert importer_of(Path("a.rows")).name == "offered_rows"


@pytest.mark.parametrize("module", ["1 / 0", "import nothing_of_that_name"])
def test_a_broken_package_is_one_sentence(installed, module):
    installed(module, "[dpal.models]\nbroken = offering_of_a_test:TINY\n")
    with pytest.raises(ConfigError, match="offering"):
        dpal.settings(small_values())
