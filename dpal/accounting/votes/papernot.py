"""The data-dependent Rényi bound of noisy votes that was published with PATE.

Everything here bounds one direction only, D_order(M(D) || M(D')) for the votes D that were
cast: the reverse divergence can exceed it (by up to 1.4 where the cost is of any size). The
numbers also depend on private votes. So they are for comparing with published results, and
never certify anything by themselves.

Adjacency: one ballot of the teachers is replaced by another; their number is public.

Source:
  Bound: Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson (2018), "Scalable private
    learning with PATE", Prop. 7 (chance of a miss) and Thm 6 (its cost).
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dpal import check
from dpal.errors import ParameterError

Floats = NDArray[np.float64]


def log_miss_of_margin(positives: ArrayLike, *, teachers: float, sigma: float) -> Floats:
    """Returns ln q of yes-or-no votes: the chance that noise turns the majority.

    Args:
      positives: (n,), votes for yes, between 0 and `teachers`; fractions are allowed.
      teachers: how many votes there are.
      sigma: standard deviation of the Gaussian noise per vote count, in votes.

    Returns:
      (n,), natural logarithms, at most ln(1/2); exact for two bins.

    Raises:
      ParameterError: sigma or teachers is not above 0, or a count is outside of its range.
    """
    check.positive(teachers=teachers, sigma=sigma)
    counts = np.asarray(positives, dtype=np.float64)
    if counts.ndim != 1 or not np.all((counts >= 0) & (counts <= teachers)):
        raise ParameterError(f"positives must be (n,) counts between 0 and {teachers:g}")
    return np.asarray(
        scipy.special.log_ndtr(-np.abs(2 * counts - teachers) / (math.sqrt(2) * sigma))
    )


def log_miss(counts: ArrayLike, *, sigma: float, classes: int | None = None) -> Floats:
    """Returns ln q of histograms: a bound on the chance that noise changes the winner.

    Args:
      counts: (n, bins), votes per bin; their order does not matter.
      sigma: standard deviation of the Gaussian noise per vote count, in votes.
      classes: how many bins the votes have, if `counts` shows only some of them; all the
        others are empty. None if `counts` shows all of them.

    Returns:
      (n,), natural logarithms, at most ln(1 - 1/classes): the winner has the best chance.

    Raises:
      ParameterError: sigma is not above 0, a count is negative or no number, or there are
        fewer than two classes or fewer than bins are shown.
    """
    check.positive(sigma=sigma)
    votes = np.asarray(counts, dtype=np.float64)
    if votes.ndim != 2 or not votes.shape[1] or not np.all((votes >= 0) & np.isfinite(votes)):
        raise ParameterError("counts must be (n, bins) finite numbers >= 0 with at least one bin")
    rows, bins = votes.shape
    bins_in_all = bins if classes is None else classes
    check.at_least(max(2, bins), classes=bins_in_all)
    gaps = votes.max(axis=1, keepdims=True) - votes
    tails = np.asarray(scipy.special.log_ndtr(-gaps / (math.sqrt(2) * sigma)))
    # One of the winners is left out; which one of equals does not matter.
    tails[np.arange(rows), np.argmax(votes, axis=1)] = -np.inf
    if bins_in_all > bins:
        empty = scipy.special.log_ndtr(-votes.max(axis=1) / (math.sqrt(2) * sigma)) + math.log(
            bins_in_all - bins
        )
        tails = np.column_stack([tails, empty])
    return np.asarray(
        np.minimum(scipy.special.logsumexp(tails, axis=1), math.log1p(-1 / bins_in_all))
    )


def rdp_of_log_miss(
    log_miss: ArrayLike, *, sigma: float, orders: ArrayLike, capped: bool = True
) -> Floats:
    """Bounds the Rényi divergence of one released winner, given the chance of a miss.

    One direction only, from the votes that were cast to their neighbours: for comparing
    with published numbers, never a certificate.

    Args:
      log_miss: (n,), ln q, a bound on the chance of another winner; -inf costs nothing.
      sigma: standard deviation of the Gaussian noise per vote count, in votes.
      orders: (o,), Rényi orders above 1.
      capped: never above order / sigma^2, the cost whatever the votes. False gives the
        theorem's number as it stands wherever the theorem holds (only larger).

    Returns:
      (n, o), Rényi divergences in nats; order / sigma^2 where the theorem does not hold.

    Raises:
      ParameterError: sigma is not above 0, an order not above 1, or a logarithm above 0.

    Source:
      Papernot et al. (2018), Thm 6, with mu1 and mu2 chosen for Gaussian noise as in its App. A.
    """
    log_q, order = _columns(log_miss, sigma=sigma, orders=orders)
    bound = _theorem(log_q, sigma, order)
    cap = order / sigma**2
    divergences = np.where(theorem_holds(log_miss, sigma=sigma, orders=orders), bound, cap)
    divergences = np.where(np.isneginf(log_q), 0.0, divergences)
    return np.asarray(np.minimum(divergences, cap) if capped else divergences)


def theorem_holds(log_miss: ArrayLike, *, sigma: float, orders: ArrayLike) -> NDArray[np.bool_]:
    """Tells where the data-dependent bound is proven, shape (n, o).

    Args and Raises: as of `rdp_of_log_miss`.
    """
    log_q, order = _columns(log_miss, sigma=sigma, orders=orders)
    mu2 = sigma * np.sqrt(-log_q)
    with np.errstate(divide="ignore", invalid="ignore"):  # -inf and mu2 <= 1 are told apart below
        eps2 = mu2 / sigma**2
        reach = (mu2 - 1) * eps2 - mu2 * (np.log1p(1 / mu2) + np.log1p(1 / (mu2 - 1)))
        small_enough = (mu2 > 1) & (-log_q > eps2) & (log_q <= reach)
    return np.asarray(np.isneginf(log_q) | ((order < mu2 + 1) & small_enough))


def log_answered(
    top: ArrayLike, *, threshold: float, sigma_threshold: float, rounded: bool = False
) -> Floats:
    """Returns the logarithm of the chance that a vote passes the check of confidence.

    A vote passes if its highest count plus noise exceeds the threshold.

    Args:
      top: (n,), highest counts of the histograms, in votes; fractions are allowed.
      threshold: in votes.
      sigma_threshold: standard deviation of the check's Gaussian noise, in votes.
      rounded: round the counts to whole votes (halves to even), as published numbers do;
        not sound for fractions of votes, so for comparing only.

    Returns:
      (n,), natural logarithms.

    Raises:
      ParameterError: sigma_threshold is not above 0, or another value is not finite.
    """
    distance = _distance(top, threshold, sigma_threshold, rounded)
    return np.asarray(scipy.special.log_ndtr(distance))


def rdp_of_answering(
    top: ArrayLike,
    *,
    threshold: float,
    sigma_threshold: float,
    orders: ArrayLike,
    rounded: bool = False,
) -> Floats:
    """Bounds the Rényi divergence of releasing whether a vote passed the check.

    It is spent whether the vote passed or not. One direction only: for comparing with
    published numbers, never a certificate.

    Args:
      top: (n,), highest counts of the histograms, in votes.
      threshold: in votes.
      sigma_threshold: standard deviation of the check's Gaussian noise, in votes.
      orders: (o,), Rényi orders above 1.
      rounded: as of `log_answered`.

    Returns:
      (n, o), Rényi divergences in nats, at most order / (2 sigma_threshold^2).

    Raises:
      ParameterError: as of `log_answered`, or an order is not above 1.

    Source:
      Papernot et al. (2018), Thm 6 on the less likely of the two answers.
    """
    distance = _distance(top, threshold, sigma_threshold, rounded)
    # Each answer's chance from its own tail: 1 - p would lose every digit of a small one.
    less_likely = np.asarray(scipy.special.log_ndtr(-np.abs(distance)))
    # One count moves by one here, not two in opposite ways: half the squared sensitivity.
    return rdp_of_log_miss(less_likely, sigma=math.sqrt(2) * sigma_threshold, orders=orders)


def _theorem(log_q: Floats, sigma: float, order: Floats) -> Floats:
    """The bound itself for ln q (n, 1) and orders (1, o); meaningless where it is not proven."""
    with np.errstate(all="ignore"):  # values outside of the conditions are thrown away
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
        log_a = np.log1p(-np.exp(log_q)) - np.log1p(-np.exp((log_q + eps2) * (mu2 - 1) / mu2))
        log_b = eps1 - log_q / (mu1 - 1)
        usual = np.log1p(-np.exp(log_q)) + (order - 1) * log_a
        missed = log_q + (order - 1) * log_b
        return np.asarray(np.logaddexp(usual, missed) / (order - 1))


def _columns(log_miss: ArrayLike, *, sigma: float, orders: ArrayLike) -> tuple[Floats, Floats]:
    """Takes ln q as (n, 1) and orders as (1, o), checked."""
    check.positive(sigma=sigma)
    log_q = np.asarray(log_miss, dtype=np.float64)
    order = np.asarray(orders, dtype=np.float64)
    if log_q.ndim != 1 or not np.all(log_q <= 0):
        raise ParameterError("log_miss must be (n,) logarithms of chances, at most 0")
    if order.ndim != 1 or not np.all((order > 1) & np.isfinite(order)):
        raise ParameterError("orders must be (o,) finite numbers above 1")
    return log_q[:, None], order[None, :]


def _distance(top: ArrayLike, threshold: float, sigma_threshold: float, rounded: bool) -> Floats:
    """How far the highest counts lie above the threshold, in standard deviations, (n,)."""
    check.positive(sigma_threshold=sigma_threshold)
    highest = np.asarray(top, dtype=np.float64)
    if highest.ndim != 1 or not np.all(np.isfinite(highest)) or not math.isfinite(threshold):
        raise ParameterError("top must be (n,) finite counts, and threshold a finite number")
    votes = np.rint(highest) if rounded else highest
    return np.asarray((votes - threshold) / sigma_threshold)
