"""The temperature of a released model: fitted on public records, kept beside it.

Neither weights nor certificate know of it: it is made of released weights and public records, and
whoever predicts may leave it out.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dpal.canonical import file_digest
from dpal.data.labeling_state import load_all
from dpal.files.atomic_writes import write_text
from dpal.runs.devices import device_of
from dpal.runs.kinds import KINDS
from dpal.runs.predict import open_model
from dpal.runs.released_phase import released_calibration, releases_a_model
from dpal.runs.run import Run
from dpal.training.calibration import fit_temperature
from dpal.training.evaluation import probabilities

_FORMAT = 1


def calibrate_released(run: Run[Any]) -> None:
    """Fits the released model's temperature, unless it is fitted, or nobody is public.

    Args:
      run: finished. Of a protected validation set nothing is read: a temperature would tell of it.
    """
    folder, judges = run.folder, KINDS[run.kind].use_cases().judges(run)
    if judges is None or not releases_a_model(folder) or released_calibration(folder) is not None:
        return
    model = open_model(folder.root)
    inputs, labels = load_all(judges)
    guesses = probabilities(
        model.build().to(device_of(run.runtime)),
        inputs,
        physical_batch=run.runtime.physical_batch,
        task=model.spec.task,
    )
    fitted = fit_temperature(model.spec.task, guesses, labels.numpy())
    told = {"format": _FORMAT, "model": file_digest(model.weights), **asdict(fitted)}
    write_text(folder.calibration, json.dumps(told, indent=2) + "\n")
