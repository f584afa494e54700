//! The JSON lines of a run, in a folder that is removed when dropped. Hosts of a testbed see it as well.

use std::fs;

use serde_json::Value;
use wireup_e2e::folders::{self, Folder};

pub struct Results(pub Folder);

impl Results {
    pub fn of(name: &str) -> Results {
        Results(Folder::below(&wireup_e2e::programs::scratch(), name))
    }

    pub fn folder(&self) -> String {
        self.0.0.display().to_string()
    }

    pub fn json(&self) -> String {
        format!("--json={}/out.jsonl", self.folder())
    }

    /// A script that is used as a remote shell and runs its command on this machine.
    pub fn shell(&self, script: &str) -> String {
        let path = self.0.at("rsh");
        folders::write_program(&path, &format!("#!/bin/sh\n{script}\n"), 0o700);
        path.display().to_string()
    }

    /// The lines that a benchmark has written; the first line describes the run.
    pub fn lines(&self) -> Lines {
        let text = fs::read_to_string(self.0.at("out.jsonl")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(
            lines[0]["record"] == "run" && lines[0]["schema"] == 1 && lines[0]["machine"]["cpus"].as_u64() >= Some(1),
            "{text}"
        );
        assert!(lines.iter().all(|line| line["record"] != "failed"), "{text}");
        Lines(lines)
    }
}

pub struct Lines(Vec<Value>);

impl Lines {
    /// The values by round of a contestant, in cases with these fields, such as `ranks=8 part=times`.
    pub fn values(&self, contestant: &str, case: &str, quantity: &str) -> Vec<f64> {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let is_case = |line: &Value| {
            let has =
                |field: &str| field.split_once('=').is_some_and(|(name, value)| plain(&line["case"][name]) == value);
            case.split(',').all(has)
        };
        let is_it = |line: &&Value| {
            line["record"] == "sample"
                && line["contestant"] == contestant
                && line["quantity"] == quantity
                && is_case(line)
        };
        self.0.iter().filter(is_it).map(|line| line["value"].as_f64().unwrap()).collect()
    }

    /// The value of a contestant that has only one round.
    pub fn value(&self, contestant: &str, case: &str, quantity: &str) -> f64 {
        let values = self.values(contestant, case, quantity);
        let [value] = values[..] else { panic!("{contestant} {case} {quantity}: {values:?} {:#?}", self.0) };
        value
    }

    /// Checks that all of these contestants have positive values of all of these quantities.
    pub fn expect(&self, contestants: &[&str], case: &str, quantities: &[&str]) {
        for contestant in contestants {
            for quantity in quantities {
                assert!(self.value(contestant, case, quantity) > 0.0, "{contestant} {case} {quantity}");
            }
        }
    }
}
