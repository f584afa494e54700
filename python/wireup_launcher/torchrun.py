# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The backend ``wireup`` of ``torchrun``: one ``torchrun`` on each node, without ``--rdzv-endpoint``:

    wireup run --hosts 'n[0-3]' --ppn 1 --bind-to none --for torch \\
        torchrun --rdzv-backend wireup --nnodes 4 --nproc-per-node 8 train.py

PyTorch before 2.5 does not find this backend: replace ``torchrun`` with ``python -m wireup_launcher.torchrun``.
"""

import inspect
import os
from datetime import timedelta

from torch.distributed import PrefixStore
from torch.distributed.elastic.rendezvous import api

from wireup_launcher.torch import place


class Handler(api.RendezvousHandler):
    """Rounds in which every torchrun of the job takes part: one at first, and one after each restart of workers."""

    def __init__(self, parameters):
        self._run_id, self._local_address = parameters.run_id, getattr(parameters, "local_addr", None)
        timeout = timedelta(seconds=parameters.get_as_int("join_timeout", 600))
        store, self._rank, self._size = place(timeout)
        if not parameters.min_nodes <= self._size <= parameters.max_nodes:
            raise ValueError(f"wireup has started torchrun {self._size} times: --nnodes must be {self._size}")
        # The store lives as long as the job, in which one torchrun may follow another.
        self._store, self._round = PrefixStore(f"torchrun {self._run_id}", store), 0

    def get_backend(self):
        return "wireup"

    def get_run_id(self):
        return self._run_id

    def next_rendezvous(self):
        if self.is_closed():
            raise api.RendezvousClosedError()
        store = PrefixStore(f"round {self._round}", self._store)
        self._round += 1
        if store.add("arrived", 1) == self._size:
            store.set("complete", "")
        store.wait(["complete"])
        if store.get("complete") == b"closed":
            raise api.RendezvousClosedError()
        if not hasattr(api, "RendezvousInfo"):  # before PyTorch 2.4
            return store, self._rank, self._size
        # Where the workers find their store, which is a new one in each round.
        build = api.RendezvousStoreInfo.build
        address = [self._local_address or os.environ.get("VLLM_HOST_IP")]
        takes_address = len(inspect.signature(build).parameters) > 2  # since PyTorch 2.5
        workers_store = build(self._rank, store, *(address if takes_address else []))
        return api.RendezvousInfo(store, self._rank, self._size, workers_store)

    def num_nodes_waiting(self):
        return self._store.add(f"round {self._round}/arrived", 0)

    def is_closed(self):
        return self._store.add("closed", 0) > 0

    def set_closed(self):
        self._store.add("closed", 1)
        # A torchrun that waits for another round would wait until its timeout.
        self._store.set(f"round {self._round}/complete", "closed")

    def shutdown(self):
        self.set_closed()
        return True


def handler():
    """What the entry point ``torchrun.handlers`` registers."""
    return Handler


if __name__ == "__main__":
    from torch.distributed.run import main

    from wireup_launcher import torchrun

    # Since PyTorch 2.5 the entry point may have registered the same class.
    api.rendezvous_handler_registry.register("wireup", torchrun.Handler)
    main()
