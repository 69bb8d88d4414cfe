"""Noise for gradients on an accelerator: drawn by the processor while the accelerator computes.

The noise has the law of `dpal.mechanisms.gaussian`, and its numbers are added as whole steps of the
same grid; only who draws them, and when, is different. Several threads draw, each from a
cryptographic stream of its own.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from dpal import check
from dpal.errors import NoiseReused
from dpal.mechanisms.gaussian import Steps, grid_length, grid_noise, resolution
from dpal.randomness import secure

_MOST_THREADS = 8


class NoiseAhead:
    """Draws the noise of one step after another, from the moment that a step begins."""

    def __init__(self, count: int, *, threads: int | None = None) -> None:
        """Opens a stream for each thread.

        Args:
          count: numbers of each step, at least 1.
          threads: that draw side by side; None takes as many as there are cores, up to 8.
        """
        check.at_least(1, count=count)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        threads = min(threads or min(cores, _MOST_THREADS), count)
        self._shares = [len(part) for part in np.array_split(np.empty(count, np.uint8), threads)]
        self._streams = [secure() for _ in self._shares]
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="noise")
        self._drawn: list[Future[Steps]] = []
        self._process = os.getpid()

    def begin(self) -> None:
        """Draws for a step that is allowed; does nothing where that is under way already."""
        if not self._drawn:
            self._drawn = [
                self._threads.submit(grid_noise, share, rng=stream)
                for share, stream in zip(self._shares, self._streams, strict=True)
            ]

    def take(self) -> Steps:
        """Hands out (count,) independent numbers floor(2**40 Z), once.

        Raises:
          NoiseReused: this process is a fork of the one that opened the streams.
        """
        if os.getpid() != self._process:  # what is drawn already, its parent has, too
            raise NoiseReused
        self.begin()
        drawn, self._drawn = self._drawn, []
        return np.concatenate([part.result() for part in drawn])

    def close(self) -> None:
        """Ends the threads; what was drawn and not taken is forgotten."""
        self._drawn = []
        self._threads.shutdown(wait=True, cancel_futures=True)


def noisy_sum_from(total: Tensor, scale: float, steps: Steps) -> Tensor:
    """What `gaussian.noisy_sum` makes of a sum and these numbers, to the last bit, on any device.

    Args:
      total: (n,) sums in float64; private.
      scale: standard deviation of the noise, above 0.
      steps: (n,) numbers of `NoiseAhead.take`, which serve no other sum.
    """
    step, finest = grid_length(scale), resolution(scale)
    noise = torch.from_numpy(steps).to(total.device).double()
    # An accelerator multiplies by the reciprocal of a plain number, which rounds otherwise.
    whole = torch.round(total / total.new_tensor(step))
    return torch.round((whole + noise) * (step / finest)) * finest
