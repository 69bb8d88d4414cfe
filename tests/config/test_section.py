"""What the base of all settings adds: descriptions from docstrings, titles from names."""

from __future__ import annotations

import compileall
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from prefect.utilities.callables import parameter_schema
from pydantic import Field

import dpal
from dpal.config.campaign import CampaignConfig
from dpal.config.improvement import PublicConfig
from dpal.config.pate import PateConfig
from dpal.config.section import Count, Section
from dpal.config.watch import WatchConfig
from flows.campaign import run_campaign
from flows.pate import vote_and_learn
from flows.public import improve_model
from tests.variants import quick_and_slow

KINDS = (CampaignConfig, PublicConfig, PateConfig, WatchConfig)


class Small(Section):
    """A section of a test."""

    batch_size: Count = 3
    """Records a step; the line
    goes on."""
    seed: int = Field(0, title="Own title", description="Given by hand.")
    """Not this one."""
    silent: int = 0


class Larger(Small):
    """With a field more, and one that says something else."""

    seed: int = 1
    """Of the larger one."""
    more: int = 0
    """A field more."""


def shown(section: type[Section]) -> dict[str, tuple[str, str | None]]:
    fields = section.model_json_schema()["properties"]
    return {name: (field["title"], field.get("description")) for name, field in fields.items()}


def test_a_docstring_describes_its_field_and_the_name_is_its_title():
    assert shown(Small) == {
        "batch_size": ("Batch size", "Records a step; the line goes on."),
        "seed": ("Own title", "Given by hand."),
        "silent": ("Silent", None),
    }


def test_descriptions_are_inherited():
    assert shown(Larger) == shown(Small) | {
        "seed": ("Seed", "Of the larger one."),
        "more": ("More", "A field more."),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_section_has_a_schema_with_a_title_and_a_description(kind):
    whole = kind.model_json_schema()
    sections = {name: one for name, one in whole["$defs"].items() if "properties" in one} | {
        kind.__name__: whole
    }
    for section, schema in sections.items():
        for name, field in schema["properties"].items():
            behind = whole["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else {}
            both = behind | field
            assert both["title"], f"{section}.{name}"
            assert len(both["description"].split()) > 1, f"{section}.{name}"
            assert "\n  " not in both["description"]


@pytest.mark.parametrize("flow", [run_campaign, improve_model, vote_and_learn])
def test_every_flow_has_a_form(flow):
    # Prefect leaves a form empty without a word where its schema cannot be made.
    form = parameter_schema(flow).model_dump()
    section = form["properties"]["config"]["$ref"].rpartition("/")[2]
    assert form["definitions"][section]["properties"]["name"]["type"] == "string"


def test_bounds_and_unknown_keys_are_checked_by_many_threads_that_come_first_at_once():
    code = """
from concurrent.futures import ThreadPoolExecutor
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.pate import parse_pate
with ThreadPoolExecutor(16) as threads:
    parsers = [parse_pate, parse_config] * 32
    found = list(threads.map(lambda n: parsers[n]({"name": f"x{n}"}), range(64)))
print(len({config.name for config in found}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "64\n"


@pytest.mark.parametrize("compiled", quick_and_slow([False], [False, True]))
def test_settings_are_read_from_a_zip_and_without_source(tmp_path, compiled):
    package = Path(dpal.__file__).parent
    archive = tmp_path / "dpal.zip"
    with zipfile.ZipFile(archive, "w") as files:
        for source in sorted(package.rglob("*.py")):
            files.write(source, Path("dpal") / source.relative_to(package))
    place = archive
    if compiled:
        with zipfile.ZipFile(archive) as files:
            files.extractall(tmp_path / "bare")
        place = tmp_path / "bare"
        compileall.compile_dir(place, quiet=1, legacy=True)
        for source in place.rglob("*.py"):
            source.unlink()
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import dpal.config.campaign as campaign
assert campaign.__file__.startswith(sys.argv[1]), campaign.__file__
fields = campaign.PrivacyConfig.model_json_schema()["properties"]
print(fields["epsilon"]["title"], "description" in fields["epsilon"])
print(campaign.parse_config({"name": "x"}).privacy.epsilon)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"Epsilon {not compiled}\n8.0\n"


def test_settings_are_read_without_what_only_plans_need():
    code = """
import sys
from dpal.config import campaign, improvement, pate, watch
campaign.parse_config({"name": "x"}), pate.parse_pate({"name": "x"})
print({"numpy", "scipy", "torch", "pyarrow"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
