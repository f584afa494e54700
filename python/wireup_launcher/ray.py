# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Ray cluster for one program, on the nodes of a job.

    wireup run --hosts 'n[0-3]' --for ray python train.py

which is short for

    wireup run --hosts 'n[0-3]' --ppn 1 --bind-to none --rank-env python -m wireup_launcher.ray python train.py

One rank on each node runs ``ray start``, the first of them for Ray's head. When all nodes have joined, the program is
started once, on the first node, with ``RAY_ADDRESS`` in its environment. When it has ended, the job ends, with Ray's
processes and with the program's exit code. A secret of the job keeps other users out of the cluster. Options for ``ray
start`` come first, and ``--`` after them:

    python -m wireup_launcher.ray --num-cpus 8 -- python train.py
"""

import importlib.metadata
import os
import secrets
import subprocess
import sys

import wireup_launcher


def _ray_start(*options):
    """Returns when this node has joined. Workers take any free port: Ray's own range may contain the head's port."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--min-worker-port=0", "--max-worker-port=0"]
    subprocess.run(command + list(options), check=True, stdout=subprocess.DEVNULL)


def main(arguments):
    has_options = "--" in arguments and arguments[0].startswith("-")
    at = arguments.index("--") if has_options else -1
    options, program = arguments[:max(at, 0)], arguments[at + 1:]
    if not program:
        sys.exit("usage: python -m wireup_launcher.ray [OPTIONS OF RAY START --] PROGRAM [ARGUMENT...]")
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"wireup_launcher.ray: Ray is not installed for {sys.executable}: pip install ray")
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 52):
        # Older versions let in anybody who reaches the port.
        sys.exit(f"wireup_launcher.ray needs Ray 2.52 or newer, which asks for a secret; this is {version}")
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    address = f"{host}:{port}"
    job = wireup_launcher.open()
    world = job.world()
    token = world.bcast(secrets.token_hex(32).encode() if world.rank == 0 else None).decode()
    os.environ.update(RAY_ADDRESS=address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)
    if world.rank == 0:
        _ray_start("--head", f"--node-ip-address={host}", f"--port={port}", *options)
    world.barrier()
    if world.rank > 0:
        _ray_start(f"--address={address}", *options)
    world.barrier()
    if world.rank == 0:
        code = subprocess.call(program)
        if code:
            # As in a shell, if a signal has ended it. The job is still open here, so this ends the other ranks.
            sys.exit(code if code > 0 else 128 - code)
    world.barrier()
    job.close()


if __name__ == "__main__":
    main(sys.argv[1:])
