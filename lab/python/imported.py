"""A rank that imports modules, without MPI: `imported.py FOLDER RANKS MODULES`. Writes two files into the folder: one
when it has imported them, and when all ranks have, one with that time and its memory (PSS: a page that n processes
share counts as 1/n of a page in each). Ends when all ranks have written both."""
import importlib
import os
import sys
import time

folder, ranks, modules = sys.argv[1:]
for module in modules.split(","):
    importlib.import_module(module)
imported = time.time()


def write(kind, text):
    path = os.path.join(folder, f"{kind}.{os.uname().nodename}.{os.getpid()}")
    with open(path + "~", "w") as file:
        file.write(text)
    os.rename(path + "~", path)
    while sum(name.startswith(kind) and "~" not in name for name in os.listdir(folder)) < int(ranks):
        time.sleep(0.1)


write("imported", "")
with open("/proc/self/smaps_rollup") as smaps:
    pss = next(int(line.split()[1]) * 1024 for line in smaps if line.startswith("Pss:"))
write("measured", f"{imported} {pss}")
