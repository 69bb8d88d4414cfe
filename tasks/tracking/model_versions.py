"""Versions of a registered model: what their pages say, and the rule by which the champion moves.

Whatever stands here was released: the certificate's promise, planned numbers, figures on the
validation set.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.signature_trust import Trust, author_of
from dpal.certificate.verify import verify_certificate
from dpal.config.model_registry import CHAMPION, ChampionRule
from dpal.errors import CertificateError
from dpal.reports.render.markdown import block_in_markdown
from dpal.runs.champion_rule import ChampionVerdict, judge
from dpal.runs.kinds import KINDS
from dpal.runs.model_line import (
    ModelLine,
    VersionFacts,
    changes_in_words,
    changes_table,
    facts_of_version,
    is_measured_alike,
    line_of,
    registered_name,
)
from dpal.runs.open_ledger import anchors_of
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import released_figures
from dpal.runs.run import Run
from tasks.tracking.mlflow_model import validation_dataset
from tasks.tracking.mlflow_run import day_of_plan
from tasks.tracking.model_registry import fetch_registered_model, register_model
from tasks.tracking.promotion import audit_doubt, promote

DECIDED = "dpal.champion"  # what the rule came to; it is asked once for a version
BY_RULE = "runtime.registry.champion: not_worse"


def register_version(run: Run[Any], certificate: Mapping[str, Any], model_uri: str) -> str:
    """Registers a run's model as a version of its line, and asks the rule about the champion.

    Done again, it changes nothing.

    Args:
      run: finished.
      certificate: of the run.
      model_uri: the logged model, whose artifacts hold that certificate.

    Returns:
      The address of the version; of the logged model, where its line is that of other models.
    """
    line, client = line_of(run), MlflowClient()
    if others := _others_of(client, run, line, certificate):
        notify(
            f"the model of {run.name} became no version of {line.registered}, which holds models "
            f"of {others}; name a line of its own in runtime.registry.line"
        )
        return model_uri
    facts = facts_of_version(
        run, certificate, released_figures(run.folder), measured_on=_measured_on(run)
    )
    before = _before(client, line, facts)
    told = facts.as_tags()
    if before is not None:
        rows = changes_table(before, ("new", facts)).rows
        told["dpal.changed"] = f"since version {before[0]}: {changes_in_words(rows)}"
    number = register_model(certificate, model_uri, line.registered, told)
    uri = f"models:/{line.registered}/{number}"
    said = _settle_champion(client, run, line, (number, facts))
    client.update_model_version(
        line.registered, number, _version_note(client, run, line, (number, facts), before, said)
    )
    client.update_registered_model(line.registered, _line_note(run, line))
    return uri


def _others_of(
    client: MlflowClient, run: Run[Any], line: ModelLine, certificate: Mapping[str, Any]
) -> str | None:
    """What a line's newest version is of, where this run came to the line by its name alone.

    Anybody who starts a run chooses its name; which line or data set it is of, the owner allows.
    """
    if run.runtime.registry.line is not None or run.dataset is not None:
        return None
    tags = _tags_by_number(client, line)
    known = {one.get("dpal.certificate") for one in tags.values()}
    if not tags or certificate["digest"] in known:
        return None
    origin = VersionFacts.from_tags(tags[max(tags, key=int)]).origin
    return None if origin in (None, line.origin) else origin


def _measured_on(run: Run[Any]) -> str | None:
    """Digest of ids and labels of the public validation set; None where there is none."""
    judges = KINDS[run.kind].use_cases().judges(run) if run.kind in KINDS else None
    return None if judges is None else str(validation_dataset(judges).digest)


def _before(
    client: MlflowClient, line: ModelLine, facts: VersionFacts
) -> tuple[str, VersionFacts] | None:
    """The newest version that is older than one with these facts, which may be registered."""
    tags = _tags_by_number(client, line)
    same = [number for number in tags if tags[number].get("dpal.certificate") == facts.certificate]
    older = [number for number in tags if not same or int(number) < min(map(int, same))]
    if not older:
        return None
    newest = max(older, key=int)
    return newest, VersionFacts.from_tags(tags[newest])


def _tags_by_number(client: MlflowClient, line: ModelLine) -> dict[str, dict[str, str]]:
    found = client.search_model_versions(f"name = '{line.registered}'")
    return {str(version.version): dict(version.tags) for version in found}


def _settle_champion(
    client: MlflowClient, run: Run[Any], line: ModelLine, now: tuple[str, VersionFacts]
) -> str:
    """Moves the champion where the rule says so, once; returns what it came to, in words."""
    number, facts = now
    registry = run.runtime.registry
    if registry.champion is not ChampionRule.NOT_WORSE:
        return "moved by a person alone, with `dpal promote`"
    tags = _tags_by_number(client, line)
    if DECIDED in tags[number]:  # a person may have moved it since
        return tags[number][DECIDED]
    champions = {
        other: VersionFacts.from_tags(known)
        for other, known in tags.items()
        if f"{CHAMPION}.at" in known and other != number
    }
    named = client.get_registered_model(line.registered).aliases.get(CHAMPION)
    current = None if named is None else str(named)
    if current == number:
        said = f"is version {number}"  # a crash came between the alias and this
    else:
        verdict = judge(
            facts,
            champions,
            current,
            most_loss=registry.most_loss,
            alike=partial(is_measured_alike, run, facts),
        )
        if verdict.moves:
            verdict = _promoted(run, f"models:/{line.registered}/{number}", verdict)
        if verdict.moves:
            said = f"is this version by the rule not_worse: {verdict.reason}"
        else:
            stays = f"stays version {current}" if current else "is no version"
            said = f"{stays}, the rule not_worse did not move it: {verdict.reason}"
    client.set_model_version_tag(line.registered, number, DECIDED, said)
    notify(f"champion of {line.registered} {said}")
    return said


def _promoted(run: Run[Any], uri: str, verdict: ChampionVerdict) -> ChampionVerdict:
    """Makes a version champion if its certificate holds, as `dpal promote` does for a person."""
    try:
        fetched, entries = fetch_registered_model(uri, None), run.known_entries()
        checks = verify_certificate(
            fetched.certificate,
            ledger=entries or None,
            model=fetched.model,
            no_pool="no part of a rule",
        )
        key = anchors_of(run.runtime).key.public_key()
        trust = Trust(keys={key: "this machine's own key"}, exclusive=True)
        author = author_of(fetched.certificate, fetched.signature, trust, ledger=entries)
        checks.append(author.check)
        failed = [check.detail for check in checks if check.outcome is CheckOutcome.FAILED]
        if failed or not author.known:
            return ChampionVerdict(moves=False, reason=(failed or [author.check.detail])[0])
        if doubt := audit_doubt(fetched.certificate, None):
            return ChampionVerdict(moves=False, reason=doubt)
        promote(
            uri,
            CHAMPION,
            by=BY_RULE,
            reason=verdict.reason,
            checks=checks,
            author=author.check.detail,
            tracking_uri=None,
            day=day_of_plan([run.name], entries),
        )
    except CertificateError as refusal:
        if isinstance(refusal.__cause__, MlflowException | OSError):
            raise refusal.__cause__ from refusal  # the server is waited for
        return ChampionVerdict(moves=False, reason=str(refusal))
    return verdict


def _version_note(
    client: MlflowClient,
    run: Run[Any],
    line: ModelLine,
    now: tuple[str, VersionFacts],
    before: tuple[str, VersionFacts] | None,
    champion: str,
) -> str:
    """The description of a version."""
    number, facts = now
    promise = ", ".join(f"{key} {value}" for key, value in facts.promise.items())
    told = [
        f"Version {number} of the models of {line.origin}: {run.noun} `{facts.run}`.",
        f"**Promised:** {promise}.",
        f"**Worth, on the validation set:** {facts.in_words()}.",
        f"**Certificate:** `{facts.certificate}`; check it: `dpal verify --model "
        f"models:/{line.registered}/{number} --key KEY`, with the data owner's public key.",
        f"**Champion:** {champion}.",
    ]
    if facts.worthless is not None:
        told.insert(3, f"**Mind:** {facts.worthless}")
    if before is not None:
        told += [
            f"**What changed since version {before[0]}:**",
            block_in_markdown(changes_table(before, now)),
        ]
    elif earlier := _registered_alone(client, run, line):
        told.append(f"It goes on from `{earlier}`, which was registered under a name of its own.")
    return "\n\n".join(told)


def _registered_alone(client: MlflowClient, run: Run[Any], line: ModelLine) -> str | None:
    """The model of the run that this one starts from, where it was registered by its own name."""
    name = None if run.start_from is None else registered_name(run.start_from)
    if name is None or name == line.registered:
        return None
    found = client.search_model_versions(f"name = '{name}'")
    return f"models:/{name}/{max(int(version.version) for version in found)}" if found else None


def _line_note(run: Run[Any], line: ModelLine) -> str:
    """The description of a registered model."""
    registry = run.runtime.registry
    rule = "a person moves it: `dpal promote`"
    if registry.champion is ChampionRule.NOT_WORSE:
        rule = (
            "it moves to a new version whose certificate holds and whose figure on the same "
            f"validation set is not below any earlier champion's by more than "
            f"{100 * registry.most_loss:.2f} points (`{BY_RULE}`)"
        )
    return (
        f"Models of {line.origin}, a version for each run. A version's epsilon is that of its run"
        + (
            ""
            if run.dataset is None
            else "; what all runs on the data set add up to is the metric "
            "`dataset_epsilon/block_0` (`_1`, ...) of each run"
        )
        + f".\n\n**@champion:** {rule}; back to the one before: `dpal promote "
        f"models:/{line.registered} --back --reason TEXT`. As the last run's settings say."
    )
