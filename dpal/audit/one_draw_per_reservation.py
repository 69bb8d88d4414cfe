"""Whether one reservation is one draw: a drill with the real ledger, and a look at a real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpal.accounting.events import Release
from dpal.audit.findings import AuditFinding, Layer
from dpal.canonical import file_digest
from dpal.errors import DpalError
from dpal.files.atomic_writes import atomic_write
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.plan_interface import RunPlan
from dpal.randomness import BitSource

_NAME = "drill"


class _Crash(Exception):
    """What the drill throws where a process might die."""


def drill_findings(plan: RunPlan, scratch: Path, *, rng: BitSource) -> list[AuditFinding]:
    """Takes a release of the plan through its life, with crashes, in a ledger of its own.

    Args:
      plan: gives the promise and a release.
      scratch: an empty folder; nothing in it matters afterwards.
      rng: what the drill draws.
    """
    folder = scratch / _NAME
    store = LedgerStore(scratch / "ledger.sqlite")
    try:
        with lock_folder(folder):
            return _drill(plan, CampaignLedger(store, _NAME, folder), folder, rng)
    finally:
        store.close()


def _drill(
    plan: RunPlan, ledger: CampaignLedger, folder: Path, rng: BitSource
) -> list[AuditFinding]:
    releases = list(plan.releases())
    first = next(number for number, release in enumerate(releases) if release.trains)
    target, release = plan.target, releases[first]
    # What was drawn before it is released as well: a secret draw makes it cheaper.
    releases = releases[: first + 1]
    ledger.hold(target, plan.digest, "0" * 64, releases, accountant=plan.accountant)
    artifact = folder / "drawn" / "artifact.bin"
    drawn: list[bytes] = []

    def draw() -> None:
        drawn.append(rng.words(8).tobytes())
        with atomic_write(artifact) as temporary:
            temporary.write_bytes(drawn[-1])

    def crash() -> None:
        raise _Crash

    def settle(how: object = draw) -> str:
        try:
            ledger.release_once(release, how, inputs=[], artifacts=[artifact])  # type: ignore[arg-type]
        except _Crash:
            return "crashed"
        except DpalError:
            return "refused"
        return "settled"

    for number, before in enumerate(releases[:first]):
        _release(ledger, before, folder / "drawn" / f"before-{number}.bin", rng)
    settle(crash)
    settle()
    once = len(drawn)
    settle()
    again = len(drawn)
    reserved = sum(
        entry.kind is EntryKind.RESERVE and entry.release == release.name
        for entry in ledger.entries()
    )
    draw()  # somebody draws once more, past the ledger
    retried = settle()
    return [
        _counted("draws under one reservation", once, 1),
        _counted("draws when it is asked for again", again - once, 0),
        _counted("reservations for one release", reserved, 1),
        AuditFinding(
            layer=Layer.LEDGER,
            what="a second artifact for it",
            expected="refused",
            measured=retried,
            passed=retried == "refused",
            likely="a release may be drawn twice and paid for once",
        ),
    ]


def _release(ledger: CampaignLedger, release: Release, artifact: Path, rng: BitSource) -> None:
    def draw() -> None:
        with atomic_write(artifact) as temporary:
            temporary.write_bytes(rng.words(8).tobytes())

    ledger.release_once(release, draw, inputs=[], artifacts=[artifact])


def _counted(what: str, seen: int, expected: int) -> AuditFinding:
    return AuditFinding(
        layer=Layer.LEDGER,
        what=what,
        expected=f"{expected}",
        measured=f"{seen}",
        passed=seen == expected,
        likely="a retry draws a release again without paying for it",
    )


def ledger_findings(plan: RunPlan, ledger: CampaignLedger) -> list[AuditFinding]:
    """Compares a campaign's ledger with its plan and with what lies in its folder.

    Args:
      plan: as the campaign was planned.
      ledger: of the campaign, started at least.
    """
    entries = ledger.entries()
    planned = {release.name: release.charges for release in plan.releases()}
    reserved = ledger.spent()
    # Another attempt at a release is named after it, such as "phase-2/training#2".
    strange = [
        release.name
        for release in reserved
        if planned.get(release.name.partition("#")[0]) != release.charges
    ]
    twice = _drawn_twice(entries, ledger.folder)
    given_up = [entry.release for entry in entries if entry.kind is EntryKind.FORFEIT]
    return [
        _none("releases that are not as planned", strange,
              "what was run is not what was planned: rates, noise or steps differ"),
        _none("reservations with two artifacts",
              twice, "a release was drawn twice and paid for once, or a file was replaced"),
        _none("releases given up", given_up,
              "a file was lost or altered after it was committed"),
    ]  # fmt: skip


def _drawn_twice(entries: Sequence[Entry], folder: Path) -> list[str]:
    """Releases whose committed digests are not those of the files, or of another commit."""
    releases: list[str] = []
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.kind is not EntryKind.COMMIT:
            continue
        for name, digest in entry.body["artifacts"].items():
            path = folder / name
            replaced = path.exists() and file_digest(path) != digest
            if replaced or seen.setdefault(name, digest) != digest:
                releases.append(entry.release)
                break
    return releases


def _none(what: str, names: Sequence[str], likely: str) -> AuditFinding:
    return AuditFinding(
        layer=Layer.LEDGER,
        what=what,
        expected="none",
        measured=", ".join(names) or "none",
        passed=not names,
        likely=likely,
    )
