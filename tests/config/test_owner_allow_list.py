"""The owner's list: which settings it guards, what it lets pass, and that nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.capc_retraining import RetrainingConfig
from dpal.config.guarded_settings import (
    Guarded,
    fields_of,
    guarded_keys,
    guarded_settings,
    unmarked_paths,
)
from dpal.config.improvement import PublicConfig, parse_public
from dpal.config.owner_allow_list import AllowList, mistakes, parse_allow_list
from dpal.config.pate import PateConfig, parse_pate
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.config.vote import VoteConfig, parse_vote
from dpal.config.watch import WatchConfig
from dpal.errors import AllowListError, ConfigError
from dpal.files.object_store import StoreHolds
from flows.cli.allow import extended_for
from tasks.allow_list import require_allowed
from tasks.training_pool.phase_files import TrainingOrder
from tests.conftest import having, small_values

KINDS: tuple[type[BaseModel], ...] = (
    CampaignConfig,
    PublicConfig,
    PateConfig,
    VoteConfig,
    RetrainingConfig,
    WatchConfig,
    TrainingOrder,
)

# A new setting that is no number must be marked as guarded, or stand in one of these two because
# somebody has thought about it. Texts that name no place:
NO_PLACES = {
    "name": "pattern without a slash",
    "validation.why": "a reason, in words",
    "querier": "a name",
    "after": "an account in the ledger",
    "start.name": "likewise",
    "start.campaign": "a campaign below runtime.artifacts",
    "start_from": "likewise",
    "labeler.teachers": "private voting below runtime.artifacts",
    "data.group_column": "a column",
    "data.label_column": "a column",
    "public.label_column": "a column",
    "public.provenance_column": "a column",
    "public.irrelevant": "values of a column",
    "teachers.group_column": "a column",
    "voting.gate": "a label",
    "voting.dependents": "labels",
    "model.trainable": "names of parameters",
    "model.adapted_layers": "names of layers",
    "labeler.label_studio.title": "shown to annotators",
    "runtime.device": "cpu or cuda:N",
    "runtime.training_pool": "a work pool; its workers have lists of their own",
    "runtime.cron": "a time",
    "runtime.timezone": "a time zone",
    "cron": "a time",
    "timezone": "a time zone",
    "plan": "a digest",
    "drawer": "who leads; the ledger decides",
    "inputs": "files that are fetched from runtime.store or runtime.artifacts alone",
}

# Choices and switches that show records to nobody new: how something is computed, and what the plan
# prices and the certificate states.
NO_DOORS = {
    "kind",
    "acquisition",
    "strategy",
    "choice.method",
    "choice.uncertainty",
    "data.backbone.model",
    "data.backbone.variant",
    "data.content",
    "data.extractor",
    "data.normalisation.kind",
    "fine_tuning.optimizer",
    "labeler.kind",  # what shows records to people wants trusted_page, or an address: both guarded
    "labeler.suggest",  # shows whoever sees the records what a released model says of them
    "labeler.label_studio.agreement",
    "labeler.label_studio.media",
    "labeler.label_studio.skipped",
    "model.activation",
    "model.name",
    "near_private.voters",
    "privacy.accountant",
    "privacy.adjacency",
    "privacy.label_cap",
    "privacy.profile",
    "privacy.secret_draw",
    "privacy.selection",
    "privacy.unit",
    "release",
    "runtime.backend",
    "runtime.model_layout",
    "runtime.task_runner",
    "start.declared.adjacency",
    "start.declared.unit",
    "search.trials.optimizer",
    "student.cut",
    "student.method",
    "student.optimizer",
    "teachers.cut",
    "teachers.optimizer",
    "training.augmentation.flip",
    "training.averaging.kind",
    "training.clipping.kind",
    "training.method",
    "training.optimizer",
    "training.precision",
    "training.rate_schedule",
    "validation.protected",
    "validation.auc",
    "voting.acquisition",  # chooses among public records
    "voting.mechanism",
    "voting.release",  # charged as counts where counts leave
}


def only_numbers(annotation: Any) -> bool:
    """Whether a setting can be nothing but numbers, which name and open nothing."""
    if annotation in (int, float, type(None), timedelta):
        return True
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return only_numbers(inner[0])
    return bool(inner) and all(
        only_numbers(each) if not isinstance(each, int | float) else not isinstance(each, bool)
        for each in inner
    )


def unmarked(kind: type[BaseModel]) -> set[str]:
    return {
        key
        for key, field in fields_of(kind)
        if not only_numbers(field.annotation)
        and not any(isinstance(mark, Guarded) for mark in field.metadata)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_setting_that_could_show_records_is_unmarked(kind):
    forgotten = unmarked(kind) - set(NO_PLACES) - NO_DOORS
    assert forgotten == set(), "mark it with Guarded, or say above why it shows nothing to anybody"


def test_what_is_excused_exists_and_is_not_guarded():
    assert set(NO_PLACES) | NO_DOORS == set().union(*map(unmarked, KINDS))


def test_a_forgotten_setting_is_found():
    class Careless(BaseModel):
        inside: RuntimeConfig
        report_to: str | None = None
        extra: list[Path] = []
        show_records: bool = False
        keeps: Literal["nothing", "all"] = "nothing"
        holds: StoreHolds | None = None
        anything: Any = None
        mixed: dict[int, str] = {}
        numbers: list[int] | float | None = None

    forgotten = {"report_to", "extra", "show_records", "keeps", "holds", "anything", "mixed"}
    excused = {key.replace("runtime.", "inside.") for key in {*NO_PLACES, *NO_DOORS}}
    assert unmarked(Careless) - excused == forgotten


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_that_is_taken_away_is_missed(kind):
    for key, field in fields_of(kind):
        if any(isinstance(mark, Guarded) for mark in field.metadata):
            assert not only_numbers(field.annotation)
            assert key not in {*NO_PLACES, *NO_DOORS}


def test_settings_in_a_list_of_sections_are_found():
    class Inbox(BaseModel):
        folder: Annotated[Path, Guarded()]

    class Several(BaseModel):
        inboxes: list[Inbox]
        named: dict[str, Inbox] = {}

    several = Several(
        inboxes=[Inbox(folder="/a"), Inbox(folder="/b")], named={"c": {"folder": "/c"}}
    )
    found = [(one.key, str(one.value)) for one in guarded_settings(several)]
    assert found == [("inboxes.folder", "/a"), ("inboxes.folder", "/b"), ("named.folder", "/c")]
    assert set(guarded_keys(Several)) == {"inboxes.folder", "named.folder"}


def test_settings_that_widen_who_sees_records_are_guarded():
    every = guarded_keys(*KINDS)
    named = (
        "data.pool data.validation public.pool runtime.store runtime.store_holds runtime.ledger "
        "labeler.trusted_page labeler.label_studio.url labeler.label_studio.webhook "
        "runtime.anchors runtime.artifacts runtime.mlflow_uri runtime.dvc_remote model.weights "
        "data.backbone.weights start.model start.certificate folder quarantine data.dataset "
        "teachers.partition teachers.tuning runtime.scheduler baselines.run validation.public"
    )
    assert set(named.split()) <= set(every)


@pytest.fixture
def allowed(tmp_path, monkeypatch) -> AllowList:
    """What a small campaign needs, and no more."""
    monkeypatch.chdir(tmp_path)
    return extended_for(AllowList(), [parse_config(small_values())])


def refused(allowed: AllowList, **overrides: Any) -> set[str]:
    config = parse_config(small_values(**overrides))
    return {one.key for one in allowed.refused(guarded_settings(config))}


def test_what_was_allowed_passes_and_an_empty_list_lets_nothing_pass(allowed):
    assert refused(allowed) == set()
    assert refused(allowed, name="another", privacy__epsilon=1) == set()
    assert refused(AllowList()) == {
        "data.pool", "data.validation", "validation.public", "runtime.artifacts"
    }  # fmt: skip


ATTACKS: dict[str, dict[str, Any]] = {
    "data.pool": {"data__pool": "/etc/shadow.parquet"},
    "data.validation": {"data__validation": "../somebody-elses.parquet"},
    "data.dataset": {"data__dataset": "clinic"},
    "runtime.registry.line": {"runtime__registry": {"line": "theirs"}},
    "runtime.registry.champion": {"runtime__registry": {"champion": "not_worse"}},
    "runtime.store": {"runtime__store": "s3://mine/loot"},
    "runtime.store_holds": {"runtime__store_holds": "everything"},
    "runtime.artifacts": {"runtime__artifacts": "elsewhere"},
    "runtime.ledger": {"runtime__ledger": "postgresql://me@mine/ledger"},
    "runtime.anchors": {"runtime__anchors": "/tmp/anchors"},
    "runtime.mlflow_uri": {"runtime__mlflow_uri": "http://mine:5000"},
    "runtime.dvc_remote": {"runtime__dvc_remote": "s3://mine/dvc"},
    "runtime.scheduler": {"runtime__scheduler": "tcp://mine:8786"},
    "model.weights": {"model__weights": "mine.safetensors"},
    "labeler.trusted_page": {"labeler__trusted_page": True},
    "labeler.label_studio.url": {"labeler__kind": "label_studio"},
    "data.backbone.weights": {
        "data__extractor": "backbone",
        "data__backbone": {"weights": "mine.safetensors"},
    },
}


@pytest.mark.parametrize("key", ATTACKS)
def test_each_switch_is_refused_unless_the_owner_has_listed_it(allowed, key):
    assert refused(allowed, **ATTACKS[key]) == {key}
    config = parse_config(small_values(**ATTACKS[key]))
    wider = extended_for(allowed, [config])
    assert refused(wider, **ATTACKS[key]) == set()
    assert refused(wider) == set(), "what was allowed stays allowed"


def test_the_webhook_of_a_listed_label_studio_is_guarded_too(allowed):
    people = {"labeler__kind": "label_studio"}
    config = parse_config(small_values(**people))
    allowed = extended_for(allowed, [config])
    hook = {"labeler__label_studio__webhook": "http://mine:9"}
    assert refused(allowed, **people, **hook) == {"labeler.label_studio.webhook"}
    # Where nobody is asked in Label Studio, its address says nothing.
    assert refused(allowed, labeler__label_studio={"url": "http://mine:8080"}) == set()


def test_the_usual_ledger_is_closed_once_another_is_listed(tmp_path, monkeypatch):
    """Else a run with runtime.ledger: null would spend in a new ledger, from nothing."""
    monkeypatch.chdir(tmp_path)
    shared = {"runtime__ledger": "postgresql://dpal@db/ledger", "data__dataset": "clinic"}
    first = extended_for(AllowList(), [parse_config(small_values(**shared))])
    assert refused(first, **shared) == set()
    assert refused(first) == {"runtime.ledger", "data.dataset"}
    both = extended_for(first, [parse_config(small_values())])
    assert refused(both) == refused(both, **shared) == set()


def test_a_pool_of_several_files_is_allowed_file_by_file(allowed):
    assert refused(allowed, data__pool=["pool.parquet", "pool.parquet"]) == set()
    assert refused(allowed, data__pool=["pool.parquet", "other.parquet"]) == {"data.pool"}


def test_a_folder_is_compared_as_runs_open_it(tmp_path, monkeypatch):
    """Another way to write a listed one must not lead to an empty one, with a ledger of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    allowed = extended_for(AllowList(), [parse_config(small_values())])
    for other in ("~/artifacts", f"file:{tmp_path}/artifacts", f"file://{tmp_path}/artifacts"):
        assert refused(allowed, runtime__artifacts=other) == {"runtime.artifacts"}
    assert refused(allowed, runtime__artifacts=f"{tmp_path}/x/../artifacts") == set()
    store = {"runtime__store": f"file://{tmp_path}/store"}
    allowed = extended_for(allowed, [parse_config(small_values(**store))])
    assert refused(allowed, **store) == set()
    assert refused(allowed, runtime__store=f"file://{tmp_path}/x/../store") == set()
    with pytest.raises(ConfigError):
        parse_config(small_values(runtime__store=f"file://{tmp_path}/store#/../web"))
    # The owner's own `~` is that of the list.
    listed = AllowList({**allowed.together["small"], "runtime.artifacts": ("~/artifacts",)})
    assert refused(listed) == set()


def test_only_a_slash_at_the_end_opens_what_is_below(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out.parquet").symlink_to("/etc/shadow")
    base = {"data.validation": ("/",), "validation.public": (True,), "runtime.artifacts": ("/",)}
    exact = AllowList({**base, "data.pool": (f"{tmp_path}/in",)})
    below = AllowList({**base, "data.pool": (f"{tmp_path}/in/",)})
    for allowed in (exact, below):
        assert refused(allowed, data__pool="in") == set()
        assert refused(allowed, data__pool="in/../../x.parquet") == {"data.pool"}
        assert refused(allowed, data__pool="in/out.parquet") == {"data.pool"}
    assert refused(exact, data__pool="in/a.parquet") == {"data.pool"}
    assert refused(below, data__pool="in/a.parquet") == set()
    # What nobody can resolve lies nowhere, unless just that is listed.
    bucket = {"data.pool": ("s3://bucket/in/", "s3://bucket/%41.parquet")}
    stored, inside = AllowList({**base, **bucket}), f"{tmp_path}/in"
    for allowed, place in (
        (below, f"{inside}/../secret::file"),
        (below, f"{inside}/::/../../secret.parquet"),
        (below, "~nobody-of-this-name/x.parquet"),
        (below, f"{inside}/a\0.parquet"),
        (stored, "s3://bucket/in/%2e%2e/out.parquet"),
        (stored, "s3://bucket/in/../out.parquet"),
        (stored, "s3://bucket/public/../in/a.parquet"),
        (stored, "s3://bucket/in//../a.parquet"),
    ):
        assert refused(allowed, data__pool=place) == {"data.pool"}
    assert refused(stored, data__pool="s3://bucket/in/a.parquet") == set()
    assert refused(stored, data__pool="s3://bucket/%41.parquet") == set()


def test_improvements_and_votes_are_guarded_like_campaigns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = parse_public({"kind": "public", "name": "better", "start": {"campaign": "small"}})
    keys = {one.key for one in AllowList().refused(guarded_settings(public))}
    # Its private data are the start's, which has recorded them.
    assert keys == {"public.pool", "runtime.artifacts"}
    votes = parse_pate(
        {"kind": "pate", "name": "votes", "baselines": {"run": ["dp_sgd", "non_private"]}}
    )
    allowed = extended_for(AllowList(), [votes])
    assert allowed.together["votes"]["baselines.run"] == ("non_private",)


def test_what_is_said_of_one_configuration_does_not_hold_for_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clinic = {
        "name": "clinic", "data__pool": "clinic.parquet", "data__validation": "patients.parquet",
        "data__dataset": "clinic", "validation": {"protected": True},
    }  # fmt: skip
    demo = {"name": "demo", "runtime__artifacts": "demo"}
    allowed = AllowList()
    for values in (clinic, demo):
        allowed = extended_for(allowed, [parse_config(small_values(**values))])
    assert refused(allowed, **clinic) == refused(allowed, **demo) == set()
    assert refused(allowed, **{**demo, "name": "any", "privacy__epsilon": 1}) == set()
    for_all = replace(allowed, values={"labeler.trusted_page": (True,)})
    assert refused(for_all, **clinic, labeler__trusted_page=True) == set()
    # Its validation set is not public because another is, and its limit is not left out.
    public = {"validation": small_values()["validation"]}
    assert refused(allowed, **{**clinic, **public}) == {"validation.public"}
    assert refused(allowed, **{**clinic, "data__dataset": None}) == {"data.dataset"}
    assert refused(allowed, **{**clinic, "runtime__artifacts": "demo"}) == {"runtime.artifacts"}
    assert refused(allowed, **{**demo, "data__pool": "clinic.parquet"}) == {"data.pool"}
    assert parse_allow_list(allowed.as_text(), tmp_path) == allowed
    stored = {"runtime__store": "s3://bucket/dpal"}
    again = extended_for(allowed, [parse_config(small_values(**clinic, **stored))])
    assert refused(again, **clinic, **stored) == refused(again, **clinic) == set()
    assert refused(again, **demo, **stored) == {"runtime.store"}
    assert list(again.together) == ["clinic", "demo", "clinic-2"]
    # Of the same name, tried on public records at first: neither holds for the other's files.
    sample = {**clinic, "data__validation": "sample.parquet", "data__dataset": None, **public}
    tried = extended_for(AllowList(), [parse_config(small_values(**sample))])
    both = extended_for(tried, [parse_config(small_values(**clinic))])
    assert refused(both, **sample) == refused(both, **clinic) == set()
    assert refused(both, **{**clinic, **public}) == {"validation.public"}
    unregistered = parse_config(small_values(**{**clinic, "data__dataset": None}))
    assert refused(both, **{**clinic, "data__dataset": None})
    assert both.left_open(guarded_settings(parse_config(small_values(**clinic)))) == []
    wider = extended_for(both, [unregistered])
    assert wider.left_open(guarded_settings(parse_config(small_values(**clinic)))) == [
        "data.dataset"
    ]
    apart = {**clinic, "runtime__ledger": "postgresql://dpal@db/ledger"}
    loose = parse_config(small_values(**{**apart, "data__dataset": None, "runtime__ledger": None}))
    either = extended_for(AllowList(), [loose, parse_config(small_values(**apart))])
    for one in ("data__dataset", "runtime__ledger"):
        assert refused(either, **{**apart, one: None})
    assert either.left_open(guarded_settings(parse_config(small_values(**apart)))) == [
        "data.dataset",
        "runtime.ledger",
    ]


def test_a_list_without_groups_holds_as_it_did_and_is_no_part_of_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flat = extended_for(AllowList(), [parse_config(small_values())]).together["small"]
    before = AllowList({**flat, "workdir": ("/srv/",)})
    assert refused(before) == set()
    theirs = {"name": "theirs", "data__pool": "theirs.parquet", "data__dataset": "theirs"}
    after = extended_for(before, [parse_config(small_values(**theirs))])
    assert list(after.together) == ["earlier", "theirs"] and list(after.values) == ["workdir"]
    assert refused(after) == refused(after, **theirs) == set()
    assert refused(after, **{**theirs, "data__dataset": None})
    assert refused(after, data__pool="theirs.parquet")


def test_budgets_of_teachers_cannot_be_left_out_where_they_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"kind": "vote", "name": "votes", "ballots": {"files": ["ballots.parquet"]},
              "privacy": {"records": 50, "budgets": "budgets.parquet"}}  # fmt: skip
    allowed = extended_for(AllowList(), [parse_vote(values)])
    assert allowed.refused(guarded_settings(parse_vote(values))) == []
    values["privacy"] = {"records": 50}
    [left_out] = allowed.refused(guarded_settings(parse_vote(values)))
    assert left_out.key == "privacy.budgets"


def test_a_list_survives_its_file(allowed, tmp_path):
    assert parse_allow_list(allowed.as_text(), tmp_path) == allowed
    assert parse_allow_list(AllowList().as_text(), tmp_path) == AllowList()


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "data.pool: [{a: 1}]", "data.pool: 3.5", "a: b: c", "together: [1]",
     "together: {a: /srv}", "together: {a: {data.pool: 3.5}}"],
)  # fmt: skip
def test_what_is_no_list_is_refused(text):
    with pytest.raises(AllowListError, check=having(path="allow.yaml", released=False)):
        parse_allow_list(text, Path("allow.yaml"))


def test_mistakes_allow_nothing_and_are_told():
    group = {"data.pol": "/a", "data.validation": "x.parquet"}
    listed = {"data.pol": "/a", "data.pool": ["pool.parquet", "/srv/a.parquet"]}
    text = yaml.safe_dump({**listed, "together": {"mine": group}})
    allowed = parse_allow_list(text, Path("allow.yaml"))
    told = mistakes(allowed, guarded_keys(*KINDS))
    assert [one.partition(" ")[0].rstrip(":") for one in told] == [
        "data.pol", "data.pool", "together.mine.data.pol", "together.mine.data.validation"
    ]  # fmt: skip
    assert [one for one in told if "data.pool is" in one] == told[::2]  # the name that is nearest
    assert "pool.parquet" in told[1] and "x.parquet" in told[3]
    assert "data.pool" in refused(allowed)


def test_no_kind_of_run_has_a_path_that_nobody_guards():
    assert [unmarked_paths(kind) for kind in KINDS] == [[] for _ in KINDS]


def test_a_path_that_nobody_guards_is_refused(monkeypatch):
    class Unmarked(RunConfig):
        name: str
        elsewhere: list[Path]
        runtime: RuntimeConfig = RuntimeConfig()

    monkeypatch.setattr("tasks.allow_list.comes_from_prefect", lambda: True)
    with pytest.raises(ConfigError, match="elsewhere of Unmarked"):
        require_allowed(Unmarked(name="own", elsewhere=[Path("/etc/passwd")]))


def test_weights_that_rotations_leave_are_allowed_with_their_improvement(tmp_path, monkeypatch):
    """Its start goes on from them, as a flow that the improvement calls."""
    monkeypatch.chdir(tmp_path)
    start = {"name": "begun", "rotations": {"epochs": 1, "records": 100}}
    config = parse_public({"kind": "public", "name": "better", "start": start})
    allowed = extended_for(AllowList(), [config])
    weights = tmp_path / "artifacts" / "better" / "pretrained.safetensors"
    assert allowed.together["better"]["model.weights"] == (str(weights.resolve()),)
