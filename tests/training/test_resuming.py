from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, load_file

from dpal.accounting.cohort_spending import Accountant
from dpal.data.labeled_records import LabeledSet
from dpal.errors import LedgerError
from dpal.files import atomic_writes
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.training_releases import TrainingRelease
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase, Plan
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.randomness import secure
from dpal.training.checkpoints import pack_state, restore_training
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.optimizers import build_optimizer
from dpal.training.train_phase import position, train_dp_sgd
from tests.conftest import CLASSES, WIDTH
from tests.ledger.releasing import PLAN

PHASE = replace(
    PLAN.phases[0], training=replace(PLAN.phases[0].training, steps=8, noise_multiplier=20.0)
)
QUIET = Plan(PLAN.spec, (PHASE,))
ADAM = OptimizerSpec(name="adam", learning_rate=0.01, momentum=0.0, max_grad_norm=1.0)


def labeled(count: int = 60) -> LabeledSet:
    generator = torch.Generator().manual_seed(0)
    return LabeledSet(
        inputs=torch.randn(count, WIDTH, generator=generator),
        labels=torch.randint(CLASSES, (count,), generator=generator),
        cohorts=np.zeros(count, dtype=np.int16),
    )


DATA = labeled()


class Training:
    """Trains the phase as a campaign does, until it is told to stop."""

    def __init__(self, *, every: int, stop: int | None = None, phase: Phase = PHASE) -> None:
        self.every, self.stop, self.phase = every, stop, phase
        self.began: int | None = None

    def __call__(self, steps):
        self.began = steps.done
        model = build_model(QUIET.spec.model)
        optimizer = build_optimizer(ADAM, model.parameters())
        if steps.state is not None:
            restore_training(steps.state, model, optimizer)

        def on_step(done: int) -> None:
            if done == self.stop:
                raise KeyboardInterrupt
            if done % self.every == 0:
                steps.persist(pack_state(model, optimizer), position(self.phase, done=done))

        train_dp_sgd(
            model,
            optimizer,
            DATA,
            self.phase,
            ADAM,
            physical_batch=64,
            rng=secure(),
            done=steps.done,
            before_step=steps.require,
            on_step=on_step,
        )
        return {"model.safetensors": pack_state(model, optimizer)}


def release_of(ledger: CampaignLedger) -> TrainingRelease:
    ledger.hold(
        QUIET.spec.target, QUIET.digest, "pool", QUIET.releases(), accountant=Accountant.RDP
    )
    folder = ledger.folder / "phase-0"
    return TrainingRelease(
        ledger=ledger,
        release=next(QUIET.releases()),
        inputs=[],
        artifacts=[folder / "model.safetensors"],
        checkpoints=folder / "checkpoints",
    )


@pytest.fixture
def in_ledger(tmp_path_factory):
    """Gives releases, each in a ledger of its own."""
    opened = []

    def make() -> TrainingRelease:
        place = tmp_path_factory.mktemp("campaign")
        store = LedgerStore(place / "ledger.sqlite")
        held = lock_folder(place / "planned")
        held.__enter__()
        opened.append((store, held))
        return release_of(CampaignLedger(store, "planned", place / "planned"))

    yield make
    for store, held in opened:
        store.close()
        held.__exit__(None, None, None)


def steps_of(state: dict[str, torch.Tensor]) -> set[float]:
    """How many steps Adam has behind it, as it counts them itself, for every parameter."""
    counted = {float(value) for name, value in state.items() if name.endswith(".step")}
    assert counted
    return counted


Interruption = tuple[str, int]


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    every=st.integers(1, 9),
    crashes=st.lists(
        st.tuples(st.sampled_from(["step", "write", "journal", "record"]), st.integers(1, 8)),
        max_size=4,
    ),
)
def test_wherever_it_stops_the_planned_steps_are_made_once(
    in_ledger: Callable[[], TrainingRelease], every: int, crashes: list[Interruption]
):
    one = in_ledger()
    for where, at in crashes:
        with pytest.MonkeyPatch.context() as patched:
            if where != "step":
                break_at(patched, where, at)
            try:
                one.release_once(Training(every=every, stop=at if where == "step" else None))
            except KeyboardInterrupt:
                continue
    going_on = Training(every=every)
    one.release_once(going_on)
    assert steps_of(load_file(one.artifacts[0])) == {8.0}
    entries = one.ledger.entries()
    recorded = [entry.body["steps"] for entry in entries if entry.kind is EntryKind.CHECKPOINT]
    assert recorded == sorted(set(recorded))
    assert all(0 < steps <= 8 for steps in recorded)
    if going_on.began is not None:
        assert going_on.began in {0, *recorded}
    kinds = [entry.kind for entry in entries]
    assert kinds.count(EntryKind.RESERVE) == kinds.count(EntryKind.COMMIT) == 1
    assert len(one.ledger.spent()) == 1
    assert sorted(path.name for path in one.artifacts[0].parent.iterdir()) == ["model.safetensors"]


def break_at(patched: pytest.MonkeyPatch, where: str, at: int) -> None:
    """Interrupts the n-th time that files are staged, journaled or recorded."""
    owner, name = {
        "write": (atomic_writes, "write_text"),  # of the journal: nothing counts as written yet
        "journal": (atomic_writes, "roll_forward"),
        "record": (LedgerStore, "append"),
    }[where]
    real, times = getattr(owner, name), [0]

    def call(*given, **named):
        times[0] += 1
        if times[0] == at:
            raise KeyboardInterrupt
        return real(*given, **named)

    patched.setattr(owner, name, call)


def test_a_step_made_again_has_other_noise_and_another_batch(in_ledger, monkeypatch):
    """Twice from the same checkpoint to the same step."""
    one = in_ledger()
    with pytest.raises(KeyboardInterrupt):
        one.release_once(Training(every=4, stop=5))
    (kept,) = one.checkpoints.rglob("*.safetensors")
    before, reached, batches = load_file(kept), [], []

    class Watched(PrivateGradient):
        def write(self, inputs, labels, sizes=None):
            batches.append(inputs[:])
            super().write(inputs, labels, sizes)

    monkeypatch.setattr("dpal.training.train_phase.PrivateGradient", Watched)

    def attempt(steps):
        model = build_model(QUIET.spec.model)
        optimizer = build_optimizer(ADAM, model.parameters())
        restore_training(steps.state, model, optimizer)

        def on_step(done: int) -> None:
            reached.append(load(pack_state(model, optimizer)))
            raise KeyboardInterrupt

        train_dp_sgd(model, optimizer, DATA, PHASE, ADAM, physical_batch=64, rng=secure(),
                    done=steps.done, before_step=steps.require, on_step=on_step)  # fmt: skip

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            one.release_once(attempt)
    assert [steps_of(state) for state in reached] == [{5.0}, {5.0}]
    assert not torch.equal(*batches)  # 60 fair coins agree once in 10^18
    # Adam's mean after a step is a tenth of the noisy gradient and what it was before.
    keys = [key for key in before if key.endswith("exp_avg")]
    first, second = (
        torch.cat([(state[key] - 0.9 * before[key]).flatten() for key in keys]) for state in reached
    )
    assert (first != second).all()
    # The noise is 20 times what a record may add: two of them, over 27 parameters, differ by
    # about 1.4 times one, and by less than half of it once in 10^8 runs. Noise used twice
    # would leave the batches' difference, a fraction of that.
    assert (first - second).norm() > 0.5 * max(first.norm(), second.norm())


def test_no_key_is_in_any_file(in_ledger, monkeypatch):
    """Nothing that noise or batches were drawn from, in any spelling."""
    keys, real = [], os.urandom

    def watched(count: int) -> bytes:
        drawn = real(count)
        if sys._getframe(1).f_globals["__name__"] == "dpal.randomness":
            keys.append(drawn)
        return drawn

    monkeypatch.setattr(os, "urandom", watched)
    one = in_ledger()
    with pytest.raises(KeyboardInterrupt):
        one.release_once(Training(every=2, stop=7))
    (description,) = one.checkpoints.rglob("*.json")
    about = json.loads(description.read_text())
    assert set(about) == {"format", "release", "steps", "position", "follows", "state"}
    assert about["position"] == {"part": 0, "steps": 6}
    assert keys
    files = [path for path in one.ledger.folder.parent.rglob("*") if path.is_file()]
    assert len(files) >= 3
    for path in files:
        content = path.read_bytes()
        for key in keys:
            for spelling in (key, key.hex().encode(), base64.b64encode(key)):
                assert spelling not in content


def test_a_longer_phase_than_reserved_stops_before_the_step(in_ledger):
    longer = replace(PHASE, training=replace(PHASE.training, steps=9))
    one = in_ledger()
    with pytest.raises(LedgerError, match=r"step 9 .* 8 reserved steps"):
        one.release_once(Training(every=8, phase=longer))
    (kept,) = one.checkpoints.rglob("*.safetensors")
    assert steps_of(load_file(kept)) == {8.0}
    assert not one.artifacts[0].exists()
