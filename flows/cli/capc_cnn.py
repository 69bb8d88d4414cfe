"""`dpal capc cnn`: starts the program that evaluates a small net, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from dpal.capc import sidecar_cnn
from dpal.capc.certificates import AUTHORITY, CERTIFICATE, KEY
from dpal.config.capc import CnnConfig
from dpal.errors import ConfigError, VoteAborted
from dpal.files.atomic_writes import write_text

SPU = "DPAL_SPU"  # the Python of an environment that has spu
_SETTINGS = "cnn.json"  # beside the keys: public, but for where private files are


def run_sidecar(config: CnnConfig, say: Callable[[str], None]) -> None:
    """Takes part as one of the three, until shares are written.

    Raises:
      ConfigError: no environment with spu is named.
      VoteAborted: it ended before that; another party was not there, or a file does not fit.
    """
    python = Path(os.environ.get(SPU, "")).expanduser()
    if not os.environ.get(SPU) or not python.is_file():
        raise ConfigError(
            f"{SPU} names no Python with spu; make an environment of its own (python3.11 -m venv "
            "~/spu && ~/spu/bin/pip install spu==0.9.5) and export DPAL_SPU=~/spu/bin/python"
        )
    if config.output is not None and config.output.exists():
        raise ConfigError(
            f"{config.output} exists, and sites may have voted by it; name another file as output"
        )
    values = config.model_dump(mode="json", exclude={"party", "keys"})
    files = {"key": KEY, "certificate": CERTIFICATE, "authority": AUTHORITY}
    values |= {name: str((config.keys / file).absolute()) for name, file in files.items()}
    settings = config.keys / _SETTINGS
    write_text(settings, json.dumps(values))
    # Not in ours: whatever is installed for dpal must not be in the way of what spu needs.
    done = subprocess.run(
        [python, "-I", sidecar_cnn.__file__, config.party, settings],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise VoteAborted.before_release(
            f"the net was not evaluated: {lines[-1][:300]}; see that all three parties run, and "
            "that files and addresses are those that all agreed on"
        )
    say(done.stdout.strip().splitlines()[-1])
    if config.output is not None:
        say(f"shares: {config.output}")
