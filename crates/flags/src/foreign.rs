//! Flags of other launchers: what to use instead.

/// Flags of srun, mpirun and mpiexec, and others that users expect, whose names are not close to ours: their names, our
/// flag, and the hint for commands that have it; names without dashes.
#[rustfmt::skip]
const FOREIGN: &[(&[&str], &str, &str)] = &[
    (&["encrypt", "encryption", "tls", "secure"], "plain-links",
        "links are encrypted by default; --plain-links turns that off"),
    (&["ntasks", "num-procs"], "n", "the number of ranks is -n N"),
    (&["ntasks-per-node", "tasks-per-node", "ranks-per-node", "pernode"], "ppn", "ranks on each node: --ppn N"),
    (&["nodelist", "w", "nodes"], "hosts", "hosts are named with --hosts 'n[0-3]'"),
    (&["chdir", "D"], "wdir", "the working directory of the ranks is --wdir DIR"),
    (&["export"], "env", "ranks get your environment; --env NAME=VALUE adds to it"),
    (&["mpi"], "pmi", "wireup detects which PMI a program needs; --pmi overrides it"),
    (&["mca", "gmca", "prtemca", "pmixmca"], "env",
        "parameters of Open MPI are set by variables, --env OMPI_MCA_name=value; wireup mpiexec takes this flag"),
    (&["cpu-bind", "cpu_bind"], "bind-to", "ranks are bound with --bind-to core"),
    (&["rsh", "launcher", "launcher-exec", "bootstrap"], "remote-shell", "the remote shell is --remote-shell CMD"),
    // Every command has --help.
    (&["version", "V"], "help", "wireup version shows the version"),
    (&["time", "t"], "timeout", "the job ends after --timeout SECONDS"),
];

/// What to use instead of a flag that the command lacks. `has`: whether it has one of ours.
pub fn hint(name: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    FOREIGN.iter().find(|(names, ours, _)| names.contains(&name) && has(ours)).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_commands_that_have_the_flag() {
        assert!(hint("encrypt", |ours| ours == "plain-links").is_some_and(|hint| hint.contains("by default")));
        assert_eq!((hint("encrypt", |_| false), hint("frobnicate", |_| true)), (None, None));
    }
}
