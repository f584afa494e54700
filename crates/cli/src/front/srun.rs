//! Options of Slurm's `srun` that occur in scripts which put `mpiexec` in its place; those that other launchers lack.

use super::row::{Make, Row, Takes, always, does, made, no_effect, preset, refused, switch, value};
use super::rules;
use crate::flags::table as flag;
use Takes::{Attached, Nothing, One};

const QUEUE: &str = "it concerns Slurm's queue; give it to sbatch or salloc";

#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    value(&["ntasks"], "N", &flag::RANKS),
    value(&["ntasks-per-node", "tasks-per-node"], "N", &flag::PPN),
    does(&["cpus-per-task"], One("N"), &rules::CPUS_PER_RANK),
    made(&["ntasks-per-socket"], "N", &flag::MAP_BY, Make::Number("ppr:", ":socket")),
    value(&["nodelist", "w"], "LIST", &flag::HOSTS),
    value(&["chdir", "D"], "DIR", &flag::WDIR),
    does(&["cpu-bind", "cpu_bind"], One("WHAT"), &rules::BIND_TO),
    value(&["gpus-per-task"], "N", &flag::GPUS_PER_RANK),
    does(&["mpi"], One("KIND"), &rules::MPI),
    switch(&["label"], &flag::LABEL),
    always(&["unbuffered", "u"], Nothing, "each line is shown as soon as it is complete"),
    does(&["input", "i"], One("WHO"), &rules::STDIN),
    switch(&["overcommit", "O"], &flag::OVERSUBSCRIBE),
    preset(&["pty"], &flag::PTY, "0"),
    refused(&["multi-prog"], Nothing, "programs of one job are separated by a colon, or listed in -configfile FILE"),
    refused(&["nodes"], One("N"), "hosts are named with --hosts; --ntasks-per-node is the number of ranks on each"),
    no_effect(&["kill-on-bad-exit", "K"], Attached("0|1"), "a rank that fails ends the job"),
    refused(&["no-kill", "k"], Nothing, "a lost node ends its job"),
    no_effect(&["exclusive", "overlap", "exact"], Nothing, QUEUE),
    no_effect(&["job-name", "J", "account", "A", "partition", "p", "qos", "mem", "mem-per-cpu", "constraint", "C"],
        One("VALUE"), QUEUE),
];
