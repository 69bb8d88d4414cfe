"""Is this installation able to run a campaign? Looks, changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from dpal.config.campaign import CampaignConfig
from dpal.errors import StoreError
from flows.ops import doctor_access, doctor_stack
from flows.ops.diagnosis import Diagnosis

_PATIENCE_SECONDS = 5.0
_PINS = Path("data.dvc")  # a checkout has it


def examine(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Yields findings for the installation, the folders, the servers and the databases."""
    for check in (_python, _packages, _web_framework, _device, _artifacts, _data, _remote):
        yield check(config)
    yield (server := _prefect(config))
    if not server.advice:  # else there is nothing more to be learned from it
        yield from doctor_access.prefect_doors()
        yield from doctor_stack.prefect_parts(config)
        yield from doctor_stack.prefect_clock()
    yield from doctor_stack.mlflow_login(config)
    yield from doctor_stack.ledger(config)
    yield from doctor_stack.places(config)
    yield from doctor_access.allow_list(config)
    yield from doctor_stack.labeler(config)


def _python(_: CampaignConfig) -> Diagnosis:
    version = ".".join(str(part) for part in sys.version_info[:3])
    advice = "" if sys.version_info >= (3, 11) else "dpal needs Python 3.11 or newer"
    return Diagnosis("python", version, advice)


def _packages(_: CampaignConfig) -> Diagnosis:
    versions, missing = [], []
    for name in ("torch", "opacus", "dp-accounting", "prefect", "mlflow", "dvc", "pyarrow"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    advice = f"install {', '.join(missing)}: pip install -c constraints.txt ." if missing else ""
    return Diagnosis("packages", ", ".join(versions), advice)


def _web_framework(_: CampaignConfig) -> Diagnosis:
    version = importlib.metadata.version("fastapi")
    numbers = tuple(int(part) for part in version.split(".")[:2])
    advice = "" if numbers < (0, 151) else "Prefect's server needs fastapi<0.151: pip install it"
    return Diagnosis("fastapi", version, advice)


def _device(config: CampaignConfig) -> Diagnosis:
    import torch

    name = config.runtime.device
    if not name.startswith("cuda"):
        return Diagnosis("device", f"{name}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        return Diagnosis("device", torch.cuda.get_device_name())
    return Diagnosis("device", f"{name} is not there", "set runtime.device: cpu")


def _artifacts(config: CampaignConfig) -> Diagnosis:
    folder = config.runtime.artifacts
    existing = next(parent for parent in (folder, *folder.resolve().parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Diagnosis("artifacts", f"{folder} can be written")
    except OSError as error:
        return Diagnosis("artifacts", f"{folder}: {error.strerror}", "set runtime.artifacts")


def _data(config: CampaignConfig) -> Diagnosis:
    pools = config.data.pool if isinstance(config.data.pool, list) else [config.data.pool]
    validation = config.data.validation
    wanted = pools if validation is None else [*pools, validation]
    try:
        missing = [str(path) for path in wanted if not path.exists()]
    except StoreError as error:
        return Diagnosis("data", f"{error.place} {error.reason}", error.advice)
    if missing:
        advice = "restore the samples: dvc pull" if _PINS.is_file() else "get samples: dpal demo"
        return Diagnosis("data", f"{', '.join(missing)} missing", advice)
    return Diagnosis("data", ", ".join(str(path) for path in wanted))


def _remote(_: CampaignConfig) -> Diagnosis:
    from tasks.version_with_dvc import remote_reachable

    if not _PINS.is_file():
        return Diagnosis("data remote", "no data.dvc in this folder, nothing to restore")
    problem = remote_reachable(Path())
    if problem:
        return Diagnosis("data remote", problem, "check `dvc remote list` and your access to it")
    return Diagnosis("data remote", "answers, and data/ is as pinned")


def _prefect(_: CampaignConfig) -> Diagnosis:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return Diagnosis("prefect", "no server set; each run starts a temporary one (about 10 s)")
    from flows.ops.prefect_connection import is_cloud, key_header

    advice = "see PREFECT_API_KEY and the workspace" if is_cloud(url) else "start it: dpal serve"
    return _server("prefect", f"{url}/health", advice, headers=key_header(url))


def _server(what: str, url: str, advice: str, *, headers: Mapping[str, str]) -> Diagnosis:
    shown = url
    began = time.perf_counter()
    try:
        answer = httpx.get(url, headers=headers, timeout=_PATIENCE_SECONDS)
        answer.raise_for_status()
    except httpx.ReadTimeout:  # it took the question: starting another one would not help
        state = f"{shown} is there, and has not answered in {_PATIENCE_SECONDS:g} s"
        return Diagnosis(what, state, "it is busy or stuck: wait and ask again, or see its log")
    except httpx.HTTPError as error:
        return Diagnosis(what, f"{shown} does not answer ({type(error).__name__})", advice)
    return Diagnosis(what, f"{shown} answers in {time.perf_counter() - began:.2f} s")
