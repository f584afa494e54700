//! A batch system's messages about a step as a whole, recognised by the texts in its row of the table.

use super::verdict::joined;
use crate::io::ExitStatus;
use wireup_wire::peer::Batch;

/// Whether this text reports the end of a whole step.
pub fn is_cancelled(batch: &Batch, words: &str) -> bool {
    words.contains(batch.cancelled)
}

/// Why an ended step has not started an agent. Batch systems print more than the errors.
pub fn step_words(batch: &Batch, status: ExitStatus, stderr: &str) -> String {
    if let Some(line) = stderr.lines().find(|line| is_cancelled(batch, line)) {
        return line.split(batch.frame).nth(1).unwrap_or(line).trim().to_owned();
    }
    let errors: Vec<&str> = stderr.lines().filter(|line| line.contains(batch.error)).collect();
    let said = if errors.is_empty() { stderr.to_owned() } else { errors.join("\n") };
    match status {
        ExitStatus::Exited(0) => joined("its step ended before its agent connected", &said),
        ExitStatus::Exited(code) => joined(&format!("its step exited with code {code}"), &said),
        ExitStatus::Signalled { signal, .. } => joined(&format!("its step was killed by signal {signal}"), &said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Batch = Batch {
        allocation: "an allocation",
        job_variable: "JOB",
        not_executable: "cannot run",
        cancelled: "was ended",
        frame: "==",
        error: "E:",
    };

    #[test]
    fn what_is_wrong_stands_among_other_lines() {
        let words = step_words(&BATCH, ExitStatus::Exited(3), "hello\nE: no node\nE: no memory\n");
        assert_eq!(words, "its step exited with code 3: E: no node; E: no memory");
        assert_eq!(step_words(&BATCH, ExitStatus::Exited(3), "hello\n"), "its step exited with code 3: hello");
    }

    #[test]
    fn the_end_of_the_whole_step_is_told_in_its_own_words() {
        let killed = ExitStatus::Signalled { signal: 9, core_dumped: false };
        assert_eq!(step_words(&BATCH, killed, "E: no node\nd: == it was ended by ann ==\n"), "it was ended by ann");
        assert_eq!(step_words(&BATCH, killed, "it was ended\n"), "it was ended");
    }
}
