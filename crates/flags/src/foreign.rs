//! Flags of other launchers: what to use instead.

struct Foreign {
    /// Without dashes.
    names: &'static [&'static str],
    /// A flag of ours, without dashes; the hint is for commands that have it.
    ours: &'static str,
    hint: &'static str,
}

/// Flags of srun, mpirun and mpiexec, and others that users expect, whose names are not close to ours.
const FOREIGN: &[Foreign] = &[
    Foreign {
        names: &["encrypt", "encryption", "tls", "secure"],
        ours: "plain-links",
        hint: "links are encrypted by default; --plain-links turns that off",
    },
    Foreign { names: &["ntasks", "num-procs"], ours: "n", hint: "the number of ranks is -n N" },
    Foreign {
        names: &["ntasks-per-node", "tasks-per-node", "ranks-per-node", "pernode"],
        ours: "ppn",
        hint: "ranks on each node: --ppn N",
    },
    Foreign { names: &["nodelist", "w", "nodes"], ours: "hosts", hint: "hosts are named with --hosts n[0-3]" },
    Foreign { names: &["chdir", "D"], ours: "wdir", hint: "the working directory of the ranks is --wdir DIR" },
    Foreign { names: &["export"], ours: "env", hint: "ranks get your environment; --env NAME=VALUE adds to it" },
    Foreign { names: &["mpi"], ours: "pmi", hint: "wireup finds out which PMI a program needs; --pmi chooses one" },
    Foreign {
        names: &["mca", "gmca", "prtemca", "pmixmca"],
        ours: "env",
        hint: "parameters of Open MPI are set by variables, --env OMPI_MCA_name=value; wireup mpiexec takes this flag",
    },
    Foreign { names: &["cpu-bind", "cpu_bind"], ours: "bind-to", hint: "ranks are bound with --bind-to core" },
    Foreign {
        names: &["rsh", "launcher", "launcher-exec", "bootstrap"],
        ours: "remote-shell",
        hint: "the remote shell is --remote-shell CMD",
    },
    // Every command has --help.
    Foreign { names: &["version", "V"], ours: "help", hint: "the version is shown by wireup version" },
    Foreign { names: &["time", "t"], ours: "timeout", hint: "the job ends after --timeout SECONDS" },
];

/// What to use instead of a flag that the command lacks. `has`: whether it has one of ours.
pub fn hint(name: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    FOREIGN.iter().find(|foreign| foreign.names.contains(&name) && has(foreign.ours)).map(|foreign| foreign.hint)
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
