"""What a wheel has, under which names, and that it works without the checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import build_backend
import dpal
from tests.conftest import ROOT

WHERE = Path(sys.prefix)  # an environment may lie in the checkout

# Notes every file of the checkout that any Python of the environment opens, code or data.
WATCH = """
import os, sys
_file = os.open({file!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_root, _ours = {root!r} + os.sep, {ours!r} + os.sep

def _note(event, arguments):
    path = arguments[0] if event == "open" and arguments else None
    path = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
    if path.startswith(_root) and not path.startswith(_ours):
        os.write(_file, (path + chr(10)).encode())

sys.addaudithook(_note)
"""
# Packages of those names that somebody else has.
FOREIGN = ("flows", "tasks")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What a wheel is built from."""
    folder = tmp_path_factory.mktemp("copy")
    build_backend.copy_moved(ROOT, folder)
    return folder


@pytest.mark.slow
def test_every_module_is_renamed_wherever_it_is_named(copy):
    for path in (copy / "dpal").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                first, _, rest = name.partition(".")
                assert first not in FOREIGN, path
                if first == "dpal" and rest:
                    found = copy.joinpath(*name.split("."))
                    assert found.is_dir() or found.with_suffix(".py").is_file(), (path, name)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                left = re.findall(r"(?<![\w./])(?:flows|tasks)\.[a-z_]+", node.value)
                assert not [name for name in left if exists(name)], path


def exists(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.slow
def test_nothing_else_is_changed(copy):
    """Renamed back, each module is what the checkout has."""
    for path in (copy / "dpal").rglob("*.py"):
        place = path.relative_to(copy / "dpal")
        room = ROOT if place.parts[0] in build_backend.MOVED else ROOT / "dpal"
        text = path.read_text(encoding="utf-8")
        back = re.sub(r"\bdpal\.(?=flows\b|tasks\b)", "", text)
        assert back == (room / place).read_text(encoding="utf-8"), place


@pytest.mark.slow
def test_the_entry_points_are_renamed(copy):
    text = (copy / "pyproject.toml").read_text(encoding="utf-8")
    assert '"dpal.flows.cli.main:main"' in text
    assert '"dpal.tasks.tracking.server_app:create_app"' in text


@pytest.mark.parametrize("line", ["import flows", "from tasks.nowhere import one"])
def test_what_cannot_be_renamed_is_not_built(line):
    with pytest.raises(ValueError, match=rf"line 2: {line.split()[1]} "):
        build_backend._require_moved(Path("one.py"), f"import os\n{line}\n")


def test_the_sample_is_what_is_pinned(tmp_path):
    found = build_backend.samples(ROOT)
    assert set(found) >= {"README.md", "digits-pool.parquet", "digits-validation.parquet"}
    shutil.copytree(ROOT / ".dvc" / "samples", tmp_path / ".dvc" / "cache")  # of any other remote
    shutil.copy(ROOT / "data.dvc", tmp_path)
    assert build_backend.samples(tmp_path) == found
    stored = next(
        path
        for path in (tmp_path / ".dvc").rglob("*")
        if path.is_file() and path.read_bytes() == found["README.md"]
    )
    stored.write_bytes(b"something else")
    with pytest.raises(ValueError, match=stored.name):
        build_backend.samples(tmp_path)
    stored.unlink()
    with pytest.raises(FileNotFoundError, match=stored.name):
        build_backend.samples(tmp_path)


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "-q", "--disable-pip-version-check"], check=True
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # Nothing is fetched: what builds it is installed here.
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory, wheel):
    """Programs of an environment with the wheel, what it needs, and two packages of others."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    pip("--python", python, "install", "--no-deps", str(wheel))
    (packages,) = place.glob("lib/python*/site-packages")
    for name in FOREIGN:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("OF_SOMEBODY_ELSE = True\n")
    shared = [path for path in sys.path if Path(path).name == "site-packages"]
    # A path is added without what its own .pth files do: the checkout is not found.
    (packages / "shared.pth").write_text("\n".join(shared), encoding="utf-8")
    watch = WATCH.format(file=str(place / "opened"), root=str(ROOT), ours=str(WHERE))
    (packages / "watch_opened.py").write_text(watch, encoding="utf-8")
    (packages / "aa_watch.pth").write_text("import watch_opened\n", encoding="utf-8")
    return place / "bin"


@pytest.fixture(scope="module")
def run(bin_folder, tmp_path_factory):
    """Runs a program of that environment in an empty folder; returns its exit code and output."""
    empty = tmp_path_factory.mktemp("empty")

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [str(bin_folder / program), *arguments], capture_output=True, text=True, check=False,
            cwd=empty, env={**environment, "XDG_STATE_HOME": str(empty.parent / "wheel-state")},
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr
        return done

    return run


@pytest.mark.slow
def test_a_wheel_takes_one_name(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = {Path(name).parts[0] for name in opened.namelist()}
        files = set(opened.namelist())
    assert names == {"dpal", f"dpal-{dpal.__version__}.dist-info"}
    assert files >= {
        "dpal/py.typed", "dpal/reports/templates/report.html", "dpal/flows/configs/digits.yaml",
        "dpal/flows/pools/docker.json", "dpal/flows/samples/README.md",
        "dpal/flows/samples/digits-pool.parquet",
    }  # fmt: skip
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dpal").rglob("*.py")}
    modules |= {f"dpal/{path.relative_to(ROOT)}" for room in build_backend.MOVED
                for path in (ROOT / room).rglob("*.py")}  # fmt: skip
    assert {name for name in files if name.endswith(".py")} == modules


@pytest.mark.slow
def test_the_demo_runs_outside_of_the_checkout(run, bin_folder):
    done = run("dpal", "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "artifacts/digits"
    campaign = ["artifacts/digits", "--ledger", "artifacts/digits", "--key", "own"]
    model = ["--model", "artifacts/digits/phase-3/model.safetensors"]
    checked = run("dpal", "verify", *campaign, *model, "--json")
    assert checked.returncode == 0, checked.stderr
    assert all(check["outcome"] != "failed" for check in json.loads(checked.stdout)["checks"])
    again = run("dpal", "demo")
    assert again.returncode == 0, again.stderr

    answers = run("dpal", "predict", "artifacts/digits", "data/digits-validation.parquet",
                  "--to", "answers.parquet")  # fmt: skip
    assert answers.returncode == 0, answers.stderr
    planned = run("dpal", "plan", "digits.yaml", "--json")
    assert planned.returncode == 0, planned.stderr
    library = (
        "import dpal, flows, tasks; assert flows.OF_SOMEBODY_ELSE and tasks.OF_SOMEBODY_ELSE;"
        "print(dpal.plan(dpal.settings('digits.yaml')).epsilon)"
    )
    certified = run("python", "-c", library)
    assert certified.returncode == 0, certified.stderr
    assert 7 < float(certified.stdout) <= 8
    finished = run("dpal", "run", "digits.yaml")
    assert finished.returncode == 0, finished.stderr
    for kind in ("campaign", "public", "pate", "vote"):
        assert run("dpal", "init", f"my-{kind}", "--kind", kind).returncode == 0
    assert run("dpal", "serve", "--help").returncode == 0
    server = run("python", "-P", "-m", "dpal.flows.ops.prefect_app", "--help")
    assert server.returncode == 0, server.stderr
    entry = "from importlib.metadata import entry_points as e; e(group='mlflow.app')['dpal'].load()"
    assert run("python", "-c", entry).returncode == 0

    opened = (bin_folder.parent / "opened").read_text()
    assert opened == "", "files of the checkout were opened"
    run("python", "-c", f"open({str(ROOT / 'README.md')!r})")  # and who looks would see it
    assert (bin_folder.parent / "opened").read_text() == f"{ROOT / 'README.md'}\n"


def test_the_folder_mlflow_hides_no_package():
    """Its name is that of the tool; it has no code, so that whoever imports mlflow gets MLflow."""
    assert not list((ROOT / "mlflow").rglob("*.py"))
    asked = "import importlib.util; print(importlib.util.find_spec('mlflow').origin)"
    found = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).parent != ROOT / "mlflow"
    assert Path(found.stdout.strip()).name == "__init__.py"
