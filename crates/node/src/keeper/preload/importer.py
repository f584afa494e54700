# Runs in the interpreter of the ranks' program (Python 3.9 or newer), which the keeper starts once on a node: imports
# modules, then forks the ranks. `wireup_job` is set in the first line; then come `record.py` and this file. `mod.rs`
# describes the messages.
#
#   keeper ── starts ──► importer ── forks ──► middle ── forks ──► up to 32 ranks
#                                              ends: its ranks become children of the keeper
#
# A rank continues as this file's last lines, which run the program in a module `__main__` of its own. All names of
# both files are in the module that was `__main__` before.


def wireup_import(job):
    """Imports in the importer. Returns only in a rank: a function that runs the program."""
    import os
    import sys

    # 3 and 4 are the numbers of a rank's PMI socket and listening socket: what modules open gets other numbers.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 4, inheritable=True)
    socket_fd = os.dup(3)
    for target in (0, 3):
        os.dup2(null, target, inheritable=True)
    if null != 4:
        os.close(null)
    import _socket

    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, socket_fd)
    os.set_inheritable(socket_fd, False)
    try:
        run, rank = _wireup_prepare(job, socket)
    except _WireupRefusal as refusal:
        run, reason = None, str(refusal)
    except BaseException as error:
        # Its traceback is on standard error, as in a rank.
        reason = "importing failed: " + " ".join(f"{type(error).__name__}: {error}".split())
        run, trace = None, error.__traceback__
        while trace and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    if run is None:
        _wireup_flush()
        socket.send(("no " + reason).encode(errors="replace")[:2000])
        os._exit(0)
    socket.send(b"ready")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
    while True:
        begin = socket.recv(1, _socket.MSG_PEEK)
        if not begin:
            os._exit(0)
        if begin == b"j":
            run = _wireup_take_job(rank, socket, socket.recv(1 << 20).split(b"\0")[1:])
            continue
        middle = os.fork()
        if middle == 0:
            request = None
            try:
                request = _wireup_fork_group(socket)
            finally:
                if request is None:
                    os._exit(1)
            is_first = _wireup_become(rank, *request)
            return rank.record.around(run) if rank.record and is_first else run
        if os.waitpid(middle, 0)[1] != 0:
            os._exit(1)


class _WireupRefusal(Exception):
    """Why the ranks cannot be forked from this interpreter."""


class _WireupNoProgram(_WireupRefusal):
    """Why no rank can run this program; other programs can be run."""


class _WireupRank:
    """What all ranks do alike after the fork."""


def _wireup_flush():
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def _wireup_prepare(job, socket):
    import gc
    import os
    import sys

    import _signal

    if sys.version_info < (3, 9):
        raise _WireupRefusal(f"Python {sys.version_info[0]}.{sys.version_info[1]} is older than 3.9")
    if sys.gettrace() or sys.getprofile() or "coverage" in sys.modules:
        raise _WireupRefusal("a tracer, profiler or coverage tool is active in the interpreter")
    try:
        import ctypes
    except ImportError as error:
        raise _WireupRefusal(f"it has no ctypes ({error})") from None
    modules, keeper, keep, _, kind, what, rest, unset, name, *argv = map(os.fsdecode, job)
    rank = _WireupRank()
    rank.keeper, rank.unset, rank.socket, rank.record = int(keeper), unset.split(), socket, None
    rank.c = ctypes.CDLL(None)
    rank.c.clearerr(ctypes.c_void_p.in_dll(rank.c, "stdin"))
    rank.argv, rank.name, rank.is_kept = argv, name, int(keep)
    if rank.is_kept:
        _wireup_name(rank.c, ["", "-", f"(wireup up --preload {modules})"], "")
    else:
        _wireup_name(rank.c, argv, name)
    rest = argv[len(argv) - int(rest):]
    run, rank.folder = _wireup_program(kind, what, rest)
    # Imports leave hardly any garbage. Looking for it takes a tenth of the time of `import torch`.
    collection, off = gc.get_threshold(), 2**31 - 1
    gc.set_threshold(off)
    if modules:
        for module in modules.split(","):
            __import__(module)
    else:
        rank.record = _WireupRecord(kind, what)
        rank.record.first = set(sys.modules)
        socket.send(("recorded " + rank.record.shown()).encode(errors="replace")[:2000])
        rank.record.import_all()
    if "mpi4py.MPI" in sys.modules:
        raise _WireupRefusal("mpi4py.MPI has initialised MPI, which each rank must do itself")
    _wireup_check(_wireup_open_devices(), [])
    # OpenBLAS ends its threads before a fork, and starts them again when they are needed. `os.fork` warns of threads.
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    _wireup_check([], _wireup_threads())
    blas = [f"{begin}openblas_set_num_threads{end}" for begin in ("", "scipy_") for end in ("", "64_")]
    rank.set_blas_threads = _wireup_functions(ctypes, "openblas", blas)
    rank.omp = os.environ.get("OMP_NUM_THREADS")
    rank.set_gomp_threads = _wireup_functions(ctypes, "libgomp", ["omp_set_num_threads"])
    rank.files = _wireup_files() if rank.is_kept else []
    gc.freeze()
    # A module may have set another threshold.
    if gc.get_threshold()[0] == off:
        gc.set_threshold(*collection)
    _wireup_flush()
    rank.c.fflush(None)
    rank.mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    return run, rank


def _wireup_files():
    """Time and size of the files of all modules."""
    import os
    import sys

    files = set()
    for path in {_wireup_names(module).get("__file__") for module in list(sys.modules.values())}:
        if isinstance(path, str) and os.path.isabs(path):
            # A module in an archive has the path of a file below the archive.
            while not os.path.exists(path):
                path = os.path.dirname(path)
            files.add(path)
    return [_WireupRecord.stamp(path) for path in sorted(files)]


def _wireup_names(module):
    """A module's names. Asking a lazy module for an attribute would import it."""
    try:
        return object.__getattribute__(module, "__dict__")
    except (AttributeError, TypeError):
        return {}


def _wireup_is_cwd(path):
    """Whether a path, unless it is empty, leads to the working directory of this process."""
    import os

    try:
        return not path or os.path.samestat(os.stat(path), os.stat("."))
    except OSError:
        return False


def _wireup_take_job(rank, socket, job):
    """Prepares an importer whose job is over for another job. Returns a function that runs the program; `None`: there
    is no such program, and the importer waits for another job."""
    import os
    import sys

    _, _, _, cwd, kind, what, rest, unset, name, *argv = map(os.fsdecode, job)
    rank.unset, rank.argv, rank.name = unset.split(), argv, name
    path_of_modules = sys.path[:]
    try:
        if not _wireup_is_cwd(cwd):
            raise _WireupRefusal(f"{cwd} is another folder now")
        for path, *stamp in rank.files:
            if _WireupRecord.stamp(path) != (path, *stamp):
                raise _WireupRefusal(f"{path} has changed")
        run, folder = _wireup_program(kind, what, argv[len(argv) - int(rest):])
        if folder is None or folder != rank.folder:
            raise _WireupRefusal("the program is in another folder")
        # A preloaded module may have changed it since the program's folder was put there.
        sys.path[:] = path_of_modules
    except _WireupNoProgram as reason:
        socket.send(f"declined {reason}".encode(errors="replace")[:2000])
        return None
    except _WireupRefusal as refusal:
        socket.send(f"no {refusal}".encode(errors="replace")[:2000])
        os._exit(0)
    socket.send(b"ready")
    return run


def _wireup_name(c, argv, name):
    """Gives this process a command line that has room in its own, and a name."""
    import ctypes
    import os
    import sys

    with open("/proc/self/cmdline", "rb") as file:
        argv[0] = os.fsdecode(file.read().split(b"\0")[0])
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = argv
    if name:
        c.prctl(15, os.fsencode(name), 0, 0, 0)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    line = b"".join(os.fsencode(word) + b"\0" for word in argv)
    if begin and end - begin >= len(line):
        ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


def _wireup_program(kind, what, rest):
    """Makes `__main__` and `sys.path[0]` as the program expects them. Returns a function that runs the program, and
    the folder in `sys.path[0]`; `None`: the program is such a folder itself."""
    import os
    import sys

    is_safe = getattr(sys.flags, "safe_path", sys.flags.isolated)
    main = type(sys)("__main__")
    own = globals()
    for name in own["wireup_first_names"]:
        if name in own:
            main.__dict__[name] = own[name]
    sys.modules["__main__"] = main

    def set_path(path):
        if not is_safe:
            sys.path[0] = path

    def run_module(name, alter_argv):
        import runpy

        return lambda: runpy._run_module_as_main(name, alter_argv)

    if kind != "script":
        for name in ("__file__", "__cached__"):
            main.__dict__.pop(name, None)
    if kind == "module":
        sys.argv[:] = ["-m", *rest]
        set_path(os.getcwd())
        return run_module(what, True), os.getcwd()
    if kind == "code":
        sys.argv[:] = ["-c", *rest]
        set_path("")
        if sys.version_info >= (3, 14):
            import textwrap

            what = textwrap.dedent(what)
        return _wireup_compiled(main, what, "<string>"), ""
    sys.argv[:] = [what, *rest]
    path = os.path.join(os.getcwd(), what)
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        for name in ("__file__", "__cached__"):
            main.__dict__.pop(name, None)
        if is_safe:
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return run_module("__main__", False), None
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise _WireupNoProgram(f"{what} is not a regular file")
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise _WireupNoProgram(f"{what}: {error.strerror}") from None
    if b"\0" in source:
        raise _WireupNoProgram(f"{what} is compiled, or is not Python source")
    folder = os.path.dirname(os.path.realpath(path))
    set_path(folder)
    main.__file__ = path
    main.__loader__ = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    return _wireup_compiled(main, source, path), folder


def _wireup_compiled(main, source, path):
    import sys

    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        # Each rank reports it.
        return lambda: exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    if path == "<string>" and sys.version_info >= (3, 13):
        import linecache

        # Tracebacks show lines of it.
        key = code if hasattr(linecache, "_interactive_cache") else path
        linecache._register_code(key, source, path)
    return lambda: exec(code, main.__dict__)


def _wireup_open_devices():
    import os

    kinds = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/infiniband/", "/dev/habanalabs")
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(kinds):
            found.add(target)
    return sorted(found)


def _wireup_threads():
    """The names of this process's other threads; one that is about to end gets a moment for that."""
    import os
    import time

    for _ in range(20):
        names = []
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/comm", errors="replace") as file:
                    if int(task) != os.getpid():
                        names.append(file.read().strip())
            except OSError:
                continue
        if not names:
            break
        time.sleep(0.01)
    return sorted(names)


def _wireup_check(devices, threads):
    import sys

    if devices:
        raise _WireupRefusal(f"a module has opened {', '.join(devices)}")
    if threads:
        few = ", ".join(threads[:4]) + (", ..." if len(threads) > 4 else "")
        plural = "s" if len(threads) > 1 else ""
        raise _WireupRefusal(f"a module has started {len(threads)} thread{plural} ({few}), which a fork would lose")
    monitoring = getattr(sys, "monitoring", None)
    tools = monitoring and any(monitoring.get_tool(tool) for tool in range(6))
    if sys.gettrace() or sys.getprofile() or tools:
        raise _WireupRefusal("a module has started a tracer or profiler")


def _wireup_functions(ctypes, part, names):
    """Functions with one of these names in loaded libraries whose file names contain `part`."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in file if ".so" in line}
    functions = []
    for path in sorted(path for path in paths if part in path.rpartition("/")[2]):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        functions += [getattr(library, name) for name in names if hasattr(library, name)]
    return functions


def _wireup_fork_group(socket):
    """Runs in a middle process: forks ranks for the messages that have arrived, and ends. Returns only in the ranks."""
    import os

    import _socket

    own = os.getpid()
    reader, writer = os.pipe()
    for _ in range(32):
        try:
            message, rights, _, _ = socket.recvmsg(1 << 20, _socket.CMSG_SPACE(5 * 4), _socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        if not message:
            break
        fds = []
        for _, _, data in rights:
            fds += [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
        slot = int(message.split(None, 1)[0])
        try:
            pid = os.fork()
        except OSError as error:
            socket.send(b"failed %d 8 %d" % (slot, error.errno))
            pid = None
        if pid == 0:
            os.close(writer)
            return message, fds, own, reader
        if pid:
            socket.send(b"forked %d %d" % (slot, pid))
        for fd in fds:
            os.close(fd)
    os._exit(0)


def _wireup_become(rank, message, fds, middle, reader):
    """Turns this process into a rank, in the steps and the order of `spawn/spawner.rs`. Returns whether it is the first
    rank of the node."""
    import os
    import sys
    import time

    import _signal

    head, cpus, *variables = message.split(b"\0")
    slot, session, has_pmi, has_listening, tracer, blas_threads = map(int, head.split())
    step = 1
    try:
        if session == 0:
            os.setpgid(0, 0)
        else:
            os.setsid()
        os.read(reader, 1)
        os.close(reader)
        while os.getppid() == middle:
            time.sleep(0.0002)
        rank.c.prctl(1, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() != rank.keeper:
            raise ChildProcessError(10, "another process has become the parent")
        rank.c.prctl(0x59616D61, tracer, 0, 0, 0)
        step = 2
        sources = iter(fds)
        for target, is_given in enumerate((True, True, True, has_pmi, has_listening)):
            if is_given:
                os.dup2(next(sources), target, inheritable=True)
            else:
                os.close(target)
        for fd in fds:
            os.close(fd)
        if session == 2:
            import fcntl
            import termios

            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        step = 3
        if cpus:
            os.sched_setaffinity(0, map(int, cpus.split(b",")))
    except (OSError, StopIteration) as error:
        # With too low a limit of open files, descriptors do not arrive.
        rank.socket.send(b"failed %d %d %d" % (slot, step, getattr(error, "errno", 24)))
        os._exit(127)
    for name in rank.unset:
        os.environ.pop(name, None)
    for variable in variables:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    if rank.is_kept:
        _wireup_name(rank.c, rank.argv, rank.name)
    _wireup_streams()
    if "threading" in sys.modules:
        sys.modules["threading"].main_thread()._set_native_id()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    _wireup_set_threads(rank, bool(cpus), blas_threads)
    rank.socket.send(b"up %d %d" % (slot, os.getpid()))
    rank.socket.close()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, rank.mask)
    return slot == 0


def _wireup_set_threads(rank, is_bound, blas_threads):
    """Gives libraries the number of threads that they would have chosen if this rank had loaded them. For OpenBLAS that
    is `blas_threads`, or if that is 0, the number that it has."""
    import os
    import sys

    # libgomp counts CPUs when it is loaded; torch has set a number of its own.
    omp = os.environ.get("OMP_NUM_THREADS")
    if is_bound and not omp and "torch" not in sys.modules:
        for function in rank.set_gomp_threads:
            function(len(os.sched_getaffinity(0)))
    if omp and omp != rank.omp and omp.isdigit():
        for function in rank.set_gomp_threads:
            function(int(omp))
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(int(omp))
    if blas_threads:
        for function in rank.set_blas_threads:
            function(blas_threads)


def _wireup_streams():
    """The streams of Python for descriptors of another kind than the importer's."""
    import io
    import os
    import sys

    if sys.stdin is sys.__stdin__ and sys.stdin is not None:
        old = sys.stdin
        raw = io.FileIO(0, "rb", closefd=False)
        raw.name = "<stdin>"
        buffer = io.BufferedReader(raw)
        stdin = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", old.line_buffering, old.write_through)
        stdin.mode = "r"
        sys.stdin = sys.__stdin__ = stdin
    if sys.stdout is sys.__stdout__ and sys.stdout is not None and not sys.stdout.write_through:
        sys.stdout.reconfigure(line_buffering=os.isatty(1))


def wireup_report(error):
    """Has Python report this exception of the program without the frames of this file."""
    import sys

    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    hook = sys.excepthook

    def shown(kind, value, _):
        sys.excepthook = hook
        hook(kind, value.with_traceback(trace), trace)

    sys.excepthook = shown


wireup_run = wireup_import(wireup_job)
try:
    wireup_run()
except SystemExit:
    raise
except BaseException as wireup_error:
    wireup_report(wireup_error)
    raise
