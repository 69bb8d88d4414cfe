"""Settings that a folder records are checked in every process that runs a flow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dpal.runs.kinds import KINDS

FLOWS = [
    *(kind.entrypoint.rpartition(".")[0] for kind in KINDS.values()),
    "flows.audit",
    "flows.collect_labels",
    "flows.train_phase",
    "flows.watch",
]
LOOK = """
import importlib, sys
importlib.import_module(sys.argv[1])
from dpal.runs.labeling_job import CHECKS
print([check.__name__ for check in CHECKS])
"""


def checks_after(module: str) -> str:
    """Names of what runs over recorded settings, in a process that imported one module."""
    return subprocess.run(
        [sys.executable, "-c", LOOK, module], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("module", FLOWS)
def test_every_flow_brings_the_owners_list(module):
    assert checks_after(module) == "['require_allowed']"


def test_the_library_alone_has_no_list():
    assert checks_after("dpal.runs.start_model") == "[]"
