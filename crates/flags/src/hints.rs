//! What the user of a wrong word probably meant: a word that is spelled alike, or a flag of another launcher.

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
pub fn foreign_hint(name: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let letter = name.get(..1).filter(|_| name[1..].bytes().all(|byte| byte.is_ascii_digit()));
    let is_it = |names: &[&str]| names.iter().any(|known| *known == name || Some(*known) == letter);
    FOREIGN.iter().find(|(names, ours, _)| is_it(names) && has(ours)).map(|(.., hint)| *hint)
}

/// The candidate nearest to `typed`, if it is near enough: a prefix, or at most one third of the letters wrong. One
/// letter may be wrong in words of two letters, not in a word of one. With more than one wrong letter the first one
/// must be right: `version` is not `session`.
pub fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let begins_alike = |candidate: &str| typed.as_bytes().first() == candidate.as_bytes().first();
    let scored = candidates.map(|candidate| (score(typed, candidate), candidate));
    let scored = scored.filter(|&(score, candidate)| score <= 1 || begins_alike(candidate));
    let best = scored.min_by_key(|&(score, candidate)| (score, candidate.len().abs_diff(typed.len())));
    let is_near = |score: usize, len: usize| score <= (len / 3).max(1) && score < len;
    best.filter(|&(score, candidate)| is_near(score, typed.len().max(candidate.len()))).map(|(_, name)| name)
}

fn score(typed: &str, candidate: &str) -> usize {
    if typed.len() >= 3 && candidate.starts_with(typed) {
        return 1;
    }
    distance(typed.as_bytes(), candidate.as_bytes())
}

/// Edit distance of two words, where two swapped letters count as one edit.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, &a) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &b) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(a != b);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && a == right[column - 1] && left[row - 1] == b {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_commands_that_have_the_flag() {
        assert!(foreign_hint("encrypt", |ours| ours == "plain-links").is_some_and(|hint| hint.contains("by default")));
        for typed in ["N", "N4"] {
            assert!(foreign_hint(typed, |ours| ours == "ppn").is_some_and(|hint| hint.contains("--ppn N")), "{typed}");
        }
        assert_eq!((foreign_hint("encrypt", |_| false), foreign_hint("frobnicate", |_| true)), (None, None));
    }

    #[test]
    fn near_words_are_suggested_and_distant_words_are_not() {
        let names = ["virtual-nodes", "verbose", "fanout", "ppn", "np", "label"];
        let find = |typed| nearest(typed, names.into_iter());
        assert_eq!(find("virtual-node"), Some("virtual-nodes"));
        assert_eq!(find("vnodes"), None);
        assert_eq!(find("virtual"), Some("virtual-nodes"));
        assert_eq!(find("fan-out"), Some("fanout"));
        assert_eq!(find("lable"), Some("label"));
        assert_eq!(find("pnp"), Some("ppn"));
        assert_eq!(find("frobnicate"), None);
        assert_eq!((nearest("3", ["1"].into_iter()), nearest("xp", ["np"].into_iter())), (None, Some("np")));
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
