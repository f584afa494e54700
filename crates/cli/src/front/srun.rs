//! Options of Slurm's `srun` that occur in scripts which put `mpiexec` in its place; those that other launchers lack.

use super::row::{Row, Takes, always, does, no_effect, preset, refused, switch, value};
use super::rules::{output, placement};
use crate::flags::table as flag;
use Takes::{Attached, Nothing, One};

const QUEUE: &str = "it concerns Slurm's queue; give it to sbatch or salloc";

pub static ROWS: &[Row] = &[
    value(&["ntasks"], "N", &flag::RANKS),
    value(&["ntasks-per-node", "tasks-per-node"], "N", &flag::PPN),
    does(&["cpus-per-task"], One("N"), &placement::CPUS_PER_RANK),
    does(&["ntasks-per-socket"], One("N"), &placement::PER_SOCKET),
    value(&["nodelist", "w"], "LIST", &flag::HOSTS),
    value(&["chdir", "D"], "DIR", &flag::WDIR),
    does(&["cpu-bind", "cpu_bind"], One("WHAT"), &placement::BIND_TO),
    value(&["gpus-per-task"], "N", &flag::GPUS_PER_RANK),
    does(&["mpi"], One("KIND"), &placement::MPI),
    switch(&["label"], &flag::LABEL),
    always(&["unbuffered", "u"], Nothing, "output is shown as soon as a line is there"),
    does(&["input", "i"], One("WHO"), &output::STDIN),
    switch(&["overcommit", "O"], &flag::OVERSUBSCRIBE),
    preset(&["pty"], &flag::PTY, "0"),
    refused(&["multi-prog"], Nothing, "programs of one job are separated by a colon, or listed in -configfile FILE"),
    refused(&["nodes"], One("N"), "hosts are named with --hosts; --ntasks-per-node is the number of ranks on each"),
    no_effect(&["kill-on-bad-exit", "K"], Attached("0|1"), "a rank that fails ends the job"),
    refused(&["no-kill", "k"], Nothing, "a lost node ends its job"),
    no_effect(&["exclusive", "overlap", "exact"], Nothing, QUEUE),
    no_effect(
        &["job-name", "J", "account", "A", "partition", "p", "qos", "mem", "mem-per-cpu", "constraint", "C"],
        One("VALUE"),
        QUEUE,
    ),
];
