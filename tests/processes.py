"""Whether processes that a test started are still there."""

from __future__ import annotations

import time

import psutil


def gone(pid: int, *, within: float) -> bool:
    """Whether a process ends within some seconds; one that nobody waited for counts as ended."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
