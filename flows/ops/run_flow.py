"""Runs a flow in the process that a worker started for it: `python -P -m flows.ops.run_flow FLOW`.

Prefect's engine puts the folder that a run works in before all others while it imports the flow.
Whoever can write into that folder could put a module there that goes by one of our names, or of
those that we import. So the flow is imported first: what is imported is not looked for again.
"""

from __future__ import annotations

import importlib
import runpy
import sys


def main() -> None:
    """Imports the flow, and lets Prefect's engine run it."""
    [flow] = sys.argv[1:]
    importlib.import_module(module_of(flow))
    runpy.run_module("prefect.flow_engine", run_name="__main__", alter_sys=True)


def module_of(entrypoint: str) -> str:
    """The module of a flow.

    >>> module_of("flows.campaign.run_campaign"), module_of("flows.campaign:run_campaign")
    ('flows.campaign', 'flows.campaign')
    """
    return entrypoint.replace(":", ".").rpartition(".")[0]


if __name__ == "__main__":
    main()
