"""A name for a model that is to be used: only with a certificate that holds, and a reason."""

from __future__ import annotations

import shutil

import mlflow
import pytest

from dpal.certificate.dsse import fingerprint
from dpal.runs.model_line import registered_name
from flows.cli.verify import named_registry
from tasks.tracking.model_registry import register_model
from tests.certificate.conftest import finished
from tests.certificate.test_registry import SERVED
from tests.flows.calling import call, sentence

WHY = ("--reason", "the board agreed")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("promoted")


@pytest.fixture(scope="module")
def certified(place):
    """A finished campaign, without training anything."""
    return finished(place, "visible")


@pytest.fixture(scope="module")
def registry(place):
    uri = f"sqlite:///{place / 'registry.sqlite'}"
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("dpal", (place / "runs").as_uri())
    return uri


@pytest.fixture
def version(certified, place, registry):
    """Registers another version with the campaign's weights and certificate; gives its address."""
    from dpal.certificate.read_and_seal import to_text

    mlflow.set_tracking_uri(registry)
    mlflow.set_experiment("dpal")
    (place / "served.py").write_text(SERVED)
    (place / "certificate.json").write_text(to_text(certified.document))
    (place / "certificate.dsse.json").write_text(certified.signature)
    weights = place / "model.safetensors"
    shutil.copy(place / "small" / certified.document["model"]["file"], weights)

    def make(document=None, *, content=None, signed=True) -> str:
        if content is not None:
            weights.write_text(content)
        artifacts = {"weights": str(weights), "certificate": str(place / "certificate.json")}
        if signed:
            artifacts["signature"] = str(place / "certificate.dsse.json")
        with mlflow.start_run():
            uri = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(place / "served.py"),
                artifacts=artifacts,
                pip_requirements=[],
            ).model_uri
        if document is None:
            name = registered_name("small")
            from dpal.certificate.check_against import tags_of

            made = mlflow.register_model(uri, name, tags=tags_of(certified.document))
            return f"models:/{name}/{made.version}"
        name = registered_name("small")
        return f"models:/{name}/{register_model(document, uri, name)}"

    return make


def aliases(name: str) -> dict[str, str]:
    found = mlflow.MlflowClient().get_registered_model(name).aliases
    return {alias: str(number) for alias, number in found.items()}


def audited(certified, outcome: str | None, status: str = "FINISHED") -> None:
    """A run as an audit leaves it."""
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("dpal")
    assert experiment is not None
    tags = {
        "dpal.campaign": "small",
        "dpal.plan": certified.document["plan"]["digest"],
        "dpal.phase": "audit",
    }
    tags |= {"dpal.audit": outcome} if outcome else {}
    run = client.create_run(experiment.experiment_id, tags=tags)
    if status != "RUNNING":
        client.set_terminated(run.info.run_id, status)


def test_an_alias_moves_forth_and_back_and_says_why(certified, registry, version):
    first, second = version(), version()
    name = registered_name("small")
    for uri, who in ((first, "ada"), (second, "bo"), (first, "ada")):
        arguments = ["--to", "champion", "--by", who, *WHY, "--ledger", str(certified.file)]
        done = call("promote", uri, *arguments, "--key", certified.key, "--mlflow", registry)
        assert done.returncode == 0, done
        number = uri.rpartition("/")[2]
        assert aliases(name)["champion"] == number
        assert f"models:/{name}@champion" in done.stdout
        tags = mlflow.MlflowClient().get_model_version(name, number).tags
        assert (tags["champion.by"], tags["champion.reason"]) == (who, "the board agreed")
        assert "ledger, model" in tags["champion.checked"]
        assert f"key {fingerprint(certified.key)}" in tags["champion.author"]
        assert "champion.until" not in tags
    left = mlflow.MlflowClient().get_model_version(name, second.rpartition("/")[2]).tags
    assert left["champion.until"] >= left["champion.at"]
    shown = call("promote", f"models:/{name}", "--show", "--mlflow", registry).stdout
    assert "by ada: the board agreed" in shown
    assert " until " in shown and "by bo: the board agreed" in shown
    assert "epsilon 8 at delta 0.000166667, adjacency zero_out, unit record" in shown


@pytest.mark.slow
def test_without_a_reason_nothing_moves(registry, version):
    uri = version()
    assert "--reason" in sentence(call("promote", uri, "--mlflow", registry))
    assert "no alias" in sentence(call("promote", uri, "--to", "v3", *WHY, "--mlflow", registry))


def test_a_model_that_does_not_fit_its_certificate_is_refused(registry, version):
    name, forged = registered_name("small"), version(content="other weights")
    before = aliases(name)
    done = call("promote", forged, *WHY, "--mlflow", registry)
    assert done.returncode == 1, done
    assert "none of small's" in " ".join(done.stdout.split())
    assert "was not promoted" in done.stdout
    sound = version()
    number = sound.rpartition("/")[2]
    mlflow.MlflowClient().set_model_version_tag(name, number, "epsilon", "1")
    done = call("promote", sound, *WHY, "--mlflow", registry)
    assert (done.returncode, aliases(name)) == (1, before)


@pytest.mark.slow
def test_a_failed_or_unfinished_audit_is_in_the_way(certified, registry, version):
    uri, name = version(), registered_name("small")
    before = aliases(name)
    who = ("--key", certified.key, "--mlflow", registry)
    promote = ("promote", uri, *WHY, "--to", "challenger", *who)
    audited(certified, "failed")
    assert "its report" in sentence_after_checks(call(*promote))
    audited(certified, None, "RUNNING")
    assert "not ended" in sentence_after_checks(call(*promote))
    assert aliases(name) == before
    audited(certified, "passed")
    assert call(*promote).returncode == 0
    assert aliases(name)["challenger"] == uri.rpartition("/")[2]


def sentence_after_checks(result) -> str:
    """The refusal below the checks that were printed."""
    result.stdout = ""
    return sentence(result)


def test_a_model_of_an_unknown_author_needs_a_word_that_is_kept(certified, registry, version):
    """Nobody signed it, or nobody known here did; a person may say why it is used all the same."""
    name = registered_name("small")
    before = aliases(name)
    unsigned, foreign = version(signed=False), version()
    for uri in (unsigned, foreign):
        refused = call("promote", uri, *WHY, "--to", "candidate", "--mlflow", registry)
        assert refused.returncode == 3, refused
        assert "author is" in refused.stdout
        assert "--author-unknown TEXT" in refused.stdout
    other = "11" * 32
    wrong = call(
        "promote", foreign, *WHY, "--to", "candidate", "--key", other, "--mlflow", registry
    )
    assert wrong.returncode == 1, wrong
    assert aliases(name) == before
    said = ("--author-unknown", "trained here in May, before models were signed")
    done = call("promote", unsigned, *WHY, "--to", "candidate", *said, "--mlflow", registry)
    assert done.returncode == 0, done
    number = unsigned.rpartition("/")[2]
    tags = mlflow.MlflowClient().get_model_version(name, number).tags
    assert tags["candidate.author"] == f"author unknown: {said[1]}"
    shown = call("promote", f"models:/{name}", "--show", "--mlflow", registry).stdout
    assert f"author unknown: {said[1]}" in shown


def test_this_machines_own_key_is_trusted_without_a_word(
    certified, registry, version, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shutil.copytree(certified.signer.folder, tmp_path / "dpal" / "anchors")
    done = call("promote", version(), *WHY, "--to", "mine", "--mlflow", registry)
    assert done.returncode == 0, done
    assert "own key" in done.stdout


@pytest.mark.slow
def test_another_ledger_is_refused(registry, version, tmp_path):
    from tests.certificate.certifying import plan_of, run

    other, _ = run(tmp_path, plan_of("visible"))
    done = call("promote", version(), *WHY, "--ledger", str(other), "--mlflow", registry)
    assert done.returncode == 1, done
    assert "another ledger" in " ".join(done.stdout.split())


def test_the_server_of_our_runs_comes_before_the_one_that_mlflow_sets(monkeypatch, tmp_path):
    """Whatever MLflow was told in a process, it tells all that this process starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.sqlite")
    assert named_registry(None) == "sqlite:///elsewhere.sqlite"
    monkeypatch.setenv("DPAL_MLFLOW_URI", "http://ours")
    assert named_registry(None) == "http://ours"
    assert named_registry("http://named") == "http://named"
