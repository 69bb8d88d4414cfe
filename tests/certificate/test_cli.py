"""`dpal verify` as a person calls it, on a machine with everything and on one with little."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import venv
from contextlib import closing

import pytest

from dpal.canonical import canonical_json, file_digest
from dpal.certificate.dsse import as_pem, fingerprint
from dpal.certificate.read_and_seal import sealed_certificate, to_text
from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.ledger.entries import EntryKind
from dpal.ledger.signing_key import SigningKey
from dpal.planning.certify_campaign import certified_plan
from tests.certificate.certifying import (
    POOL,
    SALT,
    certified,
    forged,
    run,
    with_delta,
    write_model,
)
from tests.conftest import ROOT, small_spec
from tests.flows.calling import call, sentence

HEAVY = ["torch", "torchvision", "opacus", "prefect", "mlflow", "dvc", "pandas", "pyarrow",
         "matplotlib", "safetensors", "fastapi", "httpx", "PIL", "tasks"]  # fmt: skip

# Whatever of these is imported raises, wherever the import stands.
BLOCKED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(f"{{name}} is not installed on this machine")

sys.meta_path.insert(0, Refuse())
from flows.cli.main import main
sys.argv = ["dpal", *sys.argv[1:]]
main()
"""


@pytest.fixture
def folder(visible, tmp_path):
    """A campaign's folder with its certificate, below an artifacts folder with the ledger."""
    root = tmp_path / "artifacts" / "small"
    shutil.copytree(visible.place / "small", root)
    shutil.copy(visible.file, root.parent / "ledger.sqlite")
    (root / "certificate.json").write_text(to_text(visible.document))
    (root / "certificate.dsse.json").write_text(visible.signature)
    (tmp_path / "owner.pem").write_text(as_pem(visible.key))
    (root / "pool.salt").write_bytes(SALT)
    (tmp_path / "pool.parquet").write_bytes(POOL)
    return root


def everything(folder):
    """All options that need no registry."""
    model = folder / "phase-2" / "model.safetensors"
    pool = folder.parent.parent / "pool.parquet"
    key = folder.parent.parent / "owner.pem"
    given = ["--ledger", str(folder), "--model", str(model), "--data", str(pool)]
    return [str(folder), *given, "--key", str(key)]


def outcomes(result):
    return {one["check"]: one["outcome"] for one in json.loads(result.stdout)["checks"]}


def test_a_true_certificate_exits_0_and_says_the_promise(folder, visible, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    result = call("verify", *everything(folder))
    assert result.returncode == 0, result
    assert "FAILED" not in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("ok: epsilon 8 at delta 0.0001667, adjacency zero_out, unit record")
    assert f"by key {fingerprint(visible.key)}" in last
    assert last.endswith("not checked: other campaigns")


def test_a_changed_one_exits_1_and_says_so(folder, visible):
    lower = {**visible.document, "epsilon": {**visible.document["epsilon"], "pld": 1.0}}
    path = folder / "lower.json"
    path.write_text(to_text(sealed_certificate(lower)))
    result = call("verify", str(path), "--ledger", str(folder))
    assert result.returncode == 1
    assert "too little is stated" in " ".join(result.stdout.split())
    assert result.stdout.splitlines()[-1].startswith("FAILED: ")
    again = call("verify", str(path), "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["verified"] is False


def test_what_was_not_given_is_listed_as_not_checked(folder):
    result = call("verify", str(folder / "certificate.json"), "--json")
    assert result.returncode == 3
    unchecked = {name for name, outcome in outcomes(result).items() if outcome == "not checked"}
    assert unchecked == {"ledger", "model", "pool's file", "other campaigns", "author"}


def test_another_model_and_another_pool_are_refused(folder):
    other = folder.parent / "other.parquet"
    other.write_bytes(b"other")
    result = call("verify", str(folder), "--model", str(other), "--data", str(other), "--json")
    assert result.returncode == 1
    assert outcomes(result)["model"] == outcomes(result)["pool's file"] == "FAILED"


def test_a_pool_without_its_salt_is_not_checked(folder, tmp_path):
    alone = tmp_path / "alone.json"
    shutil.copy(folder / "certificate.json", alone)
    pool, salt = tmp_path / "pool.parquet", folder / "pool.salt"
    result = call("verify", str(alone), "--data", str(pool), "--json")
    assert outcomes(result)["pool's file"] == "not checked"
    named = call("verify", str(alone), "--data", str(pool), "--salt", str(salt), "--json")
    assert outcomes(named)["pool's file"] == "ok"
    found = call(
        "verify", str(alone), "--data", str(pool), "--ledger", str(folder.parent), "--json"
    )
    assert outcomes(found)["pool's file"] == outcomes(found)["ledger"] == "ok"


def forged_folder(folder, visible, content):
    """A ledger chained anew, signed by the forger's own key, around a file of any content."""
    place = folder.parent.parent / "forged"
    _, entries = run(place, visible.plan)
    path = place / "small" / "phase-2" / "model.safetensors"
    path.write_bytes(content)

    def another(entry, body):
        if entry.kind is EntryKind.COMMIT and entry.release == "phase-2/training":
            body["artifacts"] = {"phase-2/model.safetensors": file_digest(path)}

    again = forged(entries, another)
    rewrite(place / "ledger.sqlite", again)
    document, signer = certified(again, visible.plan), SigningKey(place / "anchors")
    (place / "small" / "certificate.json").write_text(to_text(document))
    statement = certificate_statement(document, signer.public_key())
    (place / "small" / "certificate.dsse.json").write_text(sign_statement(statement, signer))
    return place / "small", path


def rewrite(file, entries):
    """Puts other entries into a ledger, as somebody who owns its file can."""
    with closing(sqlite3.connect(file)) as raw:
        for (trigger,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            raw.execute(f"DROP TRIGGER {trigger}")
        for entry in entries:
            raw.execute(
                "UPDATE entries SET body = ?, previous = ?, digest = ? WHERE sequence = ?",
                (canonical_json(entry.body), entry.previous, entry.digest, entry.sequence),
            )
        raw.commit()


def test_a_ledger_that_was_chained_anew_around_a_text_is_refused(folder, visible):
    """34 bytes of text passed for the campaign's final model, with exit code 0."""
    text = b"these 34 bytes are no model at all"
    assert len(text) == 34
    place, path = forged_folder(folder, visible, text)
    result = call("verify", str(place), "--ledger", str(place), "--model", str(path), "--json")
    assert result.returncode == 1
    assert {name for name, found in outcomes(result).items() if found == "FAILED"} == {"model"}
    assert "no safetensors file" in result.stdout


def test_a_forgery_around_a_true_model_is_consistent_and_its_author_unknown(
    folder, visible, monkeypatch
):
    """Nothing in it contradicts itself; only the owner's key tells it from the true one."""
    monkeypatch.setenv("COLUMNS", "400")
    model = folder.parent / "forged.safetensors"
    write_model(model, "the forger's")
    place, path = forged_folder(folder, visible, model.read_bytes())
    given = ["verify", str(place), "--ledger", str(place), "--model", str(path)]
    alone = call(*given)
    assert alone.returncode == 3, alone
    last = alone.stdout.splitlines()[-1]
    assert last.startswith("consistent, ") and "unknown: epsilon 8 at delta 0.0001667" in last
    assert "anybody could have written it" in last
    assert last.endswith(f"Then: dpal {' '.join(given)} --key KEY")
    owner = call(*given, "--key", visible.key)
    assert owner.returncode == 1, owner
    assert "which is none that you named" in owner.stdout


def test_the_four_exit_codes_and_the_same_in_json(folder, visible):
    given = ["verify", str(folder), "--ledger", str(folder), "--json"]
    known = call(*given, "--key", visible.key)
    unknown, wrong = call(*given), call(*given, "--key", "11" * 32)
    unreadable = call(*given, "--key", "no key")
    codes = [one.returncode for one in (known, wrong, unreadable, unknown)]
    assert codes == [0, 1, 2, 3]
    for result, said in ((known, (True, True)), (unknown, (False, True)), (wrong, (False, False))):
        content = json.loads(result.stdout)
        assert (content["verified"], content["consistent"]) == said
        assert content["exit"] == result.returncode
        assert content["author"]["known"] is (result is known)
    assert json.loads(unknown.stdout)["author"] == {
        "known": False,
        "key": visible.key,
        "fingerprint": fingerprint(visible.key),
    }
    assert "no Ed25519 public key" in unreadable.stderr


def test_a_signature_that_lies_elsewhere_can_be_named(folder, visible, tmp_path):
    moved = tmp_path / "elsewhere.json"
    (folder / "certificate.dsse.json").rename(moved)
    given = ["verify", str(folder), "--key", visible.key]
    assert call(*given).returncode == 3
    assert call(*given, "--signature", str(moved)).returncode == 0
    nowhere = str(tmp_path / "nowhere")
    assert "signature at" in sentence(call(*given, "--signature", nowhere))


def test_own_is_the_key_of_this_machine(folder, visible, tmp_path, monkeypatch):
    """Whoever has the anchors of a ledger needs no digits; others are told what to do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "400")
    given = ["verify", str(folder), "--key", "own"]
    assert "key yet" in sentence(call(*given))
    assert "key yet" in sentence(call("ledger", "key"))
    shutil.copytree(visible.signer.folder, tmp_path / "state" / "dpal" / "anchors")
    known = call(*given)
    assert known.returncode == 0, known
    assert "own key" in known.stdout.splitlines()[-1]
    hinted = call("verify", str(folder))
    assert hinted.returncode == 3
    assert hinted.stdout.splitlines()[-1].endswith(f"dpal verify {folder} --key own")
    shown = call("ledger", "key")
    assert visible.key in shown.stdout and fingerprint(visible.key) in shown.stdout
    assert call("ledger", "key", "--pem").stdout == as_pem(visible.key)


def test_a_strangers_folder_does_not_say_whose_key_is_ours(folder, visible, tmp_path, monkeypatch):
    """Its settings may name anchors that came with it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runtime = {"artifacts": str(folder.parent), "anchors": str(visible.signer.folder)}
    (folder / "campaign.json").write_text(json.dumps({"config": {"runtime": runtime}}))
    given = ("verify", str(folder), "--key", "own")
    assert "key yet" in sentence(call(*given))
    SigningKey(tmp_path / "state" / "dpal" / "anchors").public_key()
    refused = call(*given)
    assert refused.returncode == 1
    assert "which is none that you named" in refused.stdout
    theirs = call("ledger", "key", "--anchors", str(visible.signer.folder))
    assert visible.key in theirs.stdout  # where its owner says so


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a certificate.json"),
        (["nowhere"], "certificate at nowhere"),
        (["{folder}/pool.salt"], "certificate that"),
        (["{folder}", "--ledger", "/nowhere"], "ledger at /nowhere"),
        (["{folder}", "--ledger", "{folder}/phase-2"], "no ledger in"),
        (["{folder}", "--model", "nowhere"], "model at nowhere"),
        (["{folder}", "--data", "nowhere"], "file at nowhere"),
        (["{folder}", "--data", "{folder}/pool.salt", "--salt", "nowhere"], "salt at nowhere"),
        (["--model", "models:/small"], "use models:/NAME/VERSION"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(folder, arguments, said):
    assert said in sentence(call("verify", *(one.format(folder=folder) for one in arguments)))


@pytest.mark.slow
def test_it_needs_nothing_that_trains_orchestrates_or_tracks(folder):
    """With an import system that refuses them all, and with `tasks`, too."""
    program = BLOCKED.format(names=set(HEAVY))
    result = subprocess.run(
        [sys.executable, "-c", program, "verify", *everything(folder), "--json"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert set(outcomes(result).values()) == {"ok", "not checked"}
    refused = subprocess.run(
        [sys.executable, "-c", program, "verify", "--model", "models:/small/1"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert refused.returncode == 2  # the block does block
    assert "not installed" in refused.stderr


# What dpal needs besides whatever dp-accounting brings along.
LIGHT = ["dp-accounting", "typer", "rich", "sqlalchemy", "pydantic", "pyyaml", "psutil",
         "cryptography", "platformdirs", "cronsim"]  # fmt: skip


@pytest.mark.slow
def test_it_runs_in_an_environment_that_has_little_else(folder, tmp_path, monkeypatch):
    for name in ("PYTHONPATH", "PYTHONHOME"):  # would bring in the environment of the tests
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *LIGHT, "-c", str(ROOT / "constraints.txt")], check=True)
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True)
    command = [str(place / "bin" / "dpal"), "verify", *everything(folder), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    assert set(outcomes(result).values()) == {"ok", "not checked"}
    for name in ("torch", "mlflow", "prefect", "pyarrow", "pandas"):
        probe = subprocess.run(
            [str(python), "-c", f"import {name}"], capture_output=True, cwd=tmp_path, check=False
        )
        assert probe.returncode != 0, name


def test_a_delta_of_published_results_is_in_the_last_line(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    plan = certified_plan(with_delta(1 / 500, small_spec(strategy="naive"))).plan
    path = tmp_path / "certificate.json"
    path.write_text(to_text(certified(run(tmp_path, plan)[1], plan)))
    result = call("verify", str(path))
    assert result.returncode == 3, result
    mark = "PAPER: delta 0.002"
    assert mark in result.stdout.splitlines()[-1]
