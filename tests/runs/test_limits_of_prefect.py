"""Settings that a folder records are checked in every process that runs a flow."""

from __future__ import annotations

import pytest

from dpal.runs.kinds import KINDS
from tests.forked import Forks

pytestmark = pytest.mark.slow

FLOWS = [
    *(kind.entrypoint.rpartition(".")[0] for kind in KINDS.values()),
    "flows.audit",
    "flows.capc",
    "flows.collect_labels",
    "flows.train_repeatable",
    "flows.train_phase",
    "flows.watch",
]
LOOK = """
import importlib, sys
importlib.import_module(sys.argv[1])
from dpal.runs.host import host
print(type(host()).__name__)
"""


def host_after(forked: Forks, module: str) -> str:
    """The host of a process that imported one module; Prefect's brings the owner's list."""
    done = forked.run(LOOK, module)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", FLOWS)
def test_every_flow_brings_the_owners_list(forked, module):
    assert host_after(forked, module) == "PrefectHost"


def test_the_library_alone_has_no_list(forked):
    assert host_after(forked, "dpal.runs.improvement_start_model") == "Host"
