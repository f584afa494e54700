//! `wireup report` and `wireup run --report`: one or two traces as a page for a web browser.
//!
//! The page is one file: a template, its script and the data of the traces as JSON, in columns to be small. It needs no
//! network, and its policy (`Content-Security-Policy`) forbids it any. In the data `<` is written as an escape, so that
//! no name in a trace can end the element that holds it. The script draws on a canvas itself: small chart libraries
//! have no chart whose row stands for many nodes and shows what share of them is in each phase.

mod columns;

use crate::{bounded_file, out};
use columns::Run;
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use wireup_flags::{Command, Flag, Line, Section, Value, Words};
use wireup_node::trace::Trace;
use wireup_os::output_file::{self, Existing};

const OUTPUT: Flag = Flag::value(&["-o", "--output"], "FILE", "Write the page here.").or("report.html");

pub const COMMAND: Command = Command {
    name: "report",
    purpose: "write a page for a web browser from traces of wireup run --profile",
    intro: "
  wireup report trace.json                     the page is report.html
  wireup report before.json after.json         two runs compared

Shows when each node was in which phase, the slowest nodes and ranks, the exchange by level of the tree, and which
settings were chosen and why. The page is one file that needs no network. Traces come from wireup run --profile; those
of wireup simulate --profile are predictions, so that a real run can be compared with what was expected.
",
    words: Words::Named(&["TRACE", "[TRACE]"]),
    sections: &[Section { title: "Flags", flags: &[OUTPUT] }],
    end: "",
};

/// Largest trace (bytes). Chosen: the page of a larger one would be too large for a browser.
const TRACE_BYTES_MAX: u64 = 1 << 30;
const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(include_str!("trace.js"), include_str!("timeline.js"), include_str!("page.js"));

pub fn run(line: &Line) -> Result<u8, String> {
    make(line).map(|()| 0).map_err(|problem| format!("report: {problem}"))
}

fn make(line: &Line) -> Result<(), String> {
    let path = line.one(OUTPUT, Value::path)?;
    let traces = line.words.iter().map(|word| read(Path::new(word)).map(|trace| (word.to_string_lossy(), trace)));
    let traces = traces.collect::<Result<Vec<_>, _>>()?;
    let runs: Vec<Run> = traces.iter().map(|(name, trace)| Run::of(name, trace)).collect();
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
    /// The flag that gives the file's path.
    flag: &'static str,
}

impl Report {
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: PathBuf, flag: &'static str) -> Result<Report, String> {
        match output_file::open(&path, Existing::Empty, 0o666) {
            Ok(file) => Ok(Report { file, path, flag }),
            Err(error) => Err(unwritable(&path, flag, &error)),
        }
    }

    /// Writes the page of one run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_run(&mut self, trace: &Trace) -> Result<(), String> {
        self.write(&[Run::of("", trace)])
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
    let (middle, end) = rest.split_once("/* script */").expect("the template has a place for the script");
    [head, STYLE, body, &data, middle, SCRIPT, end].concat()
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
        for (word, count) in [("<script", 2), ("</script>", 2), ("<!--", 0), ("alert(1)</", 0), ("default-src", 1)] {
            assert_eq!(hostile.matches(word).count(), count, "{word}");
        }
        for address in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!hostile.contains(address), "{address}");
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
