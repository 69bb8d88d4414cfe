from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from dpal.errors import CampaignBusy, LedgerError
from dpal.ledger.folder_lock import leading_process, lend_lock, lock_folder, require_claim

HOLD = """
import sys, time
from pathlib import Path
from dpal.ledger.folder_lock import lock_folder
with lock_folder(Path(sys.argv[1]), patience=20):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def worker(folder, seconds: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_a_lent_claim_is_the_workers_and_comes_back(tmp_path):
    folder = tmp_path / "lent"
    with lock_folder(folder):
        with lend_lock(folder):
            with pytest.raises(LedgerError, match="not claimed"):
                require_claim(folder)
            with worker(folder, 0.5) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == "held\n"
                with pytest.raises(CampaignBusy), lock_folder(folder):
                    pass
        require_claim(folder)
        with pytest.raises(CampaignBusy), lock_folder(folder):
            pass


def test_a_claim_is_waited_for_as_long_as_was_asked(tmp_path):
    folder = tmp_path / "waited"
    holding, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_folder(folder):
            holding.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(10)
    began = time.monotonic()
    busy = pytest.raises(CampaignBusy, match="is being run by another process")
    with busy, lock_folder(folder, patience=0.5):
        pass
    assert time.monotonic() - began >= 0.5
    threading.Timer(0.3, release.set).start()
    with lock_folder(folder, patience=10):
        require_claim(folder)
    thread.join()


def test_a_claim_is_not_taken_back_after_an_error(tmp_path):
    folder = tmp_path / "error"
    with pytest.raises(KeyboardInterrupt), lock_folder(folder), lend_lock(folder):
        raise KeyboardInterrupt
    with pytest.raises(LedgerError):
        require_claim(folder)
    with lock_folder(folder):
        require_claim(folder)


def test_one_process_leads_while_another_trains(tmp_path):
    folder = tmp_path / "led"
    with leading_process(folder), lock_folder(folder), lend_lock(folder):
        with pytest.raises(CampaignBusy), leading_process(folder):
            pass
        with lock_folder(folder):
            require_claim(folder)
