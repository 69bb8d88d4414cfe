"""`dpal ranks`: helps another machine to train, by torchrun."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.read_settings import ConfigFile, Settings, load_values
from flows.cli.terminal import out, prepare_process

if TYPE_CHECKING:  # torch and numpy wait until they are needed
    from dpal.errors import DpalError

EXAMPLE = (
    "Example: dpal ranks clinic.yaml --processes 2; the third machine: dpal ranks clinic.yaml "
    "--first 2; with a torchrun of one's own: torchrun --nnodes 2 --nproc-per-node 4 --node-rank 1 "
    "--master-addr 10.8.0.2 --master-port 29500 --no-python dpal ranks clinic.yaml"
)
_TORCHRUN = "TORCHELASTIC_RUN_ID"  # in the environment of what it starts


def ranks_command(
    file: ConfigFile,
    settings: Settings = [],  # noqa: B006
    processes: Annotated[
        int, typer.Option(min=1, max=63, help="Helpers that this machine starts.")
    ] = 1,
    first: Annotated[
        int, typer.Option(min=0, max=62, help="Number of its first one: those of other machines.")
    ] = 0,
    device: Annotated[
        str | None,
        typer.Option(
            envvar="DPAL_DEVICE",
            help="auto (cuda where there is one), cpu, cuda, cuda:1; with a GPU for each helper "
            "where there are enough; as the settings say if left out.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYFILE",
            help="Key of these machines; ranks.key in this user's state folder if left out.",
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="How often torchrun starts helpers that died anew.")
    ] = 3,
    once: Annotated[bool, typer.Option("--once", help="Stop after one phase.")] = False,
    write_key: Annotated[
        bool,
        typer.Option("--write-key", help="Only make the key, where there is none, and say where."),
    ] = False,
) -> None:
    """Help the machine that trains a campaign, from this one, phase after phase.

    FILE is the campaign's, with runtime.rendezvous (the address of the machine that trains) and
    runtime.helpers. Pool and weights lie here as there, and the same key; the ledger is not needed.
    Stays until it is stopped (Ctrl-C), also where the training is killed and begins again.
    """
    from dpal.runs.kinds import campaign_of, parse_any
    from dpal.runs.open_ledger import rank_key_file
    from dpal.training.distributed.rank_key import read_rank_key, write_rank_key

    place = key or rank_key_file()
    if write_key:
        made = write_rank_key(place)
        read_rank_key(place)
        out.print(f"{place}: {'made' if made else 'is there'}; copy it to the other machines, "
                  "for its owner alone to read", markup=False)  # fmt: skip
        return
    read_rank_key(place)
    values = load_values(file, settings)
    campaign_of(parse_any(values))  # what is wrong with them is said once, before torchrun starts
    if device:
        from tasks.training_pool.worker_device import DEVICE, require_device_name

        require_device_name(device)
        os.environ[DEVICE] = device
    work = {
        "values": values,
        "first": first,
        "key": str(place),
        "once": once,
    }
    under = _TORCHRUN in os.environ
    refused = help_as_rank(work) if under else _launch(work, processes, restarts)
    if refused is not None:
        raise refused


def help_as_rank(work: dict[str, Any]) -> DpalError | None:
    """What each process does that torchrun started; gives why it was refused, if it was.

    A refusal is an answer, not a death: torchrun would start the process anew.
    """
    prepare_process()
    import torch

    from dpal.data.process_share import Share
    from dpal.errors import DpalError
    from dpal.runs.devices import require_device
    from dpal.runs.kinds import campaign_of, parse_any
    from dpal.runs.remote_ranks import RankHelper

    rank, local, here = (
        int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(max(1, (cores or 1) // here))
    try:
        from tasks.training_pool.worker_device import on_worker_device

        config = on_worker_device(campaign_of(parse_any(work["values"])))
        require_device(config.runtime, leads=False)
        helper = RankHelper(
            config=config,
            number=work["first"] + rank,
            local=Share(rank=local, processes=here),
            device=config.runtime.device,
            say=_say,
        )
        helper.serve(Path(work["key"]), once=work["once"])
    except DpalError as error:
        _say(str(error))  # others of this machine may train on for long
        return error
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if os.environ.get("DPAL_DEBUG"):
            raise
        # What it says may come from a record, and torchrun would print all of it.
        _say(
            f"helper {work['first'] + rank} failed ({type(error).__name__}); run it again with "
            "DPAL_DEBUG=1 to see where that comes from"
        )
        raise SystemExit(70) from None
    return None


def _launch(work: dict[str, Any], processes: int, restarts: int) -> DpalError | None:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from dpal.errors import HelperRefused

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="dpal",
        # Its usual rendezvous unpickles what anybody may have written into an open store.
        rdzv_backend="static",
        rdzv_endpoint="127.0.0.1:0",
        rdzv_configs={"rank": 0},
        local_addr="127.0.0.1",
        max_restarts=restarts,
    )
    try:
        answers = elastic_launch(config, help_as_rank)(work)
    except SignalException:
        out.print("helpers stopped")
        return None
    except ChildFailedError as error:
        died = ", ".join(str(number) for number in sorted(error.failures))
        return HelperRefused(
            f"helper {died}", f"it died {restarts + 1} times; see above what it said", "failed"
        )
    return next((answer for answer in answers.values() if answer is not None), None)


def _say(line: str) -> None:
    out.print(line, markup=False)
