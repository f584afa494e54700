"""A rank that joins the default group of torch.distributed by Gloo, and prints when it had.

All ranks wait for each other after their imports, in a folder that they share, so that the time of the rendezvous does
not contain that of the slowest import. Arguments: the folder, `together` or `at-once` (without that wait), and the
method of rendezvous unless it is `env://`."""
import os
import sys
import time

import torch.distributed as dist

folder, mode, *method = sys.argv[1:]
imported = time.time()
if mode == "together":
    with open(os.path.join(folder, os.environ["RANK"]), "w"):
        pass
    while len(os.listdir(folder)) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.05)
    # The last rank that looked has seen all files; those that sleep follow within two of these waits.
    time.sleep(1)
began = time.time()
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=(method or ["env://"])[0], rank=rank, world_size=ranks)
initialised = time.time()
dist.barrier()
ended = time.time()
times = [None] * dist.get_world_size()
dist.all_gather_object(times, (began, initialised, ended, imported))
if dist.get_rank() == 0:
    began = max(time[0] for time in times)
    print("TIMES", len(times), *(max(time[i] for time in times) - began for i in (1, 2)), max(time[2] for time in times),
          flush=True)
dist.destroy_process_group()
