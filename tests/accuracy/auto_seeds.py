"""`acquisition: auto` beside random selection, over ten seeds: is it ever worse by more than noise?

Each seed divides the training part anew into a pool and a validation set (a fifth), lets the
validation set choose as a campaign with `auto` does, and runs what was chosen, and random
selection, to be judged on the test part. Where random is chosen, both are one run, and differ by 0.
The learning rate is the one that the study of selections chose for random, on its own validation
set. What is done stays done: results are read first.

    python -m tests.accuracy.auto_seeds RESULTS.json [SET ...]
    python -m tests.accuracy.auto_seeds --table RESULTS.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpal.errors import DpalError
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.randomness import seeded
from dpal.runs.chosen_acquisition import MOST_RECORDS, REHEARSALS, SCORES
from dpal.simulation.choose_acquisition import choose_acquisition, split_in_halves
from dpal.simulation.paired_comparison import PairedComparison, compare_with_reference
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, spec_for
from tests.accuracy.selections import PHYSICAL, SETS, DataSet, Loaded, load, run, wish

SEEDS = 10
SELECTIONS = Path("docs/results/selections.json")


def divided(about: DataSet, loaded: Loaded, seed: int) -> Loaded:
    """Another fifth of the training part as the validation set; as large as before.

    Where the pool was thinned out, and the validation set was not, both stay what they are, and
    rehearsals share the validation records out anew.
    """
    data = loaded.data
    if about.tail is not None:
        order = torch.from_numpy(
            seeded(seed, "validation records").permutation(len(data.validation_labels))
        )
        known = (data.validation_inputs[order], data.validation_labels[order])
        return replace(loaded, data=PublicData(data.inputs, data.labels, *known))
    inputs = torch.cat([data.inputs, data.validation_inputs])
    labels = torch.cat([data.labels, data.validation_labels])
    order = torch.from_numpy(seeded(seed, "validation records").permutation(len(labels)))
    held, pool = order[: len(data.validation_labels)], order[len(data.validation_labels) :]
    return replace(loaded, data=PublicData(inputs[pool], labels[pool], inputs[held], labels[held]))


def candidates(spec: CampaignSpec, loaded: Loaded) -> dict[Acquisition, CampaignSpec]:
    """The campaign with each acquisition that `auto` rehearses."""
    several = loaded.data.labels.ndim > 1
    scores = [one for one in SCORES if not (several and one is Acquisition.MARGIN)]
    return {
        Acquisition.RANDOM: spec_for(RehearsalMethod.RANDOM, spec),
        **{one: replace(spec, acquisition=one) for one in scores},
    }


def one_seed(
    about: DataSet,
    specs: Mapping[Acquisition, CampaignSpec],
    plans: Mapping[Acquisition, Plan],
    loaded: Loaded,
    seed: int,
) -> dict[str, Any]:
    """What `auto` chose, and how it and random selection did."""
    now = divided(about, loaded, seed)
    halves = split_in_halves(
        now.data.validation_inputs, now.data.validation_labels, runs=REHEARSALS, most=MOST_RECORDS
    )
    choice = choose_acquisition(specs, halves, physical_batch=PHYSICAL)
    random = run(
        plans[Acquisition.RANDOM], now, RehearsalMethod.RANDOM, Acquisition.ENTROPY
    )  # the score is not used
    found = {"chosen": choice.acquisition.value, "random": random[1], "auto": random[1]}
    if choice.acquisition is not Acquisition.RANDOM:
        score = choice.acquisition
        found["auto"] = run(plans[score], now, RehearsalMethod.HIDDEN, score)[1]
    return found


def measure(about: DataSet, loaded: Loaded, epsilon: float, rate: float) -> Iterator[Any]:
    """Yields the findings of one seed after the other."""
    specs = candidates(wish(about, loaded, epsilon, rate), loaded)
    plans: dict[Acquisition, Plan] = {}
    for name, spec in specs.items():
        try:
            plans[name] = certified_or_next_best(spec).plan
        except DpalError:  # `auto` finds the same, and leaves it out
            continue
    for seed in range(SEEDS):
        yield one_seed(about, specs, plans, loaded, seed)


def table(done: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| set | epsilon | chosen, of seeds | random | `auto` | beside random, points |"
    yield "|---|---|---|---|---|---|"
    for key, seeds in done.items():
        figures = {
            way: dict(enumerate(found[way] for found in seeds)) for way in ("random", "auto")
        }
        compared = compare_with_reference(figures, "random")["auto"]
        chosen = Counter(found["chosen"] for found in seeds).most_common()
        means = [100 * float(np.mean(list(figures[way].values()))) for way in ("random", "auto")]
        set_name, epsilon = key.split(" | epsilon ")
        yield (
            f"| {set_name} | {epsilon} | {', '.join(f'{name} {n}' for name, n in chosen)} "
            f"| {means[0]:.1f} | {means[1]:.1f} | {_beside(chosen, compared)} |"
        )


def _beside(chosen: Sequence[tuple[str, int]], compared: PairedComparison) -> str:
    if all(name == Acquisition.RANDOM for name, _ in chosen):
        return "the same runs"
    return compared.in_words()


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1] == "--table":
        print("\n".join(table(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))))
        return
    place = Path(sys.argv[1])
    done: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    rates = json.loads(SELECTIONS.read_text(encoding="utf-8"))
    for name in sys.argv[2:] or SETS:
        loaded = None
        for epsilon in SETS[name].epsilons:
            key = f"{name} | epsilon {epsilon:g}"
            known = rates.get(f"{key} | random")
            if known is None or len(done.get(key, ())) == SEEDS:
                continue
            loaded = loaded or load(SETS[name])
            found = []
            for finding in measure(SETS[name], loaded, epsilon, known["learning_rate"]):
                found.append(finding)
                print(key, finding, flush=True)
            done[key] = found
            place.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
