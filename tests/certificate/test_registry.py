"""Certified models in a real MLflow registry."""

from __future__ import annotations

import json
import shutil

import mlflow
import pytest

from dpal.canonical import file_digest
from dpal.certificate.check_against import tags_of
from dpal.certificate.read_and_seal import sealed_certificate, to_text
from dpal.errors import CertificateError
from dpal.runs.model_line import registered_name
from tasks.tracking.model_registry import fetch_registered_model, register_model
from tests.flows.calling import call, sentence

SERVED = """
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

class Served(PythonModel):
    def predict(self, context, model_input: list[str], params=None) -> list[str]:
        return model_input

set_model(Served())
"""


@pytest.fixture(scope="module")
def logged(visible, mlflow_uri, tmp_path_factory):
    """One model in one run, with weights and certificate, as a campaign logs it."""
    place = tmp_path_factory.mktemp("logged")
    (place / "served.py").write_text(SERVED)
    (place / "certificate.json").write_text(to_text(visible.document))
    (place / "certificate.dsse.json").write_text(visible.signature)
    weights = visible.place / "small" / visible.document["model"]["file"]
    shutil.copy(weights, place / "model.safetensors")
    mlflow.set_tracking_uri(mlflow_uri)
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("r", (place / "runs").as_uri()))

    def log(name, **artifacts):
        with mlflow.start_run():
            return mlflow.pyfunc.log_model(
                name=name,
                python_model=str(place / "served.py"),
                artifacts={key: str(path) for key, path in artifacts.items()},
                pip_requirements=[],
            ).model_uri

    whole = {"weights": place / "model.safetensors", "certificate": place / "certificate.json"}
    signed = {**whole, "signature": place / "certificate.dsse.json"}
    bare = log("bare", weights=whole["weights"])
    return place, log("whole", **signed), bare, log("unsigned", **whole)


def test_a_model_is_registered_once_with_its_certificates_tags(logged, visible, mlflow_uri):
    _, whole, _, _ = logged
    number = register_model(visible.document, whole, registered_name("small"))
    assert register_model(visible.document, whole, registered_name("small")) == number
    name = registered_name("small")
    versions = [
        one
        for one in mlflow.MlflowClient().search_model_versions(f"name = '{name}'")
        if one.tags.get("dpal.certificate") == visible.document["digest"]  # others share the name
    ]
    assert [str(one.version) for one in versions] == [number]
    tags = versions[0].tags
    assert {tags[key] for key in ("epsilon", "delta", "adjacency", "unit")} == {
        "8", "0.000166667", "zero_out", "record"
    }  # fmt: skip
    assert tags["dpal.certificate"] == visible.document["digest"]
    assert tags["ledger.head"] == visible.document["ledger"]["head"]["digest"]
    registered = fetch_registered_model(f"models:/{name}/{number}", mlflow_uri)
    assert registered.certificate == visible.document
    assert registered.model.sha256 == visible.document["model"]["sha256"]

    arguments = ["--model", f"models:/{name}/{number}", "--mlflow", mlflow_uri, "--json"]
    assert registered.signature == visible.signature
    verified = call("verify", *arguments, "--ledger", str(visible.file), "--key", visible.key)
    assert verified.returncode == 0, verified
    assert next(
        one["outcome"] for one in json.loads(verified.stdout)["checks"] if one["check"] == "model"
    ) == "ok"  # fmt: skip


def test_a_registered_model_whose_tags_do_not_fit_is_refused(logged, visible, mlflow_uri):
    _, whole, _, _ = logged
    number = register_model(visible.document, whole, registered_name("small"))
    client, name = mlflow.MlflowClient(), registered_name("small")
    client.set_model_version_tag(name, number, "epsilon", "1")
    try:
        address = f"models:/{name}/{number}"
        result = call("verify", "--model", address, "--mlflow", mlflow_uri)
        assert result.returncode == 1
        assert "is '1', the" in " ".join(result.stdout.split())
        assert "author unknown" not in result.stdout
    finally:
        client.set_model_version_tag(name, number, "epsilon", "8")


def test_another_certificate_than_the_models_own_is_refused(logged, visible, mlflow_uri, tmp_path):
    _, whole, _, _ = logged
    number = register_model(visible.document, whole, registered_name("small"))
    other = tmp_path / "certificate.json"
    other.write_text(to_text(sealed_certificate({**visible.document, "versions": {"dpal": "9"}})))
    address = f"models:/{registered_name('small')}/{number}"
    said = sentence(call("verify", str(other), "--model", address, "--mlflow", mlflow_uri))
    assert "another certificate" in said


def test_a_model_without_a_certificate_is_refused(logged, visible, mlflow_uri):
    place, _, bare, _ = logged
    assert file_digest(place / "model.safetensors") == visible.document["model"]["sha256"]
    number = mlflow.register_model(bare, "bare").version
    said = sentence(call("verify", "--model", f"models:/bare/{number}", "--mlflow", mlflow_uri))
    assert "carries no certificate, so nothing is known about what it cost" in said


def test_a_model_that_is_not_there_is_said(mlflow_uri):
    with pytest.raises(CertificateError, match="fetched"):
        fetch_registered_model("models:/nobody/1", mlflow_uri)


def test_a_model_that_was_registered_without_a_signature_has_no_known_author(
    logged, visible, mlflow_uri, tmp_path
):
    """As earlier versions did. Once its campaign is signed, both together are known again."""
    number = mlflow.register_model(logged[3], "unsigned", tags=tags_of(visible.document)).version
    given = ["--model", f"models:/unsigned/{number}", "--mlflow", mlflow_uri, "--key", visible.key]
    before = call("verify", *given)
    assert before.returncode == 3, before
    assert "author unknown: epsilon 8" in before.stdout.splitlines()[-1]
    certificate = tmp_path / "certificate.json"
    certificate.write_text(to_text(visible.document))
    assert call("verify", str(certificate), *given).returncode == 3
    certificate.with_name("certificate.dsse.json").write_text(visible.signature)
    assert call("verify", str(certificate), *given).returncode == 0
