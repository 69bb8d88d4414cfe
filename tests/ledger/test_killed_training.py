from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.training_releases import TrainingRelease
from tests.ledger.stepping import FOLDER, NAME, STEPS, Training, begin, interrupted, story


class Kill:
    """Ends the process at its n-th touch of the disk or the ledger; the dead touch nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, watch: Path) -> None:
        self.left, self.points, self.dead = at, 0, False
        self.watch, self.most = watch, 0
        self.seen: list = []
        for owner, name in [
            (Path, "replace"),
            (Path, "unlink"),
            (os, "fsync"),
            (shutil, "rmtree"),
            (LedgerStore, "append"),
        ]:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, real):
        def call(*given, **named):
            self._point()
            answer = real(*given, **named)
            self._look()
            self._point()
            return answer

        return call

    def _point(self) -> None:
        self.points += 1
        self.dead = self.dead or self.points == self.left
        if self.dead:
            raise KeyboardInterrupt

    def _look(self) -> None:
        """What stands on the disk under its own name is released."""
        whole = [path for path in self.watch.rglob("*.safetensors") if path.name[0] != "."]
        steps = [path for path in whole if path.stem.isdecimal() and "discarded" not in path.parts]
        self.most = max(self.most, len(steps))
        states = [path for path in whole if path.stem != "optimizer"]
        self.seen += [json.loads(path.read_bytes()) for path in states]


def one_life(place: Path, at: int, *, redraw: bool = False) -> tuple[Kill, TrainingRelease]:
    """Runs until the n-th touch, as a process would that is killed there."""
    store = LedgerStore(place / "ledger.sqlite")
    try:
        with lock_folder(place / "planned"), pytest.MonkeyPatch.context() as patched:
            one = begin(CampaignLedger(store, "planned", place / "planned"))
            kill = Kill(patched, at, place)
            with suppress(KeyboardInterrupt):
                if redraw:
                    one.start_over(NAME)
                one.release_once(Training())
            return kill, one
    finally:
        store.close()


NEVER = 10**9


def touches(place: Path, **named: bool) -> int:
    kill, _ = one_life(place, NEVER, **named)
    return kill.points


# Points of interruption lie before and after each touch, so an odd stride meets both sides.
strides = pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.slow)])


@strides
def test_wherever_it_is_killed_every_step_is_paid_and_released_once(tmp_path, stride):
    """No released state is followed by another one than the final model's own."""
    points = touches(tmp_path / "undisturbed")
    assert points > 100
    for at in range(1, points + 1, stride):
        place = tmp_path / str(at)
        first, _ = one_life(place, at)
        second, _ = one_life(place, max(1, (at * 7919) % points))
        last, one = one_life(place, NEVER)
        assert first.dead
        final = json.loads(one.artifacts[1].read_bytes())
        assert [number for number, _ in final] == list(range(1, STEPS + 1)), at
        for seen in (*first.seen, *second.seen, *last.seen):
            assert seen == final[: len(seen)], at
        assert max(first.most, second.most, last.most) <= 2
        assert not one.checkpoints.exists()
        assert not list(place.rglob(".staged-*"))
        with LedgerView(place) as ledger:
            entries = ledger.entries()
        kinds = [entry.kind for entry in entries]
        assert kinds.count(EntryKind.RESERVE) == kinds.count(EntryKind.COMMIT) == 1
        steps = [entry.body["steps"] for entry in entries if entry.kind is EntryKind.CHECKPOINT]
        assert steps == [2, 4]


class LedgerView:
    """Reads a place's ledger and closes it again."""

    def __init__(self, place: Path) -> None:
        self.store = LedgerStore(place / "ledger.sqlite")
        self.ledger = CampaignLedger(self.store, "planned", place / "planned")

    def __enter__(self) -> CampaignLedger:
        return self.ledger

    def __exit__(self, *_) -> None:
        self.store.close()


def with_a_checkpoint(place: Path) -> Path:
    store = LedgerStore(place / "ledger.sqlite")
    with lock_folder(place / "planned"):
        interrupted(begin(CampaignLedger(store, "planned", place / "planned")), at=5)
    store.close()
    return place


@strides
def test_wherever_a_redraw_is_killed_it_is_charged_once_and_loses_nothing(tmp_path, stride):
    points = touches(with_a_checkpoint(tmp_path / "undisturbed"), redraw=True)
    for at in range(1, points + 1, stride):
        place = with_a_checkpoint(tmp_path / str(at))
        kept = (place / "planned" / FOLDER / "1" / "4.safetensors").read_bytes()
        one_life(place, at, redraw=True)
        _, one = one_life(place, NEVER, redraw=True)
        with LedgerView(place) as ledger:
            reserved = [
                entry.release for entry in ledger.entries() if entry.kind is EntryKind.RESERVE
            ]
            assert reserved == [NAME, f"{NAME}#2"], at
            assert story(ledger)[-1] == ("commit", f"{NAME}#2")
            assert ledger.committed(NAME) is not None
        aside = place / "planned" / "discarded" / "phase-0-training-1"
        assert (aside / "4.safetensors").read_bytes() == kept, at
        final = json.loads(one.artifacts[1].read_bytes())
        assert [number for number, _ in final] == list(range(1, STEPS + 1))
        assert final[:4] != json.loads(kept)
        assert not one.checkpoints.exists()
