"""Back up, lose everything, restore: by the commands that docs/storage.md names."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, command, write_blobs, write_config
from tests.whole_postgres import whole_postgres  # noqa: F401

pytestmark = pytest.mark.slow

LABELS = {"labeler": {"kind": "file"}, "schedule__queries": [40]}


def documented(name: str) -> str:
    text = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```sh {name}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


class Machine:
    def __init__(self, root: Path, **runtime) -> None:
        self.root = root
        write_blobs(root / "pool.parquet", 600, seed=1)
        write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
        write_config(root / "small.yaml", runtime=runtime, **LABELS)

    def shell(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        state = {"XDG_STATE_HOME": str(self.root / "state"), "PATH": programs, "COLUMNS": "200"}
        return subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=self.root,
            env={**os.environ, **state, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def do(self, script: str, **environment: str) -> str:
        done = self.shell(script, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def label(self, phase: int) -> str:
        """Answers the open query as a person would, and goes on."""
        query = self.root / f"artifacts/small/confidential/query/phase-{phase}/query.csv"
        with query.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        with (self.root / "labels.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "label"])
            writer.writerows([row["id"], 0] for row in rows)
        return self.do(f"{command()} label artifacts/small labels.csv")


@pytest.fixture
def api(prefect_api, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)


def test_a_ledger_file_is_backed_up_and_restored(tmp_path, api):
    old = Machine(tmp_path / "old")
    assert "paused" in old.do(f"{command()} run small.yaml")
    old.do(documented("backup"))
    assert "paused" in old.label(0)  # phase 0 is trained after the backup, phase 1 is selected

    # The backup comes back where newer entries were written: refused until told otherwise.
    newer = (old.root / "artifacts").rename(old.root / "newer")
    old.do(documented("restore"))
    refused = old.shell(f"{command()} run small.yaml")
    assert refused.returncode == 2
    assert "lacks entry" in refused.stderr
    assert old.shell(documented("adopt")).returncode == 2
    (digest,) = re.findall(r"--despite ([0-9a-f]{64})", refused.stderr)
    old.do(documented("adopt").strip() + f" --despite {digest}")
    again = old.shell(f"{command()} run small.yaml")
    assert again.returncode == 2, "who labeled what is unknown, it must not go on"

    # A new machine, and the newest copy.
    shutil.rmtree(old.root / "artifacts")
    newer.rename(old.root / "artifacts")
    new = Machine(tmp_path / "new")
    shutil.rmtree(old.root / "backup")
    old.do(documented("backup"))
    shutil.copytree(old.root / "backup", new.root / "backup")
    assert "adopt it" in new.do(documented("restore"))
    refused = new.shell(f"{command()} run small.yaml")
    assert refused.returncode == 2
    assert "no anchor" in refused.stderr
    new.do(documented("adopt"))
    assert "paused" in new.do(f"{command()} run small.yaml")
    assert "report:" in new.label(1)
    assert "sound" in new.do(f"{command()} ledger verify artifacts")


def test_a_ledger_in_postgres_is_backed_up_and_restored(tmp_path, api, whole_postgres):  # noqa: F811
    for name in ("drill", "restored"):
        whole_postgres.make(name)
    before, after = whole_postgres.url("drill"), whole_postgres.url("restored")
    old = Machine(tmp_path / "old", ledger=before)
    assert "paused" in old.do(f"{command()} run small.yaml")
    old.do(documented("postgres-backup"), LEDGER=before)
    old.do(documented("postgres-restore"), NEW=after)
    moved = f"--set runtime.ledger={after}"
    where = f"--ledger {after}"
    verified = old.do(f"{command()} ledger verify artifacts {where}")  # the anchors are known here
    assert "sound" in verified
    assert "paused" in old.do(f"{command()} run small.yaml {moved}")

    new = Machine(tmp_path / "new", ledger=after)
    shutil.copytree(old.root / "artifacts", new.root / "artifacts")
    refused = new.shell(f"{command()} run small.yaml")
    assert refused.returncode == 2
    assert "no anchor" in refused.stderr
    new.do(documented("adopt").strip() + f" {where}")
    assert "paused" in new.do(f"{command()} run small.yaml")
