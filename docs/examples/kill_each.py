"""What is left of a job when one of its processes is killed by SIGKILL, under several launchers.

    wireup-testbed run -n 2 --slurm --share $PWD -- python3 kill_each.py target/peers [LAUNCHER[:PROCESS]...]

target/peers is the folder that `cargo xtask setup` fills. Each trial starts an MPI program with two ranks on each of
the hosts n0 and n1. After MPI_Init each rank starts a daemon, with a session of its own and no open files, and sleeps.
Then one process is killed, here or on n1, or all processes of the launcher at once. Printed is what is still alive 10 s
later. Slurm does not recover from some of these trials, so each process of `srun` needs a new testbed.
"""

import collections, contextlib, os, pathlib, signal, subprocess, sys, time

PROGRAM = """
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (fork() == 0) {
        setsid();
        for (int fd = 0; fd < 1024; fd++) close(fd);
        execlp("sleep", "sleep", "72222", (char *)0);
    }
    sleep(10000);
    MPI_Finalize();
}"""
PEERS = os.path.abspath(sys.argv[1])
MPICH = f"{PEERS}/mpich/bin/mpicc"
INTEL = f"cc -I{PEERS}/mpich/include {PEERS}/intel/lib/libmpi.so.12 -Wl,-rpath,{PEERS}/intel/lib,--disable-new-dtags"
ON_HOSTS = ["-hosts", "n0,n1", "-ppn", "2", "-n", "4"]
OPEN_MPI = ["--allow-run-as-root", "--mca", "btl_tcp_if_include", "10.77.0.0/16", "--host", "n0:2,n1:2", "-n", "4"]
WIREUP = ["run", "--hosts", "n0,n1", "--ppn", "2", "-x", "OMPI_MCA_btl_tcp_if_include=10.77.0.0/16"]
LAUNCHERS = {  # compiler of the program, command, names of the launcher's processes
    "wireup": (MPICH, ["wireup", *WIREUP], ["wireup run", "wireup-keeper", "wireup agent"]),
    "wireup, Open MPI 5": (f"{PEERS}/openmpi/bin/mpicc", ["wireup", *WIREUP],
                           ["wireup run", "wireup-keeper", "wireup agent", "wireup pmix-server"]),
    "wireup --contain none": (MPICH, ["wireup", *WIREUP, "--contain", "none"],
                              ["wireup run", "wireup-keeper", "wireup agent"]),
    "MPICH 5": (MPICH, [f"{PEERS}/mpich/bin/mpiexec", *ON_HOSTS], ["mpiexec", "hydra_pmi_proxy"]),
    "Intel MPI": (INTEL, [f"{PEERS}/intel/bin/mpiexec", *ON_HOSTS], ["mpiexec", "hydra_pmi_proxy"]),
    "Open MPI 4": ("mpicc.openmpi", ["mpirun.openmpi", *OPEN_MPI], ["mpirun.openmpi", "orterun", "orted"]),
    "Open MPI 5": (f"{PEERS}/openmpi/bin/mpicc", [f"{PEERS}/openmpi/bin/mpirun", *OPEN_MPI],
                   ["mpirun", "prterun", "prted"]),
    "srun": (MPICH, ["srun", "--mpi=pmi2", "-N", "2", "-n", "4"], ["srun", "slurmstepd"]),
}
INTEL_VARIABLES = {"I_MPI_ROOT": f"{PEERS}/intel", "FI_PROVIDER_PATH": f"{PEERS}/intel/lib/prov", "FI_PROVIDER": "tcp"}


def processes():
    """Pid: (role, network namespace) of each process in the namespaces of the testbed."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            space = os.readlink(f"/proc/{pid}/ns/net")
            if space in SPACES and open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
                words = open(f"/proc/{pid}/cmdline").read().split("\0")
                found[int(pid)] = (role(open(f"/proc/{pid}/comm").read().strip(), words), space)
        except OSError:
            pass
    return found


def role(name, words):
    if name.startswith("hold"):
        return "rank"
    if name == "sleep" and words[1] == "72222":
        return "daemon of a rank"
    return " ".join([name, *words[1:2]]) if name == "wireup" else name


def count(found, wanted):
    return sum(role == wanted for role, _ in found.values())


def trial(launcher, victims, space):
    """Kills the first of `victims` in `space`, or all of them everywhere. Returns their number, and what is left."""
    compiler, command, _ = LAUNCHERS[launcher]
    before = processes()
    started = lambda: {pid: found for pid, found in processes().items() if pid not in before}
    environment = dict(os.environ, **(INTEL_VARIABLES if launcher == "Intel MPI" else {}))
    job = subprocess.Popen([*command, f"{os.getcwd()}/{binary(launcher)}"], env=environment, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=open("kill_each.log", "w"), start_new_session=True)
    deadline = time.time() + 30
    while count(started(), "daemon of a rank") < 4:
        if time.time() > deadline:
            sys.exit(f"{launcher}: the job did not start: {open('kill_each.log').read()}")
        time.sleep(0.1)
    time.sleep(0.5)
    targets = sorted(pid for pid, (role, at) in started().items() if role in victims and space in (at, None))
    if space:
        targets = targets[:1]
    if not targets:
        job.terminate()
    for pid in targets:
        kill(pid)
    since, left = time.time(), started()
    while left and time.time() < since + 10:
        job.poll()
        time.sleep(0.1)
        left = started()
    took = time.time() - since
    for pid in left:
        kill(pid)
    job.wait()
    time.sleep(1)
    roles = collections.Counter(role for role, _ in left.values())
    return len(targets), ", ".join(f"{n} {role}" for role, n in sorted(roles.items())) or f"nothing, after {took:.1f} s"


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def binary(launcher):
    return "hold-" + "".join(filter(str.isalnum, launcher)).lower()


SPACES = [os.readlink("/proc/self/ns/net")]
for host in ("n0", "n1"):
    SPACES.append(subprocess.check_output(["ssh", host, "readlink", "/proc/self/ns/net"], text=True).strip())
pathlib.Path("hold.c").write_text(PROGRAM)
print("| launcher | killed | left 10 s later |\n| --- | --- | --- |")
for name, _, only in (argument.partition(":") for argument in sys.argv[2:] or LAUNCHERS):
    compiler, _, own = LAUNCHERS[name]
    program, *flags = compiler.split()
    subprocess.run([program, "hold.c", "-o", binary(name), *flags], check=True)
    each = [([one], place) for one in own for place in (0, 2)]
    for victims, place in [(["ssh"], 0), *each, (["rank"], 2), (own, None)]:
        if only and only not in victims:
            continue
        killed, left = trial(name, victims, SPACES[place] if place is not None else None)
        if killed:
            where = {0: "here", 2: "on n1", None: "everywhere"}[place]
            print(f"| {name} | {killed} {' or '.join(victims)} {where} | {left} |", flush=True)
