"""Starts processes in all ways that Python has, after the modules of --preload."""

import asyncio
import concurrent.futures
import multiprocessing
import subprocess
import sys
import threading


def square(number):
    return number * number


async def end_of_child():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
    return await child.wait()


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(4)), flush=True)
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        print(list(executor.map(square, range(4))), flush=True)
    command = [sys.executable, "-c", "import sys; print(sys.argv, sys.flags.optimize)", "word"]
    print(subprocess.run(command, capture_output=True, text=True).stdout, end="", flush=True)
    thread = threading.Thread(target=print, args=["thread"])
    thread.start()
    thread.join()
    print(asyncio.run(end_of_child()), flush=True)
