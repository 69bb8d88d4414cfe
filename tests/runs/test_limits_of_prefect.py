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
from dpal.runs.host import host
print(type(host()).__name__)
"""


def host_after(module: str) -> str:
    """The host of a process that imported one module; Prefect's brings the owner's list."""
    return subprocess.run(
        [sys.executable, "-c", LOOK, module], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("module", FLOWS)
def test_every_flow_brings_the_owners_list(module):
    assert host_after(module) == "PrefectHost"


def test_the_library_alone_has_no_list():
    assert host_after("dpal.runs.start_model") == "Host"
