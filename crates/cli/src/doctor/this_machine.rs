//! The report on this machine alone: a line for each subject, with ok or the cure.

use super::finding::{Bytes, Level, OK, bytes, limit, plain, row};
use super::judge::{MEMORY_MIN, OPEN_FILES_MIN, SHM_MIN, least};
use crate::surroundings::Surroundings;
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wireup_node::doctor::{Facts, LimitsOf};
use wireup_os::spawn::is_program;

/// Descriptors that an agent needs for each rank: three streams, the PMI socket, the process.
const FILES_A_RANK: u64 = 5;
const PROCESSES_MIN: u64 = 1024;
/// Least memory that RDMA libraries must be able to pin (bytes; chosen).
const LOCKED_MIN: u64 = 64 << 20;

/// Programs of MPI libraries that print the library's version.
const MPI_PROGRAMS: [(&str, &str); 3] =
    [("mpichversion", "MPICH"), ("impi_info", "Intel MPI"), ("ompi_info", "Open MPI")];
/// Variables that show that wireup itself was started by another launcher.
const OUTER: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "Slurm"),
    ("PMI_RANK", "a PMI launcher"),
    ("PMIX_RANK", "a PMIx launcher"),
    ("OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"),
    ("PBS_JOBID", "PBS"),
    ("LSB_JOBID", "LSF"),
    ("PE_HOSTFILE", "Grid Engine"),
    ("FLUX_URI", "Flux"),
];

/// How to raise a limit that is set at login.
fn raise(name: &str, unit: &str) -> String {
    format!("raise {name} in /etc/security/limits.conf ({unit} for a service), then log in again")
}

pub struct Line {
    subject: &'static str,
    said: String,
    cure: Option<(Level, String)>,
}

pub fn lines(facts: &Facts, remote_shell: &str, surroundings: &Surroundings) -> Vec<Line> {
    let all = [
        line("wireup", format!("{}, {}", facts.version, facts.arch)),
        line("kernel", facts.kernel.clone()),
        if facts.cpus > 0 {
            line("cpus", format!("{} allowed", facts.cpus))
        } else {
            line("cpus", "unknown".into()).needed("is /proc mounted?")
        },
        open_files(facts.limits.open_files),
        processes(facts),
        locked_memory(facts.limits.locked_memory),
        core(facts.limits.core),
        shared_memory(facts),
        memory(facts),
    ];
    let rest = [
        working_directory(surroundings),
        remote(remote_shell, surroundings),
        cache(facts),
        line("launched by", outer(surroundings)),
        line("MPI found", mpi(surroundings)),
    ];
    all.into_iter().chain(interfaces(facts)).chain(rest).collect()
}

pub fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let (Line { subject, said, cure }, verdict) = (line, line.verdict());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{subject:<14}  {verdict}  {said}");
        if let Some((_, cure)) = cure {
            let _ = writeln!(text, "{:25}fix: {cure}", "");
        }
    }
    text
}

pub fn has_problem(lines: &[Line]) -> bool {
    lines.iter().any(|line| matches!(line.cure, Some((Level::Problem, _))))
}

pub fn json(lines: &[Line], host: &str) -> Vec<Value> {
    let one = |line: &Line| {
        let fix = line.cure.as_ref().map(|(_, cure)| cure);
        row(&[host], line.subject, line.verdict(), &line.said, fix.map(String::as_str))
    };
    lines.iter().map(one).collect()
}

pub fn line(subject: &'static str, said: String) -> Line {
    Line { subject, said, cure: None }
}

impl Line {
    /// The word in the line's second column: ok, or the severity of the finding.
    fn verdict(&self) -> &'static str {
        self.cure.as_ref().map_or(OK, |(level, _)| level.word())
    }

    /// Makes this line a problem with a cure: a run fails as long as the limit or tool in question is not put right.
    pub fn needed(self, cure: impl Into<String>) -> Line {
        Line { cure: Some((Level::Problem, cure.into())), ..self }
    }

    fn wise(self, cure: impl Into<String>) -> Line {
        Line { cure: Some((Level::Remark, cure.into())), ..self }
    }

    fn wise_if(self, is_bad: bool, cure: &str) -> Line {
        if is_bad { self.wise(cure) } else { self }
    }
}

fn below(value: Option<u64>, least: u64) -> bool {
    value.is_some_and(|value| value < least)
}

fn open_files(files: LimitsOf) -> Line {
    let room = files.hard.map_or_else(String::new, |hard| format!(", enough for {} ranks", hard / FILES_A_RANK));
    let said = format!("{}, up to {}{room}", limit(files.soft, plain), limit(files.hard, plain));
    let said = line("open files", said);
    if below(files.hard, OPEN_FILES_MIN) { said.needed(raise("nofile", "LimitNOFILE")) } else { said }
}

fn processes(facts: &Facts) -> Line {
    let least = least(facts.limits.processes, facts.limits.pids_max);
    let by_group = least.is_some() && least == facts.limits.pids_max;
    let said = format!("{}{}", limit(least, plain), if by_group { " (control group)" } else { "" });
    let said = line("processes", said);
    match below(least, PROCESSES_MIN) {
        true if by_group => said.wise("raise pids.max of the control group (TasksMax in systemd)"),
        true => said.wise(raise("nproc", "LimitNPROC")),
        false => said,
    }
}

fn locked_memory(locked: LimitsOf) -> Line {
    let said = line("locked memory", format!("{}, up to {}", limit(locked.soft, bytes), limit(locked.hard, bytes)));
    match below(locked.soft, LOCKED_MIN) {
        true if below(locked.hard, LOCKED_MIN) => {
            said.wise(format!("RDMA libraries need more: {}", raise("memlock", "LimitMEMLOCK")))
        }
        true => said.wise("RDMA libraries need more: ulimit -l unlimited, before wireup run"),
        false => said,
    }
}

fn core(core: LimitsOf) -> Line {
    let said = match core.soft {
        Some(0) => "disabled; to get core files of crashed ranks: ulimit -c unlimited".to_owned(),
        soft => limit(soft, bytes),
    };
    line("core files", said)
}

fn shared_memory(facts: &Facts) -> Line {
    match facts.shm {
        Some(shm) => line("/dev/shm", format!("{} of {} free", Bytes(shm.free), Bytes(shm.total)))
            .wise_if(shm.free < SHM_MIN, "remove old files there, or mount it with a larger size="),
        None => line("/dev/shm", "missing".into())
            .wise("mount a tmpfs at /dev/shm, which MPI libraries use for shared memory"),
    }
}

fn memory(facts: &Facts) -> Line {
    let free = facts.memory_free.map_or_else(|| "unknown".into(), |free| format!("{} free", Bytes(free)));
    line("memory", free).wise_if(below(facts.memory_free, MEMORY_MIN), "see what uses the memory, for example with top")
}

fn interfaces(facts: &Facts) -> Vec<Line> {
    let offered = facts.offered.iter().flatten().map(|address| {
        let said = format!("{} {}: agents on other machines connect to this address", address.interface, address.ip);
        let cure = "other machines cannot connect to this one: bring up a network interface";
        line("interface", said).wise_if(address.ip.is_loopback(), cure)
    });
    let left_out = facts
        .left_out
        .iter()
        .map(|(address, why)| line("interface", format!("{} {}: left out, {why}", address.interface, address.ip)));
    let nothing = facts.offered.as_ref().err();
    let nothing = nothing.map(|problem| line("interface", problem.clone()).needed("choose another --interface"));
    offered.chain(left_out).chain(nothing).collect()
}

fn working_directory(surroundings: &Surroundings) -> Line {
    match &surroundings.cwd {
        Ok(cwd) => line("directory", cwd.display().to_string()),
        Err(problem) => line("directory", format!("no longer exists: {problem}")).needed("cd to an existing one"),
    }
}

fn remote(remote_shell: &str, surroundings: &Surroundings) -> Line {
    let program = remote_shell.split_whitespace().next().unwrap_or_default();
    match on_path(surroundings, program) {
        Some(path) => line("remote shell", path.display().to_string()),
        None => line("remote shell", format!("{program} not found"))
            .wise("install it (openssh-client), or choose another with --remote-shell; not needed on one machine"),
    }
}

fn cache(facts: &Facts) -> Line {
    let free = facts.cache.free.map_or_else(String::new, |free| format!(", {} free", Bytes(free)));
    let said = line("cache", format!("{}{free}", facts.cache.path));
    match &facts.cache.problem {
        Some(problem) => said.wise(problem.clone()),
        None => said,
    }
}

fn outer(surroundings: &Surroundings) -> String {
    let set = |name: &str| surroundings.env.iter().any(|(known, _)| known == name);
    let found: Vec<&str> = OUTER.iter().filter(|(name, _)| set(name)).map(|(_, what)| *what).collect();
    match found.is_empty() {
        true => "no other launcher".into(),
        false => format!("{}; its variables about single tasks are not passed to the ranks", found.join(", ")),
    }
}

fn mpi(surroundings: &Surroundings) -> String {
    let found = MPI_PROGRAMS.iter().filter_map(|(program, name)| Some((on_path(surroundings, program)?, name)));
    let found: Vec<String> = found.map(|(path, name)| format!("{name} ({})", path.display())).collect();
    if found.is_empty() { "none on the PATH; programs can bring their own".into() } else { found.join(", ") }
}

fn on_path(surroundings: &Surroundings, program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| is_program(path));
    }
    let path = surroundings.env.iter().find(|(name, _)| name == OsStr::new("PATH")).map(|(_, value)| value)?;
    std::env::split_paths(path).map(|folder| Path::new(&folder).join(program)).find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::show::tests::facts;

    #[test]
    fn a_healthy_machine_has_no_problems_and_no_fixes() {
        let surroundings =
            Surroundings { env: vec![("PATH".into(), "/usr/bin:/bin".into())], ..Surroundings::example() };
        let lines = lines(&facts(), "sh", &surroundings);
        let text = text(&lines);
        assert!(!has_problem(&lines), "{text}");
        let first = json(&lines, "n0").into_iter().next();
        let expected = r#"{"fix":null,"hosts":["n0"],"level":"ok","subject":"wireup","text":""#;
        assert!(first.is_some_and(|row| row.to_string().starts_with(expected)));
        assert!(text.contains("open files      ok       1024, up to 524288, enough for 104857 ranks\n"), "{text}");
        assert!(text.contains("interface       ok       docker0 172.17.0.1: left out, a bridge\n"), "{text}");
        assert!(text.contains("launched by     ok       no other launcher\n") && !text.contains("fix:"), "{text}");
    }

    #[test]
    fn problems_of_this_machine_are_reported_with_fixes() {
        let mut ill = facts();
        ill.limits.open_files.hard = Some(256);
        ill.limits.pids_max = Some(100);
        ill.shm = None;
        ill.offered = Err("no address matches".into());
        let surroundings = Surroundings {
            cwd: Err("deleted".into()),
            env: vec![("SLURM_JOB_ID".into(), "1".into())],
            ..Surroundings::example()
        };
        let lines = lines(&ill, "/no/such/shell", &surroundings);
        assert!(has_problem(&lines));
        let text = text(&lines);
        for part in [
            "open files      problem",
            "raise nofile",
            "processes       remark   100 (control group)",
            "TasksMax",
            "mount a tmpfs at /dev/shm",
            "interface       problem  no address matches",
            "directory       problem  no longer exists: deleted",
            "/no/such/shell not found",
            "launched by     ok       Slurm; its variables about single tasks",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
