//! Notices an MPI program that ran as so many singletons.
//!
//! A program whose library does not understand the PMI it is offered starts all the same: every process believes to be
//! rank 0 of 1, and the results look right until somebody counts them. After a job in which no rank ever spoke PMI, the
//! program's list of shared libraries tells whether that was a mistake. Plain programs and scripts name none and pass
//! without remark. Read only after the end, so it costs a run nothing.

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _};
use object::{Endianness, ReadCache, ReadRef};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_wire::job::{AppSpec, JobSpec};
use wireup_wire::peer::Done;

/// Shared libraries whose programs want to be one job, and who can start them.
const LIBRARIES: &[(&str, &str)] = &[
    ("libmpi.so.40", OPEN_MPI),
    ("libmpi_cxx.so", OPEN_MPI),
    ("libmpi_mpifh.so", OPEN_MPI),
    ("liboshmem.so", OPEN_MPI),
    ("libpmix.so", "PMIx is not offered yet; use a build with PMI-1 or PMI-2, or the launcher it was built for"),
    ("libmpich", MPICH),
    ("libmpi", MPICH),
    ("libpmi", "did it get as far as PMI_Init? Then this library belongs to another launcher (Slurm, Flux, Cray)"),
];
const OPEN_MPI: &str =
    "Open MPI needs PMIx, which is not offered yet; use its mpirun, or build with MPICH or Intel MPI";
const MPICH: &str =
    "did it get as far as MPI_Init? Then it was built for another launcher; use one built for PMI-1 or PMI-2";

/// A hint, if the ranks of a finished job should have spoken PMI and did not.
pub fn hint(job: &JobSpec, done: &Done) -> Option<String> {
    let offered = job.options.pmi.has_simple();
    if !offered || done.pmi_clients > 0 || done.ranks < 2 {
        return None;
    }
    let app = job.apps.first()?;
    let path = program_path(app, &job.env)?;
    let needed = needed_libraries(&path)?;
    let (library, advice) = needed.iter().find_map(|library| Some((library, advice(library)?)))?;
    let program = String::from_utf8_lossy(&app.argv[0]);
    Some(format!(
        "{program} is linked to {library}, but no rank used the PMI that it was offered: it ran as {} separate jobs of 1 \
         rank; {advice}",
        done.ranks
    ))
}

fn advice(library: &str) -> Option<&'static str> {
    LIBRARIES.iter().find(|(prefix, _)| library.starts_with(prefix)).map(|&(_, advice)| advice)
}

/// The file of a program, found as the ranks found it.
fn program_path(app: &AppSpec, job_env: &[Vec<u8>]) -> Option<PathBuf> {
    let program = OsStr::from_bytes(app.argv.first()?);
    let cwd = Path::new(OsStr::from_bytes(&app.cwd));
    if program.as_bytes().contains(&b'/') {
        return Some(cwd.join(program));
    }
    let search = app.env.iter().chain(job_env).find_map(|variable| variable.strip_prefix(b"PATH="))?;
    let mut directories = search.split(|&byte| byte == b':').map(|directory| cwd.join(OsStr::from_bytes(directory)));
    directories.find_map(|directory| Some(directory.join(program)).filter(|path| path.is_file()))
}

/// The `DT_NEEDED` names of a 64-bit ELF file; `None` for anything else.
fn needed_libraries(path: &Path) -> Option<Vec<String>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    read_needed(&cache).ok()
}

fn read_needed<'data>(data: impl ReadRef<'data>) -> object::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, data, strings)?;
    let needed = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
    needed.map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_apart() {
        assert_eq!(advice("libmpi.so.40"), Some(OPEN_MPI));
        assert_eq!(advice("libmpi.so.12"), Some(MPICH));
        assert_eq!(advice("libmpich.so.12"), Some(MPICH));
        assert!(advice("libpmix.so.2").is_some_and(|text| text.starts_with("PMIx")));
        assert!(advice("libpmi2.so.0").is_some_and(|text| text.contains("PMI_Init")));
        assert_eq!(advice("libm.so.6"), None);
        assert_eq!(advice("libc.so.6"), None);
    }

    #[test]
    fn this_test_is_an_elf_file_without_mpi() {
        let own = std::env::current_exe().expect("Linux knows it");
        let needed = needed_libraries(&own).expect("an ELF file");
        assert!(needed.iter().any(|library| library.starts_with("libc.so")), "{needed:?}");
        assert!(needed.iter().all(|library| advice(library).is_none()));
    }

    #[test]
    fn what_is_no_elf_file_is_no_reason_to_fail() {
        assert_eq!(needed_libraries(Path::new("/proc/self/status")), None);
        assert_eq!(needed_libraries(Path::new("/dev/null")), None);
        assert_eq!(needed_libraries(Path::new("/no/such/file")), None);
    }

    #[test]
    fn programs_are_found_as_ranks_find_them() {
        let app = |program: &str, cwd: &str, env: &[&str]| AppSpec {
            ranks: 1,
            argv: vec![program.into()],
            cwd: cwd.into(),
            env: env.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
        };
        let job_env = [b"PATH=/nowhere:/bin".to_vec()];
        assert_eq!(program_path(&app("./a", "/w", &[]), &job_env), Some("/w/./a".into()));
        assert_eq!(program_path(&app("/x/a", "/w", &[]), &job_env), Some("/x/a".into()));
        assert_eq!(program_path(&app("sh", "/", &[]), &job_env), Some("/bin/sh".into()));
        assert_eq!(program_path(&app("sh", "/", &["PATH=/nowhere"]), &job_env), None);
        assert_eq!(program_path(&app("bin/../sh", "/", &[]), &[]), Some("/bin/../sh".into()));
    }
}
