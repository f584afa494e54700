//! `wireup bench steps` with few ranks: every column has its phases; times are not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::Run;

struct Results(PathBuf);

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn steps_bench_measures_every_phase_of_every_column() {
    let results = Results(std::env::temp_dir().join(format!("wireup-steps-bench-{}", std::process::id())));
    fs::create_dir(&results.0).unwrap();
    let folder = results.0.display();
    let words =
        format!("bench steps --ranks 8,12 --ppn 4 --connect-max 8 --rounds 1 --csv {folder}/out.csv --svg {folder}");
    let outcome = Run::wireup(words.split_whitespace().map(str::to_owned)).succeed();
    let text = fs::read_to_string(results.0.join("out.csv")).unwrap();
    let all = ["launch", "PMI ring", "group", "address exchange", "connect", "total"];
    for (column, without) in [
        ("baseline", &["PMI ring", "group"][..]),
        ("staged", &["PMI ring", "group"]),
        ("groups", &[]),
        ("pmix-ring", &[]),
        ("on-demand", &["address exchange"]),
    ] {
        for (phase, ranks) in all.iter().flat_map(|phase| [8, 12].map(|ranks| (phase, ranks))) {
            let line = text.lines().find(|line| line.starts_with(&format!("{column},{ranks},4,1,{phase},")));
            // Twelve ranks are more than are connected to all others.
            let is_there = !without.contains(phase) && (ranks == 8 || column == "on-demand");
            assert_eq!(line.is_some(), is_there, "{column} {ranks} {phase}: {text}\n{outcome}");
            let max = line.and_then(|line| line.rsplit(',').next()).map(|max| max.parse::<f64>().unwrap());
            assert!(max.is_none_or(|max| max > 0.0), "{text}");
        }
    }
    assert!(fs::read_to_string(results.0.join("steps.svg")).unwrap().contains("on-demand"));
}
