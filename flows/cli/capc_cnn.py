"""`dpal capc cnn`: starts the program that evaluates a small net, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from dpal.capc import sidecar_cnn
from dpal.capc.certificate_authority import AUTHORITY, CERTIFICATE, KEY
from dpal.config.capc import CnnConfig
from dpal.errors import ConfigError, VoteAborted

SPU = "DPAL_SPU"  # the Python of an environment that has spu


def run_sidecar(config: CnnConfig, say: Callable[[str], None]) -> None:
    """Takes part as one of the three, until shares are written.

    Raises:
      ConfigError: no environment with spu is named.
      VoteAborted: it ended before that; another party was not there, or a file does not fit.
    """
    python = Path(os.environ.get(SPU, "")).expanduser()
    if not os.environ.get(SPU) or not python.is_file() or not os.access(python, os.X_OK):
        raise ConfigError(
            f"{SPU} names no Python with spu; make an environment of its own (python3.11 -m venv "
            "~/spu && ~/spu/bin/pip install spu==0.9.5) and export DPAL_SPU=~/spu/bin/python"
        )
    if config.output is not None:
        if config.output.exists():
            raise ConfigError(
                f"{config.output} exists, and sites may have voted by it; name another file as "
                "output"
            )
        config.output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    values = config.model_dump(mode="json", exclude={"party", "keys"})
    files = {"key": KEY, "certificate": CERTIFICATE, "authority": AUTHORITY}
    values |= {name: str((config.keys / file).absolute()) for name, file in files.items()}
    # Not in ours: whatever is installed for dpal must not be in the way of what spu needs.
    command = [str(python), "-I", sidecar_cnn.__file__, config.party]
    try:
        done = subprocess.run(
            command, input=json.dumps(values), capture_output=True, text=True, check=False,
            timeout=config.patience,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _not_evaluated(f"it took longer than {config.patience:g} seconds") from error
    if done.returncode != 0 or (config.output is not None and not config.output.exists()):
        raise _not_evaluated(_reason(done.stderr))
    say(done.stdout.strip().splitlines()[-1])
    if config.output is not None:
        say(f"shares: {config.output}")


def _not_evaluated(why: str) -> VoteAborted:
    return VoteAborted.before_release(
        f"the net was not evaluated: {why}; see that all three parties run, and that files and "
        "addresses are those that all agreed on"
    )


def _reason(complaint: str) -> str:
    """What went wrong, of a Python traceback or of a library's, whose frames begin with #."""
    lines = [line.strip() for line in complaint.splitlines()]
    said = [line for line in lines if line and not line.startswith(("#", "Stacktrace", "at "))]
    errors = [line for line in said if "Error" in line or "error" in line]
    return (errors or said or ["it gave no reason"])[-1][:300]
