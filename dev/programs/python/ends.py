"""Ends in the way that the first argument names."""

import atexit
import os
import signal
import sys
import threading


def fail(depth):
    if depth:
        fail(depth - 1)
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("a value") from error


def hook(kind, value, trace):
    print("hook", kind, trace.tb_frame.f_code.co_filename, value.__traceback__ is trace)


def use_hook():
    sys.excepthook = hook
    fail(1)


atexit.register(print, "atexit", flush=True)
ways = {
    "return": lambda: None,
    "exit3": lambda: sys.exit(3),
    "text": lambda: sys.exit("a text"),
    "none": lambda: sys.exit(None),
    "_exit": lambda: os._exit(9),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "terminate": lambda: signal.raise_signal(signal.SIGTERM),
    "abort": os.abort,
    "uncaught": lambda: fail(2),
    "hook": use_hook,
    "thread": lambda: threading.Timer(0.1, print, ["a thread"]).start(),
}
ways[sys.argv[1]]()
