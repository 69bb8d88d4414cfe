"""Digits whose private neighbours vote, and a student of the answers; nothing is tuned on tests.

    python -m tests.accuracy.neighbour_votes --data DIR --epsilon 1 3 8

The 60,000 training digits of MNIST are private. Of the 10,000 test digits the first half is public
and asked, all of it; the other half judges. The embedding is the picture at half its size, scaled
to length 1. A small network learns from the answers alone, with moved pictures.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.neighbour_votes import NeighbourVotes, VotingRecords, least_noise, radii_for

Floats = NDArray[np.float64]

# Votes of a record and neighbours of a query by epsilon: more noise wants more of both.
SETTINGS = {1.0: (24, 150), 3.0: (12, 60), 8.0: (8, 40)}
_BAR = 3.0  # noisy votes of an answer, in standard deviations of the noise
_EPOCHS, _BATCH, _RATE, _MOVED = 15, 64, 2e-3, 2


def digits(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pictures (n, 784) from 0 to 1, and their classes."""
    table = pq.read_table(path)
    pictures = [
        np.asarray(Image.open(io.BytesIO(cell["bytes"] if isinstance(cell, dict) else cell)))
        for cell in table["image"].to_pylist()
    ]
    flat = np.array(pictures, dtype=np.float32).reshape(len(pictures), -1) / np.float32(255)
    return flat.astype(np.float32), np.array(table["label"].to_pylist())


def embedded(pictures: NDArray[np.float32]) -> Floats:
    """Half of the size, length 1."""
    small = pictures.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)
    return np.asarray(small / np.linalg.norm(small, axis=1, keepdims=True), dtype=np.float64)


def student(pictures: NDArray[np.float32], labels: NDArray[np.int64], seed: int) -> nn.Module:
    """A small network that learned from answers."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = nn.Sequential(
        *(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 64)),
        *(nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), _RATE, weight_decay=1e-4)
    inputs, targets = torch.tensor(pictures), torch.tensor(labels)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(inputs)).split(_BATCH):
            by = tuple(int(step) for step in rng.integers(-_MOVED, _MOVED + 1, 2))
            moved = torch.roll(inputs[batch].view(-1, 28, 28), by, (1, 2)).flatten(1)
            loss = nn.functional.cross_entropy(model(moved), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Prints a line of JSON for every draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", choices=list(SETTINGS), required=True)
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    private, classes = digits(given.data / "mnist-train.parquet")
    others, truth = digits(given.data / "mnist-test.parquet")
    places, asked = embedded(private), embedded(others[:5_000])
    for epsilon in given.epsilon:
        target = PrivacyTarget(epsilon=epsilon, delta=1 / (10 * len(private)))
        votes, neighbours = SETTINGS[epsilon]
        sigma = least_noise(votes, target)
        rule = NeighbourVotes(classes=10, votes=votes, sigma=sigma, bar=_BAR * sigma)
        # A query is among the public records itself: one of 5,000 lies at no distance.
        radii = radii_for(asked, asked, records=len(private), neighbours=neighbours + 12)
        for draw in range(given.draws):
            records = VotingRecords(rule, places, classes)
            answers = records.ask(asked, radii, rng=secure()).labels.astype(np.int64)
            said = answers != UNANSWERED
            model = student(others[:5_000][said], answers[said], draw)
            with torch.no_grad():
                guesses = model(torch.tensor(others[5_000:])).argmax(1).numpy()
            found = {
                "epsilon": epsilon,
                "sigma": sigma,
                "answered": float(said.mean()),
                "right": float((answers == truth[:5_000])[said].mean()),
                "student": float((guesses == truth[5_000:]).mean()),
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
