"""Prints what a program sees of its interpreter and process, without what differs between any two runs."""

import ctypes
import gc
import os
import re
import resource
import signal
import sys
import threading


def show(name, value):
    print(name, re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


def read(path):
    with open(path) as file:
        return file.read()


def status(name):
    return re.search(rf"^{name}:\s*(.*)$", read("/proc/self/status"), re.M).group(1)


show("argv", sys.argv)
show("orig_argv", getattr(sys, "orig_argv", None))
show("path", sys.path)
show("flags", sys.flags)
show("options", sys._xoptions)
show("warnoptions", sys.warnoptions)
show("garbage collection", (gc.isenabled(), gc.get_threshold()))
show("executable", (sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix))
skipped = ("__annotations__", "__builtins__", "__doc__")
main = vars(sys.modules["__main__"])
show("main", sorted((name, value) for name, value in main.items() if name[:2] == "__" and name not in skipped))
show("names in main", (sorted(name for name in main if name[:2] == "__"), main is globals()))
show("command line", read("/proc/self/cmdline"))
show("process name", read("/proc/self/comm"))
links = {fd: f"/proc/self/fd/{fd}" for fd in map(int, os.listdir("/proc/self/fd"))}
open_fds = {fd: re.sub(r"\d+", "N", os.readlink(link)) for fd, link in links.items() if os.path.islink(link)}
show("descriptors", sorted((fd, os.get_inheritable(fd), what) for fd, what in open_fds.items()))
show("variables", sorted(os.environ))
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
show("variables that C has otherwise", [name for name, value in os.environb.items() if getenv(name) != value])
few = (b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"PMI_FD", b"PMI_RANK", b"WIREUP_RANK")
show("some variables", [getenv(name) for name in few])
show("cwd", os.getcwd())
umask = os.umask(0)
show("umask", umask)
os.umask(umask)
show("limits", [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"])
show("affinity", os.sched_getaffinity(0))
show("session", (os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()))
show("signals", [status(name) for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "Threads", "NoNewPrivs")])
show("handlers", [signal.getsignal(number) for number in sorted(signal.valid_signals())])
death = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(death), 0, 0, 0)
show("parent death", death.value)
for name in ("stdin", "stdout", "stderr"):
    stream = getattr(sys, name)
    show(name, (stream, stream.line_buffering, stream.write_through, stream.errors, stream.seekable(), stream.isatty()))
    show(name + " is its own", (stream.fileno(), stream is getattr(sys, f"__{name}__")))
show("hooks", (sys.gettrace(), sys.getprofile(), sys.excepthook is sys.__excepthook__, sys.getrecursionlimit()))
show("native id", threading.main_thread().native_id == os.getpid())
show("children", read(f"/proc/self/task/{os.getpid()}/children"))
