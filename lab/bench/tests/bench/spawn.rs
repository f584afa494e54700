//! `wireup bench spawn` with few calls: every figure of both launchers is there; times are not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::Run;
use wireup_e2e::peers::program;
use xtask::layout;
use xtask::programs::Flavour;

struct Results(PathBuf);

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn spawn_bench_measures_every_figure_under_both_launchers() {
    let Some(program) = program(Flavour::Mpich5, "spawning") else { return };
    let results = Results(std::env::temp_dir().join(format!("wireup-spawn-bench-{}", std::process::id())));
    fs::create_dir(&results.0).unwrap();
    let (csv, json) = (results.0.join("out.csv"), results.0.join("out.json"));
    let words = format!(
        "bench spawn --mpi mpich --mpich-program {} --parents 2 --children 2 --calls 2 --pause 20 --rounds 1 --times 30 --csv {} --json {}",
        program.display(),
        csv.display(),
        json.display()
    );
    let outcome = Run::wireup(words.split_whitespace().map(str::to_owned)).cwd(&layout::root()).succeed();
    let text = fs::read_to_string(csv).unwrap();
    let count = |line: &str| text.lines().filter(|found| found.starts_with(line)).count();
    for launcher in ["wireup", "hydra-5"] {
        // Seven figures of two calls.
        assert_eq!(count(&format!("call,mpich,{launcher}")), 14, "{text}\n{outcome}");
        let calls = text
            .lines()
            .filter(|line| line.starts_with(&format!("many,mpich,{launcher}")) && line.contains(",call,s,"));
        assert_eq!(calls.count(), 30, "{text}\n{outcome}");
        assert!(
            text.lines().any(|line| line.starts_with(&format!("many,mpich,{launcher}")) && line.contains(",memory,B,"))
        );
    }
    // Three figures.
    assert_eq!(count("call,none,vfork"), 6, "{text}\n{outcome}");
    assert!(outcome.out().contains("vfork and exec beside ranks that poll, without a launcher: "), "{outcome}");
    let values = text.lines().skip(1).filter_map(|line| line.rsplit(',').next()?.parse::<f64>().ok());
    assert!(values.count() == text.lines().count() - 1, "{text}");
    assert!(fs::read_to_string(json).unwrap().contains("\"benchmark\": \"spawn\""));
}

#[test]
fn spawn_bench_fails_without_a_program() {
    let outcome = Run::wireup(["bench", "spawn", "--mpi", "mpich", "--mpich-program", "/none"].map(str::to_owned))
        .finish()
        .expect_code(125);
    assert!(outcome.out().contains("mpich: no /none; cargo xtask setup makes it"), "{outcome}");
}
