"""`prefect.yaml`, for `prefect deploy --all`, from the deployments that `dpal deploy` makes.

python -m flows.ops.prefect_yaml > prefect.yaml
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from flows.ops.deployments import ENVIRONMENT, TAG, Deployment, pools_of, usual

_HEAD = """\
# Written by `make deployments` from flows/ops/deployments.py and the kinds of runs.
#
# A deployment for every flow, for `prefect deploy --all` in this folder, on machines where dpal is
# installed. `dpal deploy` does the same from anywhere, and makes the pools and the automation, too;
# without it, make the pools first:
#   prefect work-pool create campaigns --type process
#   prefect work-pool create gpu --type process
"""
_SINCE = "2026-01-01T00:00:00Z"  # intervals are counted from somewhere


class _Dumper(yaml.SafeDumper):
    """Calls the one mapping that all deployments share by its name, and indents lists."""

    def generate_anchor(self, node: yaml.Node) -> str:
        return "job"

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def prefect_yaml() -> str:
    """The text of the file."""
    job = {"env": dict(ENVIRONMENT)}
    content = {
        "name": "dpal",
        "prefect-version": ">=3.8",
        # The code is installed on the workers; this is where campaigns read and write.
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "definitions": {"job": job},
        "deployments": [_entry(deployment, job) for deployment in usual(pools_of({}, {}))],
    }
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000)
    spaced = body.replace("\n  - name: ", "\n\n  - name: ").replace(":\n\n  - name", ":\n  - name")
    return f"{_HEAD}\n{spaced}"


def _entry(deployment: Deployment, job: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": deployment.name,
        "entrypoint": deployment.entrypoint,
        "description": deployment.about,
        "tags": [TAG],
    }
    if deployment.alone:  # looks that are slow do not pile up
        entry["concurrency_limit"] = {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    if deployment.schedule is not None and deployment.schedule.interval is not None:
        every = int(deployment.schedule.interval.total_seconds())
        entry["schedule"] = {"interval": every, "anchor_date": _SINCE, "timezone": "UTC"}
    queue = {"work_queue_name": deployment.queue} if deployment.queue else {}
    entry["work_pool"] = {"name": deployment.pool, **queue, "job_variables": job}
    return entry


if __name__ == "__main__":
    sys.stdout.write(prefect_yaml())
