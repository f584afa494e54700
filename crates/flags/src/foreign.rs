//! Flags of other launchers: what to use instead.

/// Flags of srun, mpirun and mpiexec, and others that users expect, whose names are not close to ours: their names, our
/// flag, and the hint for commands that have it; names without dashes.
#[rustfmt::skip]
const FOREIGN: &[(&[&str], &str, &str)] = &[
    (&["encrypt", "encryption", "tls", "secure"], "plain-links",
        "links are encrypted by default; --plain-links turns that off"),
    (&["ntasks", "num-procs"], "n", "the number of ranks is -n N"),
    (&["ntasks-per-node", "tasks-per-node", "ranks-per-node", "pernode"], "ppn", "ranks on each node: --ppn N"),
    // In Open MPI's mpirun, too, `-N` is the number of ranks on each node.
    (&["N"], "ppn", "srun and flux mean nodes by it, mpirun ranks per node; for N ranks per node use --ppn N, for N \
        nodes name them with --hosts or use --virtual-nodes N"),
    (&["nodelist", "w", "nodes"], "hosts", "hosts are named with --hosts 'n[0-3]'"),
    (&["chdir", "D"], "wdir", "the working directory of the ranks is --wdir DIR"),
    (&["export"], "env", "ranks get your environment; --env NAME=VALUE adds to it"),
    (&["mpi"], "pmi", "wireup detects which PMI a program needs; --pmi overrides it"),
    (&["mca", "gmca", "prtemca", "pmixmca"], "env",
        "parameters of Open MPI are set by variables, --env OMPI_MCA_name=value; wireup mpiexec takes this flag"),
    (&["cpu-bind", "cpu_bind"], "bind-to", "ranks are bound with --bind-to core"),
    (&["rsh", "launcher", "launcher-exec", "bootstrap"], "remote-shell", "the remote shell is --remote-shell CMD"),
    // A hint for all commands: it names the flag `--help`, which every command has.
    (&["version", "V"], "help", "wireup version shows the version"),
    (&["time", "t"], "timeout", "the job ends after --timeout SECONDS"),
];

/// What to use instead of a flag that the command lacks. A number may follow one letter directly. `has`: whether the
/// command has one of our flags.
pub fn hint(name: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let letter = name.get(..1).filter(|_| name[1..].bytes().all(|byte| byte.is_ascii_digit()));
    let is_it = |names: &[&str]| names.iter().any(|known| *known == name || Some(*known) == letter);
    FOREIGN.iter().find(|(names, ours, _)| is_it(names) && has(ours)).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_commands_that_have_the_flag() {
        assert!(hint("encrypt", |ours| ours == "plain-links").is_some_and(|hint| hint.contains("by default")));
        for typed in ["N", "N4"] {
            assert!(hint(typed, |ours| ours == "ppn").is_some_and(|hint| hint.contains("--ppn N")), "{typed}");
        }
        assert_eq!((hint("encrypt", |_| false), hint("frobnicate", |_| true)), (None, None));
    }
}
