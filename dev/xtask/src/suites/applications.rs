//! Applications that Debian has linked to Open MPI: LAMMPS, HPCC and ScaLAPACK's tests, with the answers that they
//! give.

use super::entry::{Ended, Entry, words};
use super::{libraries, source};
use crate::step::{Result, run_quietly};
use crate::{debian, layout};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const RANKS: u32 = 4;
/// Time limit of an application: on two idle processors each takes at most 30 s, but its ranks poll, so next to other
/// work it takes far longer (chosen).
const LIMIT: Duration = Duration::from_secs(300);

pub(super) fn entries() -> Result<Vec<Entry>> {
    debian::ensure(&["openmpi-bin", "lammps", "hpcc", "scalapack-mpi-test", "scalapack-test-common"])?;
    // The applications run in a folder of their own, because they leave files where they run.
    let folder = &source::folder("applications", |folder| {
        let inputs = layout::root().join("dev/suites/applications");
        run_quietly(Command::new("cp").arg("-r").arg(inputs.join(".")).arg("/usr/share/scalapack/.").arg(folder))
    })?;
    let entry = |name: &str, program: PathBuf, judge: fn(&Ended) -> String| Entry {
        limit: LIMIT,
        judge,
        ..Entry::new(format!("{name} {RANKS}"), RANKS, program, folder)
    };
    let lammps = Entry {
        arguments: words(["-in", "melt.in", "-log", "none"]),
        ..entry("lammps melt", "/usr/bin/lmp".into(), thermodynamics)
    };
    let hpcc = Entry { results: Some("hpccoutf.txt"), ..entry("hpcc", "/usr/bin/hpcc".into(), checks) };
    // The ScaLAPACK tests in the list that the package itself contains.
    let programs = libraries().join("scalapack/openmpi-tests");
    let list = programs.join("CTestTestfile.cmake");
    let list = std::fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let names = list.lines().filter_map(|line| line.strip_prefix("add_test(")?.split(' ').next());
    let scalapack = names.map(|name| entry(&format!("scalapack {name}"), programs.join(name), counts));
    Ok([lammps, hpcc].into_iter().chain(scalapack).collect())
}

/// The last line of LAMMPS's table: step, temperature, energies, pressure.
fn thermodynamics(ended: &Ended) -> String {
    let before = ended.said.lines().zip(ended.said.lines().skip(1)).find(|(_, next)| next.starts_with("Loop time"));
    match before {
        Some((line, _)) if ended.code == Some(0) => format!("OK: {}", single_blanks(line)),
        _ => no_answer(ended),
    }
}

/// The verdict of HPCC itself, and those of its parts.
fn checks(ended: &Ended) -> String {
    let count = |sign: &str| ended.said.lines().filter(|line| line.trim_end().ends_with(sign)).count();
    match ended.code {
        Some(0) if ended.said.contains("\nSuccess=1\n") => {
            format!("OK: {} passed, {} failed", count("PASSED"), count("FAILED"))
        }
        _ => no_answer(ended),
    }
}

/// How many tests of a ScaLAPACK program passed, failed, or did neither.
fn counts(ended: &Ended) -> String {
    let lines = ended.said.lines().filter(|line| line.contains(" tests completed") || line.contains(" tests skipped"));
    let lines: Vec<String> = lines.map(|line| single_blanks(line).trim_end_matches('.').to_owned()).collect();
    if ended.code != Some(0) || lines.is_empty() || !ended.said.contains("END OF TESTS") {
        return no_answer(ended);
    }
    let is_good = !lines.iter().any(|line| line.contains("failed") && !line.starts_with("0 "));
    format!("{}: {}", if is_good { "OK" } else { "FAILED" }, lines.join(", "))
}

fn no_answer(ended: &Ended) -> String {
    if ended.code == Some(0) { "no answer".into() } else { ended.by_exit_code() }
}

fn single_blanks(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(said: &str) -> Ended {
        Ended { code: Some(0), is_late: false, said: said.into() }
    }

    #[test]
    fn answers_are_found_in_the_output() {
        let table = "Step Temp \n   0   3.0\n  60   1.5   -4.8\nLoop time of 1.2 on 4 procs\n";
        assert_eq!(thermodynamics(&ended(table)), "OK: 60 1.5 -4.8");
        let tests = |failed: u32| {
            format!("  12 tests completed and passed.\n   {failed} tests completed and failed.\nEND OF TESTS.\n")
        };
        assert_eq!(counts(&ended(&tests(0))), "OK: 12 tests completed and passed, 0 tests completed and failed");
        assert!(counts(&ended(&tests(2))).starts_with("FAILED: "));
        assert_eq!(counts(&ended("nothing")), "no answer");
        assert_eq!(checks(&ended("a PASSED\nb FAILED\n\nSuccess=1\n")), "OK: 1 passed, 1 failed");
    }
}
