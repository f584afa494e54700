//! `wireup replay FILE`: feeds a recorded agent's inputs to a new agent and compares the outputs.
//!
//! An agent is a function of its configuration and its inputs, so the digest of all outputs is the same on every
//! machine: a recording is a complete bug report.

use crate::out;
use std::path::{Path, PathBuf};
use std::{fs, io};
use wireup_flags::{Command, Line, Words};
use wireup_node::record::Recording;
use wireup_proto::AgentConfig;
use wireup_proto::replay::{Recorded, ReplayReport, replay};

pub const COMMAND: Command = Command {
    name: "replay",
    purpose: "replay recordings made by wireup run --record",
    intro: "
  wireup replay DIR                 all recordings in it
  wireup replay DIR/agent-1.rec     that of one agent

Feeds each agent's recorded inputs to the same code, without processes or sockets, and compares its outputs with the
recorded ones. Shows the number of inputs and outputs, and a digest of the outputs. Exit code: 0 identical, 1
different, 125 no recording.
",
    words: Words::Named(&["RECORDING..."]),
    sections: &[],
    end: "",
};

pub fn run(line: &Line) -> Result<u8, String> {
    let mut code = 0;
    for word in &line.words {
        let refused = |error: io::Error| {
            let shown = word.to_string_lossy();
            format!("replay: {shown}: {error}; is it a file or a directory that --record wrote?")
        };
        for file in recordings(Path::new(word)).map_err(refused)? {
            let (line, same) = play(&file).map_err(refused)?;
            out::print(&format!("{}: {line}\n", file.display()));
            code = code.max(u8::from(!same));
        }
    }
    Ok(code)
}

/// The file, or the recordings in the directory in the order of their agents.
fn recordings(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let files = entries.into_iter().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "rec")).collect();
    files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
    if files.is_empty() { Err(io::Error::other("it has no recordings")) } else { Ok(files) }
}

/// A line about the replay, and whether it matched the recording.
fn play(path: &Path) -> io::Result<(String, bool)> {
    let recording = Recording::open(path)?;
    let header = recording.header.clone();
    let config = AgentConfig::from(header.clone());
    let inputs: Vec<Recorded> = recording.collect::<Result<_, _>>()?;
    let report = replay(config, inputs.into_iter());
    Ok((line(header.agent.0, &report), report.differs_after.is_none()))
}

fn line(agent: u32, report: &ReplayReport) -> String {
    let ReplayReport { inputs, digest, left, differs_after } = report;
    let end = if *left { "exited" } else { "did not exit" };
    let verdict = match differs_after {
        None => "the same as recorded".to_owned(),
        Some(inputs) => format!("DIFFERS from the recording after {inputs} inputs"),
    };
    format!(
        "agent {agent}: {inputs} inputs, {} outputs, digest {:016x}, {end}; {verdict}",
        digest.outputs,
        digest.value()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use wireup_node::record::{Header, Recorder};
    use wireup_proto::io::Input;
    use wireup_proto::{Born, Instant};
    use wireup_wire::ids::AgentId;
    use wireup_wire::peer::{AgentSpec, LinkOptions, SessionSpec};

    #[test]
    fn replaying_a_recording_twice_gives_the_same_result() {
        let directory = tempfile::tempdir().expect("a folder");
        let directory = directory.path();
        let session = SessionSpec {
            name: "s".into(),
            fanout: 2,
            agents: vec![AgentSpec { host: "a".into() }].into(),
            shells_max: 1,
            program: "wireup".into(),
            start_timeout_ns: 1,
            links: LinkOptions { node_timeout_ns: 1, ..LinkOptions::default() },
            ..SessionSpec::default()
        };
        let header = Header::from(&AgentConfig::new(AgentId(0), session, Born::default()));
        let mut recorder = Recorder::create(directory, &header).expect("a temporary directory takes files");
        recorder.record(|| Recorded::Input(Instant(5), Input::Tick));
        recorder.flush();
        let path = directory.join("agent-0.rec");
        let first = play(&path).expect("replay the recording");
        assert!(first.0.starts_with("agent 0: 1 inputs") && first.1, "{first:?}");
        assert_eq!(play(&path).expect("replay the recording"), first);
        assert!(play(&directory.join("other")).is_err());
        std::fs::write(directory.join("agent-10.rec"), "").expect("a temporary directory takes files");
        std::fs::write(directory.join("agent-9.rec"), "").expect("a temporary directory takes files");
        let names: Vec<_> = recordings(directory)
            .expect("list them")
            .iter()
            .map(|file| file.file_name().map(OsStr::to_owned))
            .collect();
        assert_eq!(names, ["agent-0.rec", "agent-9.rec", "agent-10.rec"].map(|name| Some(name.into())));
    }
}
