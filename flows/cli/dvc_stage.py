"""A DVC stage for a configuration: `dvc exp run` tries settings, `dvc exp show` compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError

PIPELINE = Path("dvc.yaml")
RESULTS = "results"

_HEAD = """\
# dvc repro runs {config}, or goes on with it; then: dvc metrics show, dvc plots show.
# Other settings are another run, which spends an epsilon of its own, so give it a name of its own:
#   dvc exp run --set-param {config}:name={name}-2 --set-param {config}:privacy.epsilon=3
#   dvc exp show
# Keep artifacts/, where the ledger is, out of git. Before `--queue` or `--temp`, which work in a
# copy of this folder, set runtime.artifacts to an absolute path: a ledger in the copy is lost.
"""


def write_stage(config: Path) -> Path:
    """Writes `dvc.yaml` beside a configuration.

    Args:
      config: a YAML file in this folder.

    Raises:
      ConfigError: there is such a file already.
    """
    settings = read_yaml(config.read_text(encoding="utf-8"))
    stage = _stage(config, settings)
    if PIPELINE.exists():
        raise ConfigError(
            f"{PIPELINE} exists already; nothing was written to it. Add this to it, or move it "
            f"away:\n{yaml.safe_dump(stage, sort_keys=False)}"
        )
    head = _HEAD.format(config=config, name=settings["name"])
    PIPELINE.write_text(head + "\n" + yaml.safe_dump(stage, sort_keys=False), encoding="utf-8")
    return PIPELINE


def _stage(config: Path, settings: dict[str, Any]) -> dict[str, Any]:
    # Help and refusals load nothing heavy.
    from dpal.runs.dvc_metrics_files import METRICS, PHASES, experiment_pictures
    from dpal.runs.kinds import kind_in

    data = settings.get("data", {})
    files = [data[key] for key in ("pool", "validation") if isinstance(data.get(key), str)]
    metrics, phases = f"{RESULTS}/{METRICS}", f"{RESULTS}/{PHASES}"
    pictures = [f"{RESULTS}/{name}" for name in experiment_pictures(kind_in(settings))]
    runs = settings.get("runtime", {}).get("artifacts", "artifacts")
    return {
        "vars": [f"{config}:name"],
        "stages": {
            "run": {
                "cmd": [
                    f"dpal run {config}",
                    f"dpal report {runs}/${{name}} --metrics {RESULTS}",
                ],
                "deps": files,
                "params": [{str(config): None}],
                "outs": [{file: {"cache": False}} for file in (phases, *pictures)],
                "metrics": [{metrics: {"cache": False}}],
            }
        },
        "plots": [
            {"validation by labels": {"x": "labels", "y": {phases: "validation"}}},
            {"epsilon by labels": {"x": "labels", "y": {phases: "epsilon"}}},
            *pictures,
        ],
    }
