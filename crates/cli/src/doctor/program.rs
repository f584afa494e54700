//! The program of a job, as far as its files tell: which PMI it would be offered, and what it lacks.

use super::this_machine::{Line, line};
use crate::environment::{self, Reached};
use crate::flags::parsed::EnvList;
use crate::program::flavour::{self, Context};
use crate::program::needs::needs;
use crate::show;
use crate::surroundings::Surroundings;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_os::spawn::is_program;
use wireup_wire::job::AppSpec;

#[derive(Default)]
pub struct Program {
    pub lines: Vec<Line>,
    /// Files of the program that each node must have, without those of the operating system.
    pub files: Vec<PathBuf>,
}

/// Examines the program that ranks in `cwd` would find under this name.
pub fn examine(name: &OsStr, cwd: &Path, surroundings: &Surroundings) -> Program {
    let env = environment::inherited(&surroundings.env, Reached::ThisMachine);
    let env = environment::job_env(&env, &EnvList::All, &[]);
    let (argv, cwd) = (vec![name.as_bytes().to_vec()], cwd.as_os_str().as_bytes().to_vec());
    let app = AppSpec { ranks: 1, argv, cwd, env: Vec::new() };
    let Some(file) = crate::program::path(&app, &env).filter(|file| file.is_file()) else {
        let said = format!("{} not found", name.display());
        let cure = "is it built? A name without a slash is searched for on PATH, then in the working directory";
        return Program { lines: vec![line("program", said).needed(cure)], files: Vec::new() };
    };
    let found = line("program", file.display().to_string());
    let found = if is_program(&file) { found } else { found.needed("make it executable (chmod +x)") };
    let context = Context { env: &env, own: &surroundings.program, local: true, library: None };
    let choice = flavour::choose(std::slice::from_ref(&app), &context);
    let pmi = line("PMI", format!("{} ({})", show::pmi(choice.flavour), choice.why));
    let (lacks, files) = match needs(&app, &env, &[]) {
        Ok(needs) => (
            needs.remarks.into_iter().filter(|remark| remark.is_lack).map(|remark| remark.text).collect(),
            needs.needs.into_iter().map(|need| need.path).collect(),
        ),
        Err(error) => (vec![error.to_string()], Vec::new()),
    };
    let lacks = lacks.into_iter().map(|lack: String| match lack.split_once("; ") {
        Some((said, cure)) => line("files", said.to_owned()).needed(cure),
        None => line("files", lack).needed("rebuild or install the program"),
    });
    Program { lines: [found, pmi].into_iter().chain(lacks).collect(), files }
}

#[cfg(test)]
mod tests {
    use super::super::this_machine::text;
    use super::*;

    #[test]
    fn a_program_is_found_examined_or_missed() {
        let surroundings = Surroundings { env: vec![("PATH".into(), "/bin".into())], ..Surroundings::example() };
        let said = |name: &str| text(&examine(name.as_ref(), Path::new("/"), &surroundings).lines);
        assert!(said("true").starts_with("program         ok       /bin/true\nPMI             ok       1 or 2, over"));
        assert!(said("no-such-program").starts_with("program         problem  no-such-program not found\n"));
        assert!(said("/etc/passwd").contains("fix: make it executable (chmod +x)\n"), "{}", said("/etc/passwd"));
    }
}
