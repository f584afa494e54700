//! `wireup report` and `wireup run --report`: one or two traces as a page for a web browser.
//!
//! The page is one file: a template, its scripts and the data of the traces as JSON, in columns to be small. It needs
//! no network, and its policy (`Content-Security-Policy`) forbids it any. In the data `<` is written as an escape, so
//! that no name in a trace can end the element that holds it. uPlot draws the axes of the timeline, zooms and follows
//! the mouse. Our own script draws the rows, because a row may stand for many nodes and shows what share of them is in
//! each phase.

mod columns;
mod expectation;

use crate::{bounded_file, out};
use columns::Run;
pub use expectation::simulator;
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use wireup_flags::{Command, Flag, Line, Section, Value, Words};
use wireup_node::trace::Trace;
use wireup_os::output_file::{self, Existing};

const OUTPUT: Flag = Flag::value(&["-o", "--output"], "FILE", "Write the page here.").or("report.html");
const EXPECT: Flag =
    Flag::switch(&["--expect"], "Simulate the start of the same job too, and compare it with the run.");
const MACHINE: Flag = Flag::value(
    &["--machine"],
    "FILE",
    "With --expect: the machine, as for wireup simulate (default: local, ssh or srun, by how agents were started).",
);

pub const COMMAND: Command = Command {
    name: "report",
    purpose: "write a page for a web browser from traces of wireup run --profile",
    intro: "
  wireup report trace.json                     the page is report.html
  wireup report trace.json --expect            the run compared with what a simulation expects
  wireup report before.json after.json         two runs compared

Shows when each node was in which phase, the slowest nodes and ranks, the exchange by level of the tree, and which
settings were chosen and why. The page is one file that needs no network. Traces come from wireup run --profile
and wireup simulate --profile.

With --expect, the separate program wireup-simulate simulates a job with as many nodes and ranks, whose agents are
started in the same way, and whose ranks exchange as much as in the first exchange of this job. A table shows what was
expected of each phase, what happened, and where the largest difference is. The ranks' own work, later exchanges and
staging are not predicted. The expectation is as accurate as the description of the machine: see wireup help simulate.
",
    words: Words::Named(&["TRACE", "[TRACE]"]),
    sections: &[Section { title: "Flags", flags: &[OUTPUT, EXPECT, MACHINE] }],
    end: "",
};

/// Largest trace (bytes). Chosen: the page of a larger one would be too large for a browser.
const TRACE_BYTES_MAX: u64 = 1 << 30;
const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = concat!(include_str!("uplot/uPlot.min.css"), "\n", include_str!("page.css"));
/// The chart library with its licence, which each copy must include. `uplot` has files of npm's package of this name,
/// unchanged.
const LIBRARY: &str = concat!("/*\n", include_str!("uplot/LICENSE"), "\n*/\n", include_str!("uplot/uPlot.iife.min.js"));
const SCRIPT: &str = concat!(include_str!("trace.js"), include_str!("timeline.js"), include_str!("page.js"));

pub fn run(line: &Line) -> Result<u8, String> {
    make(line).map(|()| 0).map_err(|problem| format!("report: {problem}"))
}

fn make(line: &Line) -> Result<(), String> {
    let path = line.one(OUTPUT, Value::path)?;
    let traces = line.words.iter().map(|word| read(Path::new(word)).map(|trace| (word.to_string_lossy(), trace)));
    let traces = traces.collect::<Result<Vec<_>, _>>()?;
    let machine = line.last(MACHINE, Value::text)?;
    let expected = match (line.has(EXPECT), &traces[..]) {
        (true, [(_, trace)]) => Some(expectation::of(trace, machine)?),
        (true, _) => return Err("--expect compares one run with its simulation; give one trace".into()),
        (false, _) if machine.is_some() => return Err("--machine needs --expect".into()),
        (false, _) => None,
    };
    let runs = traces.iter().map(|(name, trace)| Run::of(name, trace));
    let runs: Vec<Run> = expected.iter().map(|trace| Run::of("", trace)).chain(runs).collect();
    Report::create(path, "-o")?.write(&runs)
}

/// Reads a trace, which must contain nodes.
fn read(path: &Path) -> Result<Trace, String> {
    let shown = path.display();
    let bytes = bounded_file::read(path, TRACE_BYTES_MAX).map_err(|problem| format!("{shown}: {problem}"))?;
    if bytes.is_empty() {
        return Err(format!("{shown} is empty; write a trace with wireup run --profile {shown} ..."));
    }
    let trace: Trace = serde_json::from_slice(&bytes).map_err(|error| {
        format!("{shown} is not a trace of this version of wireup ({error}); write one with wireup run --profile FILE")
    })?;
    if columns::nodes(&trace).is_empty() {
        return Err(format!("{shown} has no nodes: its job did not start, or another program has written it"));
    }
    Ok(trace)
}

/// The file of a page that is still to be written.
pub struct Report {
    file: File,
    path: PathBuf,
    flag: &'static str,
}

impl Report {
    pub fn create(path: PathBuf, flag: &'static str) -> Result<Report, String> {
        match output_file::open(&path, Existing::Empty, 0o666) {
            Ok(file) => Ok(Report { file, path, flag }),
            Err(error) => Err(unwritable(&path, flag, &error)),
        }
    }

    /// Writes the page of one run. `expects`: also simulates the job, and compares the two.
    ///
    /// # Errors
    /// The file cannot be written. If the job cannot be simulated, that is reported, and the page shows the run alone.
    pub fn write_run(&mut self, trace: &Trace, expects: bool) -> Result<(), String> {
        let expected = expects.then(|| expectation::of(trace, None).map_err(|problem| out::tell(&problem)).ok());
        let traces = expected.iter().flatten().chain([trace]);
        self.write(&traces.map(|trace| Run::of("", trace)).collect::<Vec<_>>())
    }

    fn write(&mut self, runs: &[Run]) -> Result<(), String> {
        self.file.write_all(page(runs).as_bytes()).map_err(|error| unwritable(&self.path, self.flag, &error))?;
        out::tell(&format!("report written to {}; open it in a web browser", self.path.display()));
        Ok(())
    }
}

fn unwritable(path: &Path, flag: &str, error: &io::Error) -> String {
    format!("cannot write the report {}: {error}; give a writable file to {flag}", path.display())
}

fn page(runs: &[Run]) -> String {
    let data = json!({ "runs": runs }).to_string().replace('<', "\\u003c");
    let (head, rest) = TEMPLATE.split_once("/* style */").expect("the template has a place for the style");
    let (body, rest) = rest.split_once("/* data */").expect("the template has a place for the data");
    let (between, rest) = rest.split_once("/* library */").expect("the template has a place for the library");
    let (middle, end) = rest.split_once("/* script */").expect("the template has a place for the script");
    [head, STYLE, body, &data, between, LIBRARY, middle, SCRIPT, end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_node::launcher::Stamps;
    use wireup_node::trace::About;
    use wireup_wire::peer::{RankTrace, TracePart};

    const HOSTILE: &str = "</script><script>alert(1)</script><!-- & \u{2028}";

    fn trace(host: &str) -> Trace {
        let about = About { program: host.to_owned(), settings: vec![host.to_owned()], ..About::default() };
        let ranks = vec![RankTrace { spawn_ns: 2_000, exec_ns: 5_000, exit_ns: 9_000, ..RankTrace::default() }];
        let parts = [TracePart { host: host.to_owned(), job_ns: 1_500, ranks, ..TracePart::default() }];
        let stamps = Stamps { process_ns: 1_000, ended_ns: 9_000, left_ns: 9_500, ..Stamps::default() };
        Trace::new(about, &stamps, &[], &parts)
    }

    fn data(page: &str) -> serde_json::Value {
        let (_, data) = page.split_once("id=\"data\">").expect("the page has data");
        serde_json::from_str(data.split_once("</script>").expect("the data ends").0).expect("the data is JSON")
    }

    #[test]
    fn a_page_holds_the_spans_of_its_traces() {
        let trace = trace("n7");
        let data = data(&page(&[Run::of("a.json", &trace), Run::of("b.json", &trace)]));
        let run = &data["runs"][1];
        assert_eq!((&run["file"], &run["nodes"][0]["name"]), (&json!("b.json"), &json!("n7")));
        let exec = json!({ "node": [0], "rank": [0], "from": [1.0], "took": [3.0] });
        assert_eq!(run["spans"]["exec"], exec);
        assert_eq!(run["spans"]["leave"]["node"], json!([-1]));
    }

    /// A hostile host or program name cannot make the page load anything: the page contains no URL, and its
    /// Content-Security-Policy allows none.
    #[test]
    fn names_of_hosts_and_programs_cannot_leave_the_data() {
        let trace = trace(HOSTILE);
        let hostile = page(&[Run::of(HOSTILE, &trace)]);
        assert_eq!(data(&hostile)["runs"][0]["about"]["program"], HOSTILE);
        for (word, count) in [("<script", 3), ("</script>", 3), ("<!--", 0), ("alert(1)</", 0), ("default-src", 1)] {
            assert_eq!(hostile.matches(word).count(), count, "{word}");
        }
        // The library names the address of its source in a comment.
        assert!(hostile.contains("Permission is hereby granted") && hostile.contains(LIBRARY));
        for address in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!hostile.replace(LIBRARY, "").contains(address), "{address}");
        }
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            read(&path).expect_err(name)
        };
        let empty = Trace::new(About::default(), &Stamps::default(), &[], &[]);
        for (name, content, words) in [
            ("empty", "", "is empty; write a trace with wireup run --profile"),
            ("text", "phase from ms", "is not a trace of this version of wireup (expected value"),
            ("other", r#"{"record": "run"}"#, "missing field `traceEvents`"),
            ("foreign", r#"{"traceEvents": [{"name": "a", "ph": "X", "pid": 7, "ts": 1, "dur": 2}]}"#, "has no nodes"),
            ("no-nodes", &serde_json::to_string(&empty).unwrap(), "has no nodes: its job did not start"),
        ] {
            let problem = refused(name, content);
            assert!(problem.contains(words) && problem.contains(name), "{problem}");
        }
        assert!(read(&folder.path().join("none")).expect_err("none").contains("No such file"));
    }
}
