"""Measures how long Python jobs take to start, and how long whole applications take, under wireup and under the
launchers that users have today.

measure.py imports  --ranks 1,16,64 [--hosts 'n[0-3]'] --python VENV/bin/python [--open-mpi VENV/bin/python]
measure.py imports  --ranks 1,16,64 --modules torch,torch.distributed --python /usr/bin/python3 --mpi VENV/bin
measure.py torch    --hosts 'n[0-15]' --ppn 4 --python /usr/bin/python3
measure.py store    --hosts 'n[0-3]' --clients 256,1024 --python /usr/bin/python3
measure.py applications --hosts 'n[0-3]' --ranks 4,16,64 --programs FOLDER

`torch`, `store` and `applications`, and `imports` with --hosts, run on the hub of `wireup-testbed run -n N`.
Contestants take turns; --json FILE appends the lines that lab/SCHEMA.md describes, --rounds N says how often (3)."""
import argparse
import contextlib
import datetime
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
IMPORTS = "numpy,scipy.linalg,scipy.optimize,scipy.sparse.linalg,scipy.stats,mpi4py"
MODULES = "torch,torch.distributed"
# The slowest contestant has taken 200 s; a contestant that hangs must not stop the measurement.
TIMEOUT_S = 900
# A word of a command in place of which a new folder is named.
FOLDER = "FOLDER"


class Results:
    """Prints medians and writes the samples."""

    def __init__(self, benchmark, path, words):
        self.benchmark, self.file, self.values = benchmark, path and open(path, "a", encoding="utf-8"), {}
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        machine = {"host": platform.node(), "cpus": os.cpu_count(), "kernel": platform.release(), "cpu": cpu,
                   "memory_bytes": memory}
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.write({"record": "run", "schema": 1, "benchmark": benchmark, "version": version(), "commit": None,
                    "date": date, "machine": machine, "words": words})

    def write(self, line):
        if self.file:
            print(json.dumps(line), file=self.file, flush=True)

    def sample(self, contestant, case, quantity, unit, number, value):
        self.values.setdefault((tuple(case.items()), quantity, unit), {}).setdefault(contestant, []).append(value)
        print(f"  round {number}: {contestant}, {quantity}: {value:.4g} {unit}", flush=True)
        self.write({"record": "sample", "benchmark": self.benchmark, "contestant": contestant, "case": case,
                    "quantity": quantity, "unit": unit, "round": number, "value": value})

    def failed(self, contestant, case, number, why):
        print(f"  round {number}: {contestant} failed: {why}", flush=True)
        self.write({"record": "failed", "benchmark": self.benchmark, "contestant": contestant, "case": case,
                    "round": number, "why": why})

    def finish(self):
        for (case, quantity, unit), by_contestant in self.values.items():
            print(", ".join(f"{key} {value}" for key, value in case), f"- {quantity}")
            for contestant, values in by_contestant.items():
                print(f"  {contestant:24} {statistics.median(values):10.4g} {unit} of {len(values)}")
        if not self.values:
            sys.exit("measure.py: nothing was measured")


def version():
    return subprocess.run([WIREUP, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def output(words, cwd=None, **more):
    """The output of a command, or a RuntimeError with its last line."""
    environment = {**os.environ, **more}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            code = f"none within {TIMEOUT_S} s"
        out.seek(0)
        text = out.read().decode(errors="replace")
    if code != 0:
        raise RuntimeError(f"exit code {code}: {(text.strip().splitlines() or [''])[-1]}")
    return text


def rounds(results, options, cases):
    """Each case is a dictionary and its contestants: names, and functions that return (quantity, unit, value)."""
    for case, contestants in cases:
        print(", ".join(f"{key} {value}" for key, value in case.items()), flush=True)
        for number in range(options.rounds):
            for name, measure in contestants:
                subprocess.run(["sh", "-c", options.before], check=True)
                try:
                    for quantity, unit, value in measure():
                        results.sample(name, case, quantity, unit, number, value)
                except RuntimeError as error:
                    results.failed(name, case, number, str(error))


def imports(options):
    preloaded = options.modules or IMPORTS
    programs = os.path.dirname(options.python) if options.mpi is None else options.mpi

    def program(ranks):
        if options.modules:
            return [os.path.join(HERE, "imported.py"), FOLDER, str(ranks), options.modules]
        return [os.path.join(HERE, "first_line.py")]

    def timed(words, ranks):
        def measure():
            with in_target() as folder:
                began = time.time()
                text = output([folder if word is FOLDER else word for word in words],
                              OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
                files = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("measured")]
                measured = [open(path, encoding="utf-8").read().split() for path in files]
            if options.modules:
                if len(measured) != ranks:
                    raise RuntimeError(f"{len(measured)} of {ranks} ranks have imported the modules")
                yield "imported", "s", max(float(imported) for imported, _ in measured) - began
                yield "memory", "B", sum(int(pss) for _, pss in measured)
                return
            found = re.search(r"RANKS (\d+) (\S+) (\S+) (\d+)", text)
            if not found or int(found[1]) != ranks:
                raise RuntimeError(f"no line of {ranks} ranks")
            yield "initialised", "s", float(found[2]) - began
            yield "mpi_init", "s", float(found[3])
            yield "memory", "B", int(found[4])
        return measure

    for ranks in map(int, options.ranks.split(",")):
        hosts = ["--hosts", options.hosts] if options.hosts else []
        nodes = 4 if options.hosts else 1
        python = [options.python, *program(ranks)]
        own = [WIREUP, "run", "-n", str(ranks), *hosts, *(["--ppn", str(ranks // nodes)] if hosts else [])]
        peers = []
        hydra = os.path.join(programs, "mpiexec")
        if os.path.exists(hydra):
            there = ["-launcher", "ssh", "-hosts", ",".join(f"n{i}" for i in range(nodes))] if hosts else []
            peers.append(("hydra", [hydra, *there, "-n", str(ranks), *python]))
        if options.open_mpi and not hosts:
            mpirun = os.path.join(os.path.dirname(options.open_mpi), "mpirun")
            peers.append(("open-mpi", [mpirun, "--oversubscribe", "-n", str(ranks), options.open_mpi, *program(ranks)]))
        if not hosts and shutil.which("srun") and subprocess.run(["sinfo"], capture_output=True).returncode == 0:
            peers.append(("srun", ["srun", "--mpi=pmi2", "-n", str(ranks), *python]))
        contestants = [("wireup", [*own, *python]), ("wireup --preload", [*own, "--preload", preloaded, *python])]
        if options.stage:
            contestants.insert(1, ("wireup --stage", [*own, "--stage", *python]))
            contestants.append(("wireup --stage --preload", [*own, "--stage", "--preload", preloaded, *python]))
        case = {"program": options.modules or "numpy, scipy, mpi4py", "ranks": ranks, "nodes": nodes, "files": options.files}
        yield case, [(name, timed(words, ranks)) for name, words in contestants + peers]


def torch(options):
    program = os.path.join(HERE, "rendezvous.py")
    hosts = host_names(options.hosts)
    ranks = len(hosts) * options.ppn

    def timed(start, mode):
        def measure():
            with in_target() as folder:
                began = time.time()
                text = start([program, folder, mode])
            found = re.search(r"TIMES (\d+) (\S+) (\S+) (\S+)", text)
            if not found or int(found[1]) != ranks:
                raise RuntimeError(f"no line of {ranks} ranks: {text[-200:]}")
            if mode == "together":
                yield "init", "s", float(found[2])
                yield "init_barrier", "s", float(found[3])
            else:
                yield "first_collective", "s", float(found[4]) - began
        return measure

    # With the numbers that are its defaults for -r and -t, torchrun of PyTorch 1.13 fails under Python 3.11.
    def torchrun(words):
        script = "\n".join(
            f"ssh {host} {options.python} -m torch.distributed.run --nnodes {len(hosts)} --node_rank {i} "
            f"--nproc_per_node {options.ppn} -r 1 -t 1 --master_addr 10.77.0.1 --master_port 29500 {' '.join(words)} &"
            for i, host in enumerate(hosts))
        return output(["sh", "-c", script + "\nwait"], OMP_NUM_THREADS="1")

    def wireup(*more):
        return lambda words: output([WIREUP, "run", "--hosts", options.hosts, "--ppn", str(options.ppn), "--for",
                                     "torch", *more, options.python, *words], OMP_NUM_THREADS="1")

    def kept():
        """In a session whose nodes have kept the interpreters of an earlier job."""
        job = timed(lambda words: output([WIREUP, "run", "--session", "measure", "--ppn", str(options.ppn), "--for",
                                          "torch", options.python, *words], OMP_NUM_THREADS="1"), "at-once")
        output([WIREUP, "up", "measure", "--hosts", options.hosts, "--preload", MODULES])
        try:
            list(job())
            yield from job()
        finally:
            output([WIREUP, "down", "measure"])

    def in_files(words):
        return wireup()([*words, f"file://{words[1]}/addresses"])

    case = {"program": "torch", "ranks": ranks, "nodes": len(hosts)}
    yield {**case, "start": "together"}, [("wireup", timed(wireup(), "together")),
                                          ("addresses in files", timed(in_files, "together")),
                                          ("torchrun", timed(torchrun, "together"))]
    yield {**case, "start": "at once"}, [("wireup", timed(wireup(), "at-once")),
                                         ("wireup --preload", timed(wireup("--preload", MODULES), "at-once")),
                                         ("wireup up --preload", kept),
                                         ("torchrun", timed(torchrun, "at-once"))]


def store(options):
    clients = os.path.join(HERE, "store_clients.py")
    serve = ("import sys, datetime, time; from torch.distributed import TCPStore; "
             "s = TCPStore('10.77.0.1', 29600, None, True, datetime.timedelta(seconds=300), wait_for_workers=False); "
             "print('ready', flush=True); sys.stdin.read()")

    def took(words, count):
        shell = f"ulimit -n 8192; exec {options.python} {clients} {count} {' '.join(words)}"
        text = output([WIREUP, "run", "--hosts", options.hosts, "--ppn", "1", "--for", "torch", "sh", "-c", shell])
        yield "set_wait", "s", float(re.search(r"TOOK (\S+)", text)[1])

    def served(count):
        command = f"ulimit -n 8192; exec {options.python} -c \"{serve}\""
        server = subprocess.Popen(["ssh", "n0", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError("PyTorch's server did not start")
            yield from took(["10.77.0.1", "29600"], count)
        finally:
            server.stdin.close()
            server.wait()

    for count in map(int, options.clients.split(",")):
        case = {"clients": count, "nodes": len(host_names(options.hosts))}
        yield case, [("wireup", lambda count=count: took([], count)), ("torch", lambda count=count: served(count))]


def inputs(program, folder, ranks):
    """Writes what a program of `applications` reads in its working directory; returns its arguments, and its words
    about a right result. The tests of ScaLAPACK are those of its package, on one grid of all ranks."""
    rows = 1 << (ranks.bit_length() - 1) // 2
    columns = ranks // rows

    def write(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(name):
        with open(os.path.join(HERE, "../../dev/suites/applications", name), encoding="utf-8") as file:
            return file.read()

    def grid(text, **values):
        """Replaces the values before these words at the ends of lines."""
        return re.sub(r"(?m)^.*?(\s+(?:values of )?(\w+))$",
                      lambda found: f"{values[found[2]]}{found[1]}" if found[2] in values else found[0], text)

    if program == "hpcc":
        write("hpccinf.txt", grid(read("hpccinf.txt"), Ns=300, Ps=rows, Qs=columns))
        return [], "\nSuccess=1\n"
    if program == "lmp":
        write("melt.in", read("melt.in").replace("run 60", "run 200"))
        return ["-in", "melt.in", "-log", "none"], f" on {ranks} procs for 200 steps with 2048 atoms\n"
    with open("/usr/share/scalapack/LU.dat", encoding="utf-8") as file:
        text = re.sub(r"(?m)^4(\s+number of process)", r"1\1", file.read())
    write("LU.dat", grid(text, P=rows, Q=columns))
    return [], " 0 tests completed and failed"


def copies(folder):
    """Copies the programs and the libraries that they need, but not the C library, unless the folder exists."""
    if os.path.exists(f"{folder}/bin"):
        return
    os.makedirs(f"{folder}/bin")
    os.makedirs(f"{folder}/lib")
    for program in ["/usr/bin/hpcc", "/usr/bin/lmp", "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdlu"]:
        shutil.copy(program, f"{folder}/bin")
        for library in re.findall(r"=> (/\S+)", output(["ldd", program])):
            if not re.match(r"lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+)\.so", os.path.basename(library)):
                shutil.copy(library, f"{folder}/lib")


@contextlib.contextmanager
def session(hosts):
    output([WIREUP, "up", "measure", "--hosts", hosts])
    try:
        yield
    finally:
        output([WIREUP, "down", "measure"])


def applications(options):
    """Whole jobs of Open MPI programs, from before the launcher is started until it has ended."""
    programs = os.path.abspath(options.programs)
    copies(programs)
    hosts = host_names(options.hosts)

    def operations():
        """The lines in the log of the slow file server."""
        if not options.log:
            return 0
        with open(options.log, "rb") as log:
            return sum(1 for _ in log)

    def timed(launcher, program, ranks):
        def measure():
            with in_target() as folder:
                arguments, right = inputs(program, folder, ranks)
                variables = ["-x", f"LD_LIBRARY_PATH={programs}/lib", "-x", "OMP_NUM_THREADS=1"]
                words = [*launcher, *variables, f"{programs}/bin/{program}", *arguments]
                before, began = operations(), time.monotonic()
                text = output(words, folder, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                              OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_btl_tcp_if_include="10.77.0.0/16")
                took = time.monotonic() - began
                asked = operations() - before
                if program == "hpcc":
                    with open(os.path.join(folder, "hpccoutf.txt"), encoding="utf-8") as file:
                        text = file.read()
                if right not in text:
                    raise RuntimeError(f"no {right.strip()!r}: {text[-200:]}")
                yield "wall", "s", took
                if options.log:
                    yield "operations at the server", "count", asked
        return measure

    for ranks in map(int, options.ranks.split(",")):
        ppn = ranks // len(hosts)
        slots = ",".join(f"{host}:{ppn}" for host in hosts)
        with session(options.hosts):
            for program, modex in itertools.product(options.applications.split(","), ["full", "direct"]):
                launchers = []
                for where, flags in [("wireup", ["--hosts", options.hosts]), ("session", ["--session", "measure"])]:
                    for how, stage in [("", []), (", staged", ["--stage"]), (", prefetched", ["--stage=prefetch"])]:
                        launchers.append((where + how, [WIREUP, "run", *flags, "--ppn", str(ppn), "--modex", modex,
                                                        *stage]))
                direct = ["--mca", "pmix_base_collect_data", "0", "--mca", "pmix_base_async_modex", "1"]
                launchers.append(("mpirun", ["mpirun.openmpi", "--host", slots, "--oversubscribe", "--bind-to", "none",
                                             "--mca", "plm_rsh_agent", "ssh", "--mca", "plm_rsh_no_tree_spawn", "1",
                                             *(direct if modex == "direct" else [])]))
                case = {"program": program, "ranks": ranks, "nodes": len(hosts), "files": options.files, "modex": modex}
                yield case, [(name, timed(words, program, ranks)) for name, words in launchers]


def in_target():
    """A folder that all hosts share."""
    return tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.dirname(HERE)) + "/target")


def host_names(hosts):
    first, last = map(int, re.fullmatch(r"n\[(\d+)-(\d+)\]", hosts).groups())
    return [f"n{i}" for i in range(first, last + 1)]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("what", choices=["imports", "torch", "store", "applications"])
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--programs", help="folder of the applications; it is filled if it is empty")
parser.add_argument("--applications", default="lmp,xdlu,hpcc", help="LAMMPS, a test of ScaLAPACK, HPCC")
parser.add_argument("--open-mpi")
parser.add_argument("--modules", help="import these, without MPI")
parser.add_argument("--mpi", help="folder of mpiexec (default: that of --python)")
parser.add_argument("--log", help="log of the slow file server, `wireup-testbed slowfs`, that has the applications")
parser.add_argument("--ranks", default="1,16,64")
parser.add_argument("--clients", default="256,1024")
parser.add_argument("--hosts")
parser.add_argument("--ppn", type=int, default=4)
parser.add_argument("--files", default="local disk", help="where the modules are, for the case")
parser.add_argument("--stage", action="store_true")
parser.add_argument("--before", default="", help="shell command before each run: one that empties caches")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--json")
parser.add_argument("--wireup", default=os.path.join(HERE, "../../target/release/wireup"))
OPTIONS = parser.parse_args()
WIREUP = os.path.abspath(OPTIONS.wireup)
BENCHMARK = "applications" if OPTIONS.what == "applications" else f"python-{OPTIONS.what}"
RESULTS = Results(BENCHMARK, OPTIONS.json, sys.argv[1:])
CASES = {"imports": imports, "torch": torch, "store": store, "applications": applications}
rounds(RESULTS, OPTIONS, CASES[OPTIONS.what](OPTIONS))
RESULTS.finish()
