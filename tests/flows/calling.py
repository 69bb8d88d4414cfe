"""Calling the command's entry point in this process: the same code, seconds faster."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import flows.campaign  # Prefect keeps the stream it meets first; not a test's own
from dpal.config.campaign import CampaignConfig
from dpal.files.artifacts import CampaignFolder
from flows.cli.main import main


@dataclass
class Result:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def call(*arguments: str) -> Result:
    """Runs `dpal` with arguments."""
    logger, mask, given = logging.getLogger("dpal"), os.umask(0o022), sys.argv
    before, out, err = list(logger.handlers), io.StringIO(), io.StringIO()
    sys.argv = ["dpal", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        return Result(int(ended.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = given
        logger.handlers[:] = before  # the command's handler writes to a stream that is gone
        os.umask(mask)
    raise AssertionError("the command did not exit")


def finished(config: CampaignConfig) -> CampaignFolder:
    """Runs a campaign's flow in this process."""
    folder = flows.campaign.run_campaign(config)
    assert isinstance(folder, str)  # and not the state of a run that failed
    return CampaignFolder(Path(folder))


def sentence(result: Result) -> str:
    """The one sentence of a refusal: exit code 2, one line, no traceback, nothing on stdout."""
    assert result.returncode == 2, result
    assert result.stdout == ""
    begun = ("starting Prefect ...", "planning ")
    lines = [line for line in result.stderr.splitlines() if not line.startswith(begun)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dpal: ")
    return lines[0]
