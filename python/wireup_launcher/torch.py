# SPDX-License-Identifier: Apache-2.0 OR MIT
"""PyTorch in jobs of ``wireup run --for torch``.

A process group by the store of the rank's own agent; rank and number of ranks are those of the job:

    import wireup_launcher.torch
    torch.distributed.init_process_group("gloo", init_method="wireup://")

The backend of ``torchrun`` is in ``wireup_launcher.torchrun``.
"""

import os
import sys
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.rendezvous import register_rendezvous_handler


def _client(timeout):
    options = {"port": int(os.environ["MASTER_PORT"]), "is_master": False, "timeout": timeout}
    try:
        return TCPStore(os.environ["MASTER_ADDR"], **options)
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
        # This build, for example Debian's, lacks libuv, which is the default.
        return TCPStore(os.environ["MASTER_ADDR"], **options, use_libuv=False)


def place(timeout):
    """A store, the rank, and the number of ranks."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise RuntimeError("wireup serves no store here: start the program with wireup run --for torch")
    return _client(timeout), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _rendezvous(url, timeout=timedelta(minutes=30), **_):
    yield place(timeout)
    raise RuntimeError("wireup:// does not support a second rendezvous")


register_rendezvous_handler("wireup", _rendezvous)

if __name__ == "__main__":
    sys.exit("this module is for programs of wireup run; start torchrun with python3 -m wireup_launcher.torchrun")
