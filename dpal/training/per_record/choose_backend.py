"""Builds the backend that was asked for, or the next plainer one that serves the model."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Precision
from dpal.training.backend_names import Backend
from dpal.training.per_record.backend import Loss, PerRecordGradients
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.per_record.capture import UnknownCall
from dpal.training.per_record.functional import Functional
from dpal.training.per_record.screening import agrees, probe_copy, refuse_mixing

_LOG = logging.getLogger(__name__)


def per_record_gradients(
    model: nn.Module,
    *,
    backend: Backend,
    loss: Loss,
    groups: Sequence[int],
    precision: Precision,
    like: Tensor,
    targets: Tensor,
) -> PerRecordGradients:
    """Screens a model on made-up records and builds a backend for it.

    Args:
      model: in the mode in which it trains.
      backend: which way is wanted.
      loss: of each record.
      groups: of parameters whose norms are measured together.
      precision: of the passes.
      like: (n, *input_shape) prepared records, of which only the shape and type are read.
      targets: (n, ...), likewise.

    Raises:
      ParameterError: the model mixes records, or the backend cannot compute in `precision`.
    """
    refuse_mixing(model, like)
    if backend is not Backend.BOOK_KEEPING and precision is not Precision.FP32:
        raise ParameterError(
            f"backend {backend} computes in fp32 only; set training.precision fp32, or "
            "runtime.backend book_keeping"
        )
    tried = probe_copy(model)
    if backend is Backend.OPACUS:
        # Opacus takes more than a second to import, and no other backend needs it.
        from dpal.training.per_record.opacus_hooks import OpacusHooks

        try:
            yardstick = OpacusHooks(tried, loss=loss, groups=groups)
        except NotImplementedError as error:
            raise ParameterError(
                "Opacus has no gradients of single records for a layer of this model; use "
                "runtime.backend book_keeping or functional"
            ) from error
        if not agrees(yardstick, tried, loss, like, targets):
            raise ParameterError(
                "Opacus finds other gradients for this model than autograd does; use "
                "runtime.backend book_keeping or functional"
            )
        yardstick.close()
        return OpacusHooks(model, loss=loss, groups=groups)
    if backend is Backend.BOOK_KEEPING:
        try:
            exact = BookKeeping(tried, loss=loss, groups=groups)
            if agrees(exact, tried, loss, like, targets):
                return BookKeeping(model, loss=loss, groups=groups, precision=precision)
            reason = (
                "a parameter is used outside of the layer that holds it, or a layer takes "
                "records along another axis than the first"
            )
        except UnknownCall as call:
            reason = str(call)
        if precision is not Precision.FP32:
            raise ParameterError(
                f"training.precision {precision} needs the book_keeping backend, which cannot "
                f"serve this model: {reason}; set training.precision fp32"
            )
        _LOG.warning("%s: torch.func serves the whole model, slowly", reason)
    return Functional(model, loss=loss, groups=groups)
