"""A command that only answers or refuses does not wait for what it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.variants import quick_and_slow

# Each takes between a tenth of a second and several seconds to import.
HEAVY = (
    "numpy", "torch", "prefect", "mlflow", "opacus", "pandas", "pyarrow", "matplotlib",
    "sqlalchemy", "dp_accounting", "scipy.special", "scipy.signal", "scipy.stats", "scipy.optimize",
    "sklearn",
)  # fmt: skip
ASKED = """
import sys
from flows.cli.main import main
sys.argv = ["dpal", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    code = ended.code
print("loaded:", *sorted(set({heavy}) & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def asked(*arguments: str) -> tuple[int, str]:
    """Exit code of a command, and which heavy modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(heavy=HEAVY), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    quick_and_slow(["", "run"], ["", "plan", "run", "verify", "ledger", "data", "vote", "capc"]),
)
def test_help_loads_nothing_heavy(command):
    assert asked(*command.split(), "--help") == (0, "loaded:")


@pytest.mark.slow
def test_what_settings_refuse_loads_nothing_heavy(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nprivacy: {epsilon: -1}\n", encoding="utf-8")
    for command in ("plan", "run", "simulate", "audit"):
        assert asked(command, str(file)) == (2, "loaded:")
    assert asked("plan", str(tmp_path / "missing.yaml")) == (2, "loaded:")


@pytest.mark.slow
def test_the_look_at_modules_can_fail():
    code, loaded = asked("ledger", "show", "nowhere")
    assert code == 2
    assert {"sqlalchemy", "pyarrow"} <= set(loaded.split())
