//! The tests of mpi4py, with two ranks: an entry for each file of tests.

use super::entry::{Ended, Entry};
use super::source;
use crate::step::Result;
use crate::{layout, peers};
use std::fs;

const PACKAGE: &str = "mpi4py==4.1.2";
const RANKS: u32 = 2;

pub(super) fn own_launcher() -> Vec<String> {
    vec![layout::mpich5().join("bin/mpiexec").display().to_string(), "-n".into()]
}

pub(super) fn entries() -> Result<Vec<Entry>> {
    peers::install()?;
    let folder = source::folder("mpi4py", |folder| source::pypi(PACKAGE, folder))?;
    let tests = folder.join(PACKAGE.replace("==", "-")).join("test");
    let files = fs::read_dir(&tests).map_err(|error| format!("{}: {error}", tests.display()))?;
    let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
    let mut modules: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".py")?.to_owned())).collect();
    modules.retain(|name| name.starts_with("test_"));
    modules.sort();
    let entry = |module: String| {
        let mut entry = Entry::new(format!("{module} {RANKS}"), RANKS, peers::python(&layout::mpich5()), &tests);
        entry.arguments = ["main.py", "-q", &module].map(str::to_owned).to_vec();
        entry.judge = judge;
        entry
    };
    Ok(modules.into_iter().map(entry).collect())
}

/// How each rank's summary ends: `OK`, `OK (skipped=2)`, `FAILED (failures=8)`; they must agree.
fn judge(ended: &Ended) -> String {
    let mut summaries: Vec<&str> =
        ended.said.lines().filter(|line| line.starts_with("OK") || line.starts_with("FAILED (")).collect();
    let count = summaries.len();
    summaries.dedup();
    match summaries[..] {
        [one] if count == RANKS as usize && (ended.code == Some(0)) == one.starts_with("OK") => one.to_owned(),
        _ => format!("{}, {count} summaries: {}", ended.by_exit_code(), summaries.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_must_agree() {
        let ended = |code, said: &str| judge(&Ended { code: Some(code), is_late: false, said: said.into() });
        assert_eq!(ended(0, "Ran 3 tests\n\nOK\n\nOK\n"), "OK");
        assert_eq!(ended(1, "FAILED (failures=8)\nFAILED (failures=8)\n"), "FAILED (failures=8)");
        for (code, said) in [(0, "OK\n"), (1, "OK\nOK\n"), (1, "OK\nFAILED (errors=1)\n")] {
            assert!(ended(code, said).contains("summar"), "{said}");
        }
    }
}
