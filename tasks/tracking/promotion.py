"""Aliases of certified models: who gave one, when, why, and what an audit said.

An alias such as `champion` is what those who serve a model ask for. It moves only to a version
whose certificate was verified; also when it moves back to the version that had it before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from dpal.certificate.check_outcome import Check, CheckOutcome
from dpal.errors import CertificateError
from dpal.ledger.stamped_day import today_in_utc
from tasks.tracking.model_registry import name_and_version, registry_client

EXPERIMENT = "dpal"
AUDIT_NUMBER = "dpal.audit_number"
_MOST = 1000  # runs that MLflow gives at once
_NONE = "none"
_ALIAS = re.compile(r"(?!latest$|v\d+$)[a-z][a-z0-9_-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a registered model, as the registry shows it.

    Attributes:
      number: of the version.
      aliases: names that point to it.
      tags: what is known about it.
    """

    number: str
    aliases: tuple[str, ...]
    tags: Mapping[str, str]


def require_alias(alias: str) -> None:
    """Requires a name that a registry accepts.

    Raises:
      CertificateError: it is none.
    """
    if not _ALIAS.fullmatch(alias):
        raise CertificateError(
            f"{alias!r} is no alias; use small letters, digits, - and _, such as champion, and "
            "neither latest nor v1"
        )


def audit_doubt(document: Mapping[str, Any], tracking_uri: str | None) -> str | None:
    """Why audits of a certified campaign forbid to use its model; None where they do not.

    No audit is no doubt. The newest one counts, and it must have ended.

    Args:
      document: the certificate.
      tracking_uri: where the audits are.
    """
    plan = document["plan"]["digest"]
    with registry_client("audits", tracking_uri) as client:
        runs = _audits(client, str(document["campaign"]), str(plan))
    if not runs:
        return None
    newest = runs[0]
    audit = f"the newest audit of campaign {document['campaign']} (run {newest.info.run_id})"
    if newest.data.tags.get("dpal.audit") == "failed":
        return f"{audit} failed; look into its report, mend the defect and audit again"
    if newest.info.status != "FINISHED" or newest.data.tags.get("dpal.audit") != "passed":
        return f"{audit} has not ended; wait for it, or audit again"
    return None


def newest_audit(about: Mapping[str, str]) -> int:
    """The number of the newest audit with these tags; 0 where there is none."""
    return max(map(_number, _tagged(MlflowClient(), about)), default=0)


def _audits(client: MlflowClient, campaign: str, plan: str) -> list[Run]:
    """All audits of a plan, the newest first: by their numbers, as their times say nothing."""
    about = {"dpal.campaign": campaign, "dpal.plan": plan, "dpal.phase": "audit"}
    audits = _tagged(client, about)
    return sorted(audits, key=lambda run: (_number(run), run.info.start_time), reverse=True)


def _tagged(client: MlflowClient, tags: Mapping[str, str]) -> list[Run]:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return []
    query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    runs = client.search_runs([experiment.experiment_id], filter_string=query, max_results=_MOST)
    return list(runs)


def _number(audit: Run) -> int:
    """Audits of earlier versions have none, and are older."""
    return int(audit.data.tags.get(AUDIT_NUMBER, "0"))


def promote(
    uri: str,
    alias: str,
    *,
    by: str,
    reason: str,
    checks: Sequence[Check],
    author: str,
    tracking_uri: str | None,
    back: bool = False,
    day: str | None = None,
) -> str | None:
    """Points an alias to a version whose checks were made, and records that on the version.

    Args:
      uri: models:/NAME/VERSION.
      alias: what it is to be called.
      by: who decides.
      reason: why.
      checks: of its certificate; none of them failed.
      author: who signed the certificate, or why it is used although nobody known did.
      tracking_uri: where the registry is; None is what MLflow is set to.
      back: whether the alias goes back to a version that had it: what came before that one stays
        what it was, so that the next way back leads further.
      day: that is noted, as YYYY-MM-DD; None is today. Of a rule it is the day of the plan, as the
        day on which a campaign ended follows how many labels were bought.

    Returns:
      The version that had the alias before; None if none had.

    Raises:
      CertificateError: a check failed, or the registry refused.
    """
    if any(check.outcome is CheckOutcome.FAILED for check in checks):
        raise CertificateError(f"{uri} failed a check of its certificate; nothing was changed")
    require_alias(alias)
    name, number = name_and_version(uri)
    today = day or today_in_utc().isoformat()
    told = {"by": by, "at": today, "reason": reason, "checked": _in_words(checks)}
    told["author"] = author
    with registry_client(uri, tracking_uri) as client:
        before = client.get_registered_model(name).aliases.get(alias)
        if not back and str(before) != number:
            told["before"] = _NONE if before is None else str(before)
        # First why, then the alias: a version is never called so without a reason.
        for key, value in told.items():
            client.set_model_version_tag(name, number, f"{alias}.{key}", value)
        client.set_registered_model_alias(name, alias, number)
        if before is not None and str(before) != number:
            client.set_model_version_tag(name, str(before), f"{alias}.until", today)
        if f"{alias}.until" in client.get_model_version(name, number).tags:  # it came back
            client.delete_model_version_tag(name, number, f"{alias}.until")
    return None if before is None else str(before)


def version_before(name: str, alias: str, tracking_uri: str | None) -> str:
    """The version that had an alias before the one that has it now.

    Args:
      name: of the registered model.
      alias: such as champion.
      tracking_uri: where the registry is.

    Raises:
      CertificateError: nobody has the alias, or nothing tells who had it before.
    """
    with registry_client(f"models:/{name}", tracking_uri) as client:
        current = client.get_registered_model(name).aliases.get(alias)
        tags = {} if current is None else client.get_model_version(name, str(current)).tags
    if current is None:
        raise CertificateError(f"no version of {name} is {alias}; nothing was changed")
    if (before := tags.get(f"{alias}.before")) == _NONE:
        raise CertificateError(
            f"version {current} of {name} is the first that was {alias}; nothing was changed"
        )
    if before is not None:
        return str(before)
    # Promoted by an earlier version of dpal: the days on which versions stopped having it remain.
    days = {
        version.number: version.tags[f"{alias}.until"]
        for version in versions(name, tracking_uri)
        if f"{alias}.until" in version.tags and version.number != str(current)
    }
    newest = [number for number, day in days.items() if day == max(days.values())]
    if len(newest) != 1:
        raise CertificateError(
            f"nothing tells which version of {name} was {alias} before version {current}; choose "
            f"one with dpal promote models:/{name} --show, and promote it; nothing was changed"
        )
    return newest[0]


def versions(name: str, tracking_uri: str | None) -> list[Version]:
    """All versions of a model, the newest first.

    Raises:
      CertificateError: there is no such model.
    """
    with registry_client(f"models:/{name}", tracking_uri) as client:
        aliases = client.get_registered_model(name).aliases
        model_versions = client.search_model_versions(f"name = '{name}'")
    called = {
        str(version.version): tuple(
            sorted(key for key, number in aliases.items() if str(number) == str(version.version))
        )
        for version in model_versions
    }
    told = [
        Version(
            number=str(version.version),
            aliases=called[str(version.version)],
            tags=dict(version.tags),
        )
        for version in model_versions
    ]
    return sorted(told, key=lambda version: int(version.number), reverse=True)


def _in_words(checks: Sequence[Check]) -> str:
    """Which checks were made, and which were not."""
    ok = [check.name for check in checks if check.outcome is CheckOutcome.OK]
    rest = [check.name for check in checks if check.outcome is CheckOutcome.UNCHECKED]
    said = f"ok: {', '.join(ok)}" if ok else "nothing was checked"
    return f"{said}; not checked: {', '.join(rest)}" if rest else said
