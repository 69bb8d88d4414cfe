"""Processes on other machines that train a campaign's phase with this one.

A helper has the settings, the data and the weights on its own machine, and is told by the machine
that trains: the digest of the plan and the phases that are made of it, what the pool's files hold,
and the labeled rows of its share. It makes the plan of its own settings and refuses another one; it
refuses files that are not those of the plan. It needs no ledger: it releases nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import torch
from safetensors.torch import load

from dpal.canonical import digest
from dpal.config.campaign import CampaignConfig
from dpal.config.runtime import address_of
from dpal.data.labeled_records import labeled_rows, load_labeled_rows, owned_rows
from dpal.data.pictures import DECODING_THREADS
from dpal.data.pool_file_digests import as_recorded, learn_files, require_as_recorded
from dpal.data.process_share import Share
from dpal.data.sources import Source
from dpal.errors import ConfigError, DataError, HelperRefused, ParameterError
from dpal.ledger.data_set_accounts import share_of, share_record
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase, Plan
from dpal.planning.phases_json import read_phases
from dpal.runs.campaign import Campaign
from dpal.runs.campaign_from_held_plan import HELD_PLAN, held_plan_record, plan_as_written
from dpal.runs.kinds import folder_of
from dpal.runs.open_ledger import rank_key_file
from dpal.runs.open_sources import open_pool_alone
from dpal.runs.progress_logging import notify
from dpal.training.distributed.messages import Job
from dpal.training.distributed.rank_key import read_rank_key, write_rank_key
from dpal.training.distributed.remote_messages import HelperGreeting
from dpal.training.distributed.remote_worker import OpenedShare, help_training, join_training
from dpal.training.distributed.rendezvous import RemoteRanks
from dpal.training.distributed.team import place
from dpal.training.train_phase import Work

_AGAIN_SECONDS: Final = 1.0  # between two times that the machine that trains is asked
_TAKEN_TIMES: Final = 40  # a machine that no longer answers is given up before that


def remote_ranks_of(
    campaign: Campaign, phase: Phase, watch: Callable[[], None]
) -> RemoteRanks | None:
    """How helpers of other machines are let in to train a phase; None where there are none.

    Args:
      campaign: that trains here.
      phase: whose labeled records they share.
      watch: called while waiting for them; raises to give up.

    Raises:
      DataError: the key of these machines cannot be relied on.
    """
    runtime = campaign.config.runtime
    if runtime.rendezvous is None:
        return None
    file = rank_key_file()
    if not file.exists() and write_rank_key(file):
        notify(f"{file}: the key of machines that train together is new; copy it to each of them")
    return RemoteRanks(
        number=runtime.helpers,
        address=address_of(runtime.rendezvous),
        key=read_rank_key(file),
        order=partial(_first_order, campaign, phase),
        private=runtime.private_network,
        say=notify,
        watch=watch,
    )


def _first_order(campaign: Campaign, phase: Phase, share: Share) -> tuple[dict[str, Any], bytes]:
    """What a helper makes its plan of and compares, and the labeled rows that its share owns."""
    pool, plan = campaign.pool, campaign.plan
    rows = owned_rows(labeled_rows(campaign.files(phase).pool), share)
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_table(rows)
    return {
        "campaign": campaign.config.name,
        "phase": phase.name,
        "plan": plan.digest,
        "written": held_plan_record(campaign)[HELD_PLAN],
        "blocks": [share_record(block) for block in plan.spec.blocks],
        "files": as_recorded(pool.known or learn_files(pool.paths)),
        "reads": _reads(pool),
    }, written.getvalue().to_pybytes()


def _reads(pool: Source) -> str:
    """A digest of which rows and columns of its files a pool reads, and how."""
    held_out = None if pool.held_out is None else asdict(pool.held_out)
    return digest([pool.content.value, list(pool.texts), pool.has_split, held_out])


def _pause() -> None:
    time.sleep(_AGAIN_SECONDS)


@dataclass(kw_only=True)
class RankHelper:
    """One process that helps to train a campaign's phases, on a machine that does not lead it.

    Attributes:
      config: the campaign's settings on this machine.
      number: of the helper, among those of all other machines, from 0.
      local: its number on this machine, and how many there are.
      device: to compute on; with cuda each has a GPU of its own if there are enough.
      say: tells people something.
    """

    config: CampaignConfig
    number: int
    local: Share = field(default_factory=Share)
    device: str = "cpu"
    say: Callable[[str], None]

    _pool: Source | None = field(default=None, init=False, repr=False)

    def serve(self, key: Path, *, once: bool = False) -> None:
        """Helps with one phase after the other, also where one ended early, until it is stopped.

        Args:
          key: file of the key that the machines know.
          once: whether to stop after one phase.

        Raises:
          HelperRefused: the machine that trains does not take this helper.
          DpalError: this helper refuses what it was told.
        """
        runtime = self.config.runtime
        if runtime.rendezvous is None:
            raise ConfigError.before_release(
                "helpers find the machine that trains at runtime.rendezvous, and it is null; set "
                "it, and runtime.helpers, in the settings of all machines"
            ).about("runtime.rendezvous", "missing")
        place_of, secret = address_of(runtime.rendezvous), read_rank_key(key)
        device = place(torch.device(self.device), self.local)
        greeting = HelperGreeting(number=self.number)
        refused = 0
        while True:
            if not refused:
                self.say(f"helper {self.number} looks for a training at {runtime.rendezvous}")
            link = join_training(place_of, secret, greeting, wait=_pause)
            try:
                help_training(link, self._open_share, device=device, begun=self._begun)
            except (EOFError, ConnectionError, TimeoutError):
                self.say(
                    f"helper {self.number}: the training at {runtime.rendezvous} ended early, or "
                    "was lost on the way"
                )
            except HelperRefused as error:
                # Who was killed a moment ago may still be held for the one who trains.
                refused += 1
                if error.fault != "taken" or refused > _TAKEN_TIMES:
                    raise
                if refused == 1:
                    self.say(f"{error}; asks again for {_TAKEN_TIMES * _AGAIN_SECONDS:g} s")
                _pause()
            else:
                refused = 0
                self.say(f"helper {self.number}: the phase is trained")
                if once:
                    return

    def _begun(self, said: Mapping[str, Any], share: Share) -> None:
        self.say(
            f"helper {self.number}: trains {said['phase']} of {said['campaign']} as process "
            f"{share.rank + 1} of {share.processes}"
        )

    def _open_share(self, said: Mapping[str, Any], rows: bytes, share: Share) -> OpenedShare:
        """Makes the plan of its own settings, and loads the records that it is told."""
        plan, runtime = self._plan(said), self.config.runtime
        pool = self._opened(plan)
        if _reads(pool) != said["reads"]:
            raise ParameterError.before_release(
                f"{pool.name} is read here in another way than where {said['campaign']} trains "
                "(data.content, validation.share); use the same settings on all machines"
            )
        require_as_recorded(str(said["files"]), pool.paths, pool.known)
        scratch = folder_of(self.config).scratch
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        labeled = load_labeled_rows(
            pool,
            pa.ipc.open_stream(rows).read_all(),
            participation=plan.spec.participation,
            cache_mib=runtime.cache_mib // self.local.processes,
            scratch=scratch,
            workers=max(1, DECODING_THREADS // self.local.processes),
            share=share,
        )
        return OpenedShare(labeled=labeled, job=partial(self._job, plan))

    def _plan(self, said: Mapping[str, Any]) -> Plan:
        blocks = tuple(share_of(block) for block in said["blocks"])
        plan = plan_as_written(self.config, said["written"], blocks)
        made = "none" if plan is None else plan.digest[:12]
        if plan is None or plan.digest != said["plan"]:
            raise ParameterError.before_release(
                f"{said['campaign']} trains by plan {said['plan'][:12]}, and the settings of this "
                f"helper make {made}; use the same settings and weights on all machines"
            ).about("plan")
        return plan

    def _opened(self, plan: Plan) -> Source:
        """The pool as this machine has it; it is read once, and later refused where it changed."""
        if self._pool is None:
            pool = open_pool_alone(self.config)
            if pool.label_column is None:
                pool = replace(pool, task=plan.spec.model.task)
            self._pool = replace(pool, known=learn_files(pool.paths))
        return self._pool

    def _job(self, plan: Plan, said: Mapping[str, Any], weights: bytes) -> Job:
        """What a phase of the plan makes everyone do; how fast is this machine's own affair."""
        (phase,), spec = read_phases(said["phase"]), plan.spec
        if phase not in plan.phases:
            raise DataError.before_release(f"{phase.name} is not a phase of the plan as it came")
        model = build_model(spec.model)
        model.load_state_dict(load(weights))
        runtime = self.config.runtime
        work = Work(
            phase=phase,
            spec=replace(spec.optimizer, max_grad_norm=float(said["max_grad_norm"])),
            physical_batch=runtime.physical_batch,
            recipe=spec.recipe,
            backend=runtime.backend,
            done=int(said["done"]),
            group_records=1 if spec.groups is None else spec.groups.records,
        )
        return Job(model=model, work=work)
