"""`dpal capc`: every party a process of its own, also one that is killed amid a query."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpal.capc import querier_service
from dpal.capc.certificate_authority import KEY, PartyRole, load_identity
from dpal.capc.precomputed_shares import SharedQueries, read_shares
from dpal.capc.terms import VoteMode
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.verify import verify_certificate
from dpal.config.capc import GuardianConfig, SiteConfig, SitesVoteConfig, parse_capc
from dpal.errors import CampaignBusy, ConfigError, DataError, VoteAborted
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.site_model import read_bought, read_labeled
from dpal.runs.sites_demo_files import Demo
from dpal.runs.sites_parties import (
    load_site_model,
    query_digests,
    read_answers,
    read_queries,
    run_site,
)
from flows.cli.read_settings import read_values
from tests.capc.demos import DATA, copies_of_a_demo
from tests.capc.parties import Authority
from tests.capc.shared_outcomes import evaluated, write_shares
from tests.capc.together import terms_of
from tests.flows.calling import call

WAIT = 90.0  # seconds, on a busy machine
ENDS = 20.0  # of which a vote takes 10, and a command the rest to begin and to end


def dpal(*arguments: object) -> tuple[int, str, str]:
    """Code, output and complaint of a command, which is one sentence at most."""
    done = call("capc", *map(str, arguments))
    assert len(done.stderr.strip().splitlines()) <= 1
    return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def party(command: str, file: Path):
    """A party's process; its lines are in a file beside its settings."""
    log = file.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "capc", command, "--config", str(file)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(log: Path, words: str) -> None:
    until = time.monotonic() + WAIT
    while not (log.exists() and words in log.read_text(encoding="utf-8")):
        assert time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copies_of_a_demo(tmp_path_factory.mktemp("made") / "demo")


@pytest.fixture
def demo(copied, tmp_path):
    return copied(tmp_path / "demo")


def ledger_of(demo):
    anchors = yaml.safe_load(demo.guardian.read_text(encoding="utf-8"))["runtime"]["anchors"]
    artifacts = demo.certificate.parent.parent
    with contextlib.closing(
        LedgerStore(
            artifacts / "ledger.sqlite", create=False, anchors=Path(anchors), campaigns=artifacts
        )
    ) as store:
        return [(entry.kind, entry.release) for entry in store.entries()]


@pytest.mark.slow
def test_the_demo_ends_with_a_page_and_a_certificate(tmp_path):
    folder = tmp_path / "demo"
    code, _, complaint = dpal("demo", "--folder", folder, "--data", DATA)
    assert code == 0, complaint
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "query-12" in page
    found = list(folder.rglob("certificate.json"))
    assert len(found) == 1
    document = read_certificate(found[0].read_text(encoding="utf-8"))
    assert not any_failed(verify_certificate(document))
    answers = read_answers(folder / "ministry" / "answers.parquet")
    assert len(answers) == 12 and {len(row.labels) for row in answers.values()} == {3}
    keys = list(folder.rglob(KEY))
    assert len(keys) == 8 and {path.stat().st_mode & 0o077 for path in keys} == {0}
    assert dpal("demo", "--folder", folder, "--data", DATA)[0] == 2


def change(file: Path, *without: str, **values: Any) -> None:
    """Other settings in a file."""
    own = yaml.safe_load(file.read_text(encoding="utf-8"))
    kept = {name: value for name, value in own.items() if name not in without}
    file.write_text(yaml.safe_dump({**kept, **values}), encoding="utf-8")


def in_shares(demo: Demo, features: np.ndarray) -> SharedQueries:
    """A demo of mode shares, as if every site's model had been evaluated on the queries before."""
    change(demo.folder / "vote.yaml", "features", mode="shares")
    files, held, rng = {}, {}, np.random.default_rng()
    for site, file in demo.sites.items():
        model = load_site_model(file.parent / "model.safetensors")
        own, other = evaluated(model, features, rng)
        number = len(list((file.parent / "shares").glob("*")))
        write_shares(file.parent / "shares" / f"{number}.npz", other)
        change(file, "model", shares="shares")
        files[site] = write_shares(demo.querier.parent / f"{site}.npz", own).name
        held[site] = read_shares(demo.querier.parent / f"{site}.npz")
    change(demo.querier, shares=files)
    return SharedQueries(np.arange(len(features), dtype=np.uint32), held)


@pytest.mark.slow
@pytest.mark.parametrize("mode", VoteMode, ids=str)
def test_a_guardian_killed_amid_a_query_tells_nothing_and_charges_once(demo, mode):
    """And masks and keys serve once: they went with the processes, and a new session has others."""
    if mode is VoteMode.STRICT:  # in which noisy counts are charged, and cost more
        change(demo.folder / "vote.yaml", mode="strict", epsilon=80.0)
    _, features = read_queries(demo.queries, 196)
    asked = in_shares(demo, features) if mode is VoteMode.SHARES else features
    log = demo.guardian.with_suffix(".log")
    vote = parse_capc(SitesVoteConfig, yaml.safe_load((demo.folder / "vote.yaml").read_text()),
                      demo.folder)  # fmt: skip
    identity = load_identity(demo.querier.parent / "keys", "ministry", PartyRole.QUERIER)

    async def ask_and_kill(guardian, site) -> float:
        joining = (vote.terms(), identity, vote.place(), vote.guardian, WAIT)
        async with querier_service._joined(*joining) as asker:
            os.kill(site.pid, signal.SIGSTOP)  # so that the batch waits for it
            answering = asyncio.create_task(asker.answers(asked))
            while (EntryKind.RESERVE, "votes/1") not in ledger_of(demo):
                await asyncio.sleep(0.02)
            guardian.kill()
            began = time.monotonic()
            with pytest.raises(VoteAborted):
                await answering
            return time.monotonic() - began

    with contextlib.ExitStack() as running:
        first = running.enter_context(party("guardian", demo.guardian))
        sites = [running.enter_context(party("site", file)) for file in demo.sites.values()]
        wait_for(log, "(5 of 5 sites)")
        assert asyncio.run(ask_and_kill(first, sites[2])) < ENDS
        os.kill(sites[2].pid, signal.SIGCONT)
        log.write_bytes(b"")
        running.enter_context(party("guardian", demo.guardian))
        wait_for(log, "(5 of 5 sites)")
        assert dpal("query", "--config", demo.querier)[0] == 0
        assert len(read_answers(demo.answers)) == 12
        spent = json.loads(dpal("spent", "--config", demo.sites["north"], "--json")[1])
        assert spent["batches"] == 1 and 0 < spent["epsilon"] <= spent["promised"]
        assert "north" in dpal("spent", "--config", demo.sites["north"])[1]
        # Asked again, everything is answered; another query finds no batch left.
        assert dpal("query", "--config", demo.querier)[0] == 0
        table = pq.read_table(demo.queries)
        another = table.slice(0, 1).set_column(0, "id", pa.array(["one more"]))
        pq.write_table(pa.concat_tables([table, another]), demo.queries)
        if mode is VoteMode.SHARES:
            assert "12 images" in dpal("query", "--config", demo.querier)[2]
            in_shares(demo, np.concatenate([features, features[:1]]))
        assert dpal("query", "--config", demo.querier)[0] == 2
        # Another query under a known id is not the one that was answered.
        pq.write_table(
            pa.concat_tables(
                [table.slice(1), another.set_column(0, "id", table["id"].slice(0, 1))]
            ).set_column(1, "features", pa.array([[1] * 196] * len(table))),
            demo.queries,
        )
        if mode is VoteMode.SHARES:
            in_shares(demo, np.ones((12, 196), np.int8))
        code, _, complaint = dpal("query", "--config", demo.querier)
        assert code == 2 and str(demo.answers) in complaint
        wait_for(demo.certificate, "digest")  # it is computed after the answers were sent
    kinds = [(kind.value, release) for kind, release in ledger_of(demo)]
    assert kinds == [("open", ""), ("hold", ""), ("reserve", "votes/1"), ("commit", "votes/1")]
    document = read_certificate(demo.certificate.read_text(encoding="utf-8"))
    assert not any_failed(verify_certificate(document))
    told = document["plan"]["content"]["spec"]["settings"]
    assert ("holds_against" in told) is (mode is VoteMode.STRICT)
    [release] = document["plan"]["content"]["listed"]
    charged = [charge["event"]["mechanism"] for charge in release["charges"]]
    assert charged == ["skellam_counts" if mode is VoteMode.STRICT else "skellam_majorities"]


def test_nobody_else_can_try_which_query_was_answered(tmp_path):
    terms, authority = terms_of(3, features=4), Authority.made(tmp_path / "authority")
    rows = np.array([[1, 2, 3, 4], [1, 2, 3, 5]], np.int8)
    asker, other = (authority.enrolled(name, PartyRole.QUERIER) for name in ("ministry", "office"))
    own = query_digests(terms, rows, asker)
    assert own == query_digests(terms, rows, asker) and own[0] != own[1]
    assert not set(own) & set(query_digests(terms, rows, other))
    assert not set(own) & set(query_digests(replace(terms, name="next"), rows, asker))


def test_a_plan_says_what_it_costs_and_refuses_what_is_too_dear(tmp_path):
    file = tmp_path / "vote.yaml"
    values = {"name": "clinics", "sites": [f"s{n}" for n in range(50)], "labels": 20,
              "features": 512, "batches": 1, "sigma": 9.0, "delta": 1e-5}  # fmt: skip
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    planned = json.loads(dpal("plan", "--config", file, "--json")[1])
    assert list(planned["epsilon_by_colluding"]) == ["0", "10", "25"]
    assert planned["epsilon_by_colluding"]["0"] == pytest.approx(planned["epsilon"])
    assert planned["bytes_of_a_batch"]["querier"]["receives"] / 20 < 0.9e6
    code, shown, _ = dpal("plan", "--config", file)
    assert code == 0 and "noisy counts" in shown
    file.write_text(yaml.safe_dump({**values, "mode": "strict"}), encoding="utf-8")
    strict = json.loads(dpal("plan", "--config", file, "--json")[1])
    assert strict["epsilon"] > planned["epsilon"] and strict["mode"] == "strict"
    assert strict["epsilon_by_colluding"]["10"] == planned["epsilon_by_colluding"]["10"]
    assert strict["bytes_of_a_batch"]["querier"]["receives"] > 100e6
    assert "and who asks" in dpal("plan", "--config", file)[1]
    for wrong in (
        {"batches": 9},
        {"mode": "other"},
        {"sigma": 0},
        {"sites": ["s1"]},
        {"colluding": 49},
        {"more": 1},
    ):
        file.write_text(yaml.safe_dump({**values, **wrong}), encoding="utf-8")
        assert dpal("plan", "--config", file)[0] == 2


def test_parties_are_enrolled_by_commands(tmp_path):
    authority, keys = tmp_path / "authority", tmp_path / "keys"
    assert dpal("authority", authority, "--name", "clinics")[0] == 0
    made = dpal("key", keys, "--name", "north", "--role", "site")[1]
    told = made.splitlines()[-1].rpartition(": ")[2]
    code, shown, _ = dpal("enrol", authority, keys / "request.pem")
    assert code == 2 and "site north" in shown and told in shown
    assert not (authority / "issued").exists()
    assert dpal("enrol", authority, keys / "request.pem", "--fingerprint", told)[0] == 0
    issued = next((authority / "issued").iterdir())
    assert dpal("revoke", authority, issued)[0] == 0
    for wrong in (["key", keys, "--name", "north", "--role", "site"],
                  ["key", tmp_path / "more", "--name", "north", "--role", "owner"],
                  ["authority", tmp_path / "other", "--name", ""],
                  ["authority", tmp_path / "other", "--name", "x" * 65],
                  ["enrol", authority, issued], ["revoke", authority, keys / "request.pem"],
                  ["site", "--config", tmp_path / "missing.yaml"]):  # fmt: skip
        assert dpal(*wrong)[0] == 2


@pytest.mark.parametrize("change", ["text", "other length", "too large", "no column", "twice"])
def test_queries_that_cannot_be_asked_are_refused_before_anybody_is_connected(demo, change):
    table = pq.read_table(demo.queries).to_pylist()
    if change == "other length":
        table[3]["features"] = [1, 2]
    elif change == "too large":
        table[3]["features"][0] = 128
    elif change == "twice":
        table[3]["id"] = table[2]["id"]
    elif change == "no column":
        table = [{"id": row["id"]} for row in table]
    pq.write_table(pa.Table.from_pylist(table), demo.queries)
    if change == "text":
        demo.queries.write_bytes(b"nothing")
    code, _, complaint = dpal("query", "--config", demo.querier)
    assert code == 2 and "guardian" not in complaint


@pytest.mark.parametrize("features", [3, "abcd", [[1], [2], [3], [4]], [True] * 4, [2**62] * 4])
def test_features_that_are_no_lists_of_small_numbers_are_refused(tmp_path, features):
    path = tmp_path / "queries.parquet"
    pq.write_table(pa.table({"id": ["first"], "features": [features]}), path)
    with pytest.raises(DataError):
        read_queries(path, 4)


@pytest.mark.parametrize("labels", [5, None, "no", [300, 0], [7, 0], [[0], [1]], [0]])
def test_labels_that_are_neither_yes_nor_no_are_refused(tmp_path, labels):
    """Bought ones, and those of own records."""
    terms = terms_of(3, labels=2, features=2)
    table = {"id": ["first"], "features": [[1, 2]], "labels": [labels], "query": ["x"]}
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(DataError):
        read_labeled(path, terms)
    with pytest.raises(DataError):
        read_bought(path, path, terms)


def test_of_one_account_one_process_votes(demo):
    """Two would each look whether a batch is new before the other writes that it votes in it."""
    file = demo.sites["north"]
    site = parse_capc(SiteConfig, yaml.safe_load(file.read_text(encoding="utf-8")), file.parent)
    vote = parse_capc(SitesVoteConfig, read_values(site.vote), site.vote.parent)
    other = vote.model_copy(update={"name": "of-others"})  # which the account may be of as well

    def found_no_guardian(line: str) -> None:
        raise EOFError(line)

    def meanwhile(line: str) -> None:
        with pytest.raises(CampaignBusy):
            run_site(vote, site, print)
        with ThreadPoolExecutor(1) as beside, pytest.raises(EOFError):
            beside.submit(run_site, other, site, found_no_guardian).result(timeout=WAIT)
        raise EOFError(line)

    for _ in range(2):  # whoever ends leaves nothing locked
        with pytest.raises(EOFError):
            run_site(vote, site, meanwhile)


@pytest.mark.parametrize("address", ["host:65536", "...:80", "a..b:80", "x" * 64 + ":80", "]:80",
                                     "[::1:80", ":-1"])  # fmt: skip
def test_addresses_that_no_machine_can_have_are_refused(address):
    vote = {"name": "clinics", "sites": ["north", "south"], "labels": 2, "features": 4, "sigma": 2,
            "delta": 1e-5}  # fmt: skip
    guardian = {"vote": "vote.yaml", "keys": "keys"}
    for right in ("host:1", "keeper.example.:7461", "127.0.0.1:80", "[::1]:80", "a_b-c:65535"):
        parse_capc(SitesVoteConfig, {**vote, "address": right}, Path())
        parse_capc(GuardianConfig, {**guardian, "listen": right}, Path())
    parse_capc(GuardianConfig, {**guardian, "listen": ":7461"}, Path())  # at all of its addresses
    for wrong in (address, "host", ":80"):
        with pytest.raises(ConfigError):
            parse_capc(SitesVoteConfig, {**vote, "address": wrong}, Path())
    with pytest.raises(ConfigError):
        parse_capc(GuardianConfig, {**guardian, "listen": address}, Path())


@pytest.mark.parametrize("wrong", ["a site less", "a stranger", "other images", "of a site", "ids"])
def test_shares_that_cannot_be_asked_by_are_refused_before_anybody_is_connected(demo, wrong):
    _, features = read_queries(demo.queries, 196)
    in_shares(demo, features)
    files = yaml.safe_load(demo.querier.read_text(encoding="utf-8"))["shares"]
    ids = pq.read_table(demo.queries, columns=["id"])
    if wrong == "ids":
        ids = ids.slice(1)
    elif wrong == "a site less":
        change(demo.querier, shares={name: files[name] for name in list(files)[1:]})
    elif wrong == "a stranger":
        change(demo.querier, shares={**files, "nobody": files["north"]})
    else:
        model = load_site_model(demo.sites["north"].parent / "model.safetensors")
        own, other = evaluated(model, features[::-1].copy(), np.random.default_rng(1))
        write_shares(demo.querier.parent / files["north"], own if wrong != "of a site" else other)
    pq.write_table(ids, demo.queries)
    code, _, complaint = dpal("query", "--config", demo.querier)
    assert (code == 2 and "dpal capc cnn" in complaint) or "in their order" in complaint
    assert "guardian" not in complaint
    code, _, complaint = dpal("train", "--vote", demo.folder / "vote.yaml", "--records",
                              demo.queries, "--to", demo.folder / "model")  # fmt: skip
    assert code == 2 and "mode shares" in complaint


def test_a_site_trains_and_what_it_bought_is_worth_something(tmp_path):
    """By commands and files alone: own records of few classes, answers that name the others."""
    rng = np.random.default_rng(1)
    centres = rng.integers(-60, 60, (3, 8))

    def written(name, classes, *, labeled=True):
        rows = [{"id": f"{name}-{at}", "label": int(label), "features":
                 (centres[label] + rng.normal(0, 20, 8)).round().clip(-128, 127).astype(int)
                 .tolist()} for at, label in enumerate(classes)]  # fmt: skip
        table = pa.Table.from_pylist(rows)
        pq.write_table(table if labeled else table.drop(["label"]), tmp_path / f"{name}.parquet")
        return tmp_path / f"{name}.parquet"

    vote = tmp_path / "vote.yaml"
    values = {"name": "clinics", "sites": [f"s{n}" for n in range(20)], "labels": 3, "features": 8,
              "mechanism": "gnmax", "sigma": 5.0, "delta": 1e-5}  # fmt: skip
    vote.write_text(yaml.safe_dump(values), encoding="utf-8")
    own, held = written("own", [0, 1] * 20), written("held", [0, 1, 2] * 50)
    asked_classes = [0, 1, 2] * 10
    asked = written("asked", asked_classes, labeled=False)
    answers = pa.Table.from_pylist([
        {"id": f"asked-{at}", "labels": np.eye(3, dtype=int)[label].tolist(), "query": "x"}
        for at, label in enumerate(asked_classes)])  # fmt: skip
    pq.write_table(answers, tmp_path / "answers.parquet")
    common = ("train", "--vote", vote, "--records", own, "--test", held, "--json")
    before = tmp_path / "before.safetensors"
    told = json.loads(dpal(*common, "--to", before)[1])
    assert told["records"] == 40 and told["bought"] == 0 and told["balanced_accuracy"] < 0.68
    bought = ("--queries", asked, "--answers", tmp_path / "answers.parquet")
    told = json.loads(dpal(*common, *bought, "--to", tmp_path / "after.safetensors")[1])
    assert told["bought"] == 30
    assert told["balanced_accuracy"] > told["balanced_accuracy_without_bought"] + 0.2
    assert load_site_model(before).weights.shape == (3, 8)
    code, _, complaint = dpal(*common, "--queries", asked, "--to", before)
    assert code == 2 and "--answers" in complaint
