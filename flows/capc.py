"""Who asks sites that do not trust each other: query, retrain, report."""

from __future__ import annotations

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.capc_retraining import RetrainingConfig, parse_retraining
from dpal.ledger.folder_lock import lock_folder
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.capc_retraining import (
    ask_for_labels,
    learn,
    prepare_to_ask,
    report_retraining,
    version_retraining,
)
from tasks.flow_run_page import run_name
from tasks.tracking.retrainings import reach_tracking_of_retraining, track_retraining
from tasks.version_with_dvc import require_remote


# Settings are checked inside: what is wrong with them is then one sentence on the page.
@flow(name="capc", retries=0, flow_run_name=run_name, validate_parameters=False)
def buy_and_learn(config: RetrainingConfig) -> State:
    """Asks sites private queries, learns from their answers, and says what these were worth.

    Only queries without an answer are asked. Done again, also after a crash anywhere, nothing that
    was answered is asked or charged twice.

    Args:
      config: the vote, keys, queries, and own records.
    """
    wanted = parse_retraining(config)
    require_allowed(wanted)
    require_remote(wanted.runtime)
    retraining = prepare_to_ask(wanted)
    with lock_folder(retraining.folder.root):
        reach_tracking_of_retraining(wanted.runtime)
        ask_for_labels(retraining)
        retrained = learn(retraining)
        report_retraining(retraining, retrained)
        dvc_hash = version_retraining(retraining)
        track_retraining(retraining, retrained, dvc_hash)
    return Completed(message=retrained.in_words(), data=str(retraining.folder.root))
