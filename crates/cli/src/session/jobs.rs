//! `wireup jobs`: lists the jobs of a session.

use super::{JSON, SESSION, attach_to};
use crate::hosts::collapse_short;
use crate::out;
use crate::words::{one_line, since};
use wireup_flags::{Command, Line, Section, Value, Words};
use wireup_node::session::{Attached, spool};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Control;
use wireup_wire::session::{JobEntry, JobState};

pub const COMMAND: Command = Command {
    name: "jobs",
    purpose: "show the jobs of a session, including finished detached jobs whose output was not shown yet",
    intro: "
  wireup jobs
  wireup jobs --session lab
  wireup jobs --json            for programs
",
    words: Words::Named(&[]),
    sections: &[Section { title: "Flags", flags: &[SESSION, JSON] }],
    end: "",
};

pub fn run(line: &Line) -> Result<u8, String> {
    let name = line.one(SESSION, Value::text)?;
    let mut session = attach_to(&name)?;
    let jobs = list(&mut session)?;
    let host = |agent: &AgentId| session.welcome.nodes.get(agent.index()).map_or("", |node| node.host.as_str());
    let detached = spool::jobs(&name);
    if line.has(JSON) {
        let running = jobs.iter().map(|job| {
            serde_json::json!({
                "job": job.job.0,
                "state": state(job.state),
                "program": job.program,
                "ranks": job.ranks,
                "nodes": job.nodes.iter().map(host).collect::<Vec<_>>(),
                "seconds": job.age_ns as f64 / 1e9,
                "detached": detached.iter().any(|spool| spool.job == job.job),
            })
        });
        let over = detached.iter().filter(|spool| jobs.iter().all(|job| job.job != spool.job)).map(|spool| {
            serde_json::json!({ "job": spool.job.0, "state": "over", "program": spool.program, "exit_code": spool.code, "detached": true })
        });
        out::print(&format!("{}\n", serde_json::Value::Array(running.chain(over).collect())));
        return Ok(0);
    }
    let mut rows: Vec<[String; 6]> = Vec::new();
    for job in &jobs {
        let is_detached = detached.iter().any(|spool| spool.job == job.job);
        rows.push([
            job.job.to_string(),
            format!("{}{}", state(job.state), if is_detached { ", detached" } else { "" }),
            job.ranks.to_string(),
            since(job.age_ns / 1_000_000_000),
            collapse_short(job.nodes.iter().map(host)),
            one_line(&job.program),
        ]);
    }
    for spool in detached.iter().filter(|spool| jobs.iter().all(|job| job.job != spool.job)) {
        let state = match (spool.code, spool.is_running) {
            (Some(code), _) => format!("over, code {code}"),
            (None, true) => "ending, detached".to_owned(),
            (None, false) => "over, launcher killed".to_owned(),
        };
        rows.push([spool.job.to_string(), state, "-".into(), "-".into(), "-".into(), one_line(&spool.program)]);
    }
    if rows.is_empty() {
        out::print(&format!("session {name} has no jobs\n"));
        return Ok(0);
    }
    out::print(&table(["job", "state", "ranks", "age", "nodes", "program"], &rows));
    Ok(0)
}

/// The jobs of a session.
pub fn list(session: &mut Attached) -> Result<Vec<JobEntry>, String> {
    let jobs = session.ask(&Control::AskJobs, None, |answer| match answer {
        Control::JobList(jobs) => Some(jobs),
        _ => None,
    });
    jobs.map_err(|error| error.to_string())
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Ending => "ending",
    }
}

/// Each column is as wide as its widest cell; the last one is not padded.
fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let line = |cells: [&str; N]| {
        let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let rows = rows.iter().map(|row| line(std::array::from_fn(|column| row[column].as_str())));
    line(head) + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [["7".to_owned(), "running".to_owned()], ["12".to_owned(), "over".to_owned()]];
        assert_eq!(table(["job", "state"], &rows), "job  state\n7    running\n12   over\n");
    }
}
