# The record of `--preload auto`. It runs in one program with `importer.py`, which follows it.


class _WireupRecord:
    """The file with the names of modules that runs of a program have imported, for `--preload auto`.

    Its lines: a title; the program; time and size of the files that decide what the program imports; then a module
    each, in the order of the imports, or a minus sign and a module after whose import no rank can be forked. Only
    modules of the standard library and of `site-packages` are recorded: a module of the program itself may look at
    variables that only ranks have.
    """

    FILES_MAX = 256
    BYTES_MAX = 1 << 18

    def __init__(self, kind, what):
        import os
        import sys

        import _imp

        self.known, self.bad, self.path, self.problem = [], [], None, None
        self.roots = [os.path.dirname(os.__file__)]
        self.roots += [path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]
        files = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *self.roots]
        program = what
        if kind == "script":
            program = os.path.realpath(what)
            files += [program, os.path.join(program, "__main__.py")]
        elif kind == "module":
            from importlib.util import find_spec

            spec = find_spec(what.partition(".")[0])
            files += [spec.origin] if spec and spec.origin else []
        version = sys.version_info[:3]
        program = ascii((version, sys.executable, kind, program, "" if kind == "script" else os.getcwd()))
        self.head = ["wireup-preload 1", program, ascii([self.stamp(file) for file in files])]
        try:
            folder = self.folder()
            # Nodes that share the folder may have files of their own.
            self.path = os.path.join(folder, _imp.source_hash(0, "".join(self.head).encode()).hex())
            self.read()
        except OSError as error:
            self.problem = f"{error.filename}: {error.strerror}"

    @staticmethod
    def stamp(path):
        import os

        try:
            stat = os.stat(path)
        except OSError:
            return path, None
        return path, stat.st_mtime_ns, stat.st_size

    @staticmethod
    def folder():
        """The user's folder of records: nobody else can write to it."""
        import os

        base = os.environ.get("XDG_CACHE_HOME", "")
        if not base.startswith("/"):
            base = os.path.join(os.environ.get("HOME") or "/nonexistent", ".cache")
        path = base
        for name in ("", "wireup", "preload"):
            path = os.path.join(path, name) if name else path
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            stat = os.stat(path) if not name else os.lstat(path)
            if name and (stat.st_mode & 0o170022 != 0o040000 or stat.st_uid != os.geteuid()):
                raise PermissionError(1, "is not a folder that only you can write to", path)
        return path

    def read(self):
        import os

        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        with open(fd, encoding="ascii", errors="replace") as file:
            stat = os.fstat(fd)
            is_own = stat.st_mode & 0o170022 == 0o100000 and stat.st_uid == os.geteuid()
            lines = file.read(self.BYTES_MAX).splitlines() if is_own else []
        if lines[:3] == self.head:
            self.bad = [line[1:] for line in lines[3:] if line.startswith("-")]
            self.known = [line for line in lines[3:] if not line.startswith("-")]

    def write(self):
        """Never fails: a record only saves time."""
        import os
        import time

        if not self.path:
            return
        folder = os.path.dirname(self.path)
        new = os.path.join(folder, f".{os.uname().nodename}.{os.getpid()}.{time.time_ns()}")
        text = "".join(f"{line}\n" for line in [*self.head, *self.known, *("-" + name for name in self.bad)])
        if len(text) > self.BYTES_MAX or not text.isascii():
            return
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                with open(fd, "w", encoding="ascii") as file:
                    file.write(text)
                os.replace(new, self.path)
            except OSError:
                os.unlink(new)
                raise
            files = sorted(os.scandir(folder), key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            for entry in files[:-self.FILES_MAX]:
                os.unlink(entry.path)
        except OSError:
            pass

    def is_bad(self, name):
        return any(name == bad or name.startswith(bad + ".") for bad in self.bad)

    def add(self):
        """Records what the program has imported by now."""
        import sys

        mpi = sys.modules.get("mpi4py.MPI")
        known, new = set(self.known), []
        for name, module in list(sys.modules.items()):
            names = _wireup_names(module)
            spec, path = names.get("__spec__"), names.get("__file__")
            if name in known or name in self.first or self.is_bad(name):
                continue
            if not isinstance(path, str) or getattr(spec, "name", None) != name:
                continue
            if not any(path.startswith(root + "/") for root in self.roots):
                continue
            if mpi is not None and (module is mpi or any(value is mpi for value in list(names.values()))):
                continue
            new.append(name)
        if new:
            self.known += new
            self.write()

    def around(self, run):
        def record():
            try:
                self.add()
            except Exception:
                # Whatever a module does must not change how the program ends.
                pass

        def run_and_record():
            try:
                run()
            except SystemExit as end:
                if not end.code:
                    record()
                raise
            record()

        return run_and_record

    def shown(self):
        import sys

        if self.problem:
            return f"the imports of this program cannot be recorded: {self.problem}"
        if not self.known:
            return f"nothing is imported ahead, since no run of this program is recorded yet in {self.path}"
        # Names of the standard library come last.
        of_python = getattr(sys, "stdlib_module_names", ())
        tops = sorted(dict.fromkeys(name.partition(".")[0] for name in self.known), key=lambda top: top in of_python)
        shown = ", ".join(tops[:8]) + (f" and {len(tops) - 8} more" if len(tops) > 8 else "")
        return f"imports what {self.path} lists from earlier runs: {shown}"

    def import_all(self):
        import sys

        for name in self.known:
            if name in sys.modules or self.is_bad(name):
                continue
            try:
                __import__(name)
                if "mpi4py.MPI" in sys.modules:
                    raise _WireupRefusal("it has initialised MPI")
                _wireup_check(_wireup_open_devices(), _wireup_threads())
            except BaseException as error:
                # A file server or a lack of memory may be to blame for these.
                is_passing = isinstance(error, (OSError, MemoryError))
                if not is_passing:
                    self.bad.append(name)
                    self.write()
                then = "" if is_passing else "; further runs leave it out"
                why = error if isinstance(error, _WireupRefusal) else f"{type(error).__name__}: {error}"
                raise _WireupRefusal(f"{name} cannot be imported ahead ({why}){then}") from None
