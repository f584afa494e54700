//! Which files travel: the programs of a job and what they need, and in addition what the user names.

use super::auto::Choice;
use super::{bytes, digests};
use crate::flags::parsed::Stage;
use crate::libraries;
use crate::out;
use crate::program::needs::folder::contents;
use crate::program::needs::need::{LeftOut, Need, NeedKind, Needs, Remark};
use crate::program::needs::{needs, needs_of_paths};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use wireup_stage::set::{Listings, list};
use wireup_stage::view::Bare;
use wireup_stage::{EntryKind, Set};
use wireup_wire::job::{BareFolder, JobSpec, Staged};

/// Most lines that a listing shows of the files that are left out.
const SHOWN: usize = 40;

pub struct Plan {
    pub set: Set,
    /// Why each path is in the set.
    pub needs: Vec<Need>,
    pub left_out: Vec<(PathBuf, LeftOut)>,
    pub remarks: Vec<Remark>,
}

impl Stage {
    /// Where nodes keep staged files; empty: each finds a folder of its own.
    pub(super) fn store(&self) -> Vec<u8> {
        self.folder.as_ref().map(|folder| folder.as_os_str().as_bytes().to_vec()).unwrap_or_default()
    }
}

/// The paths that the programs of a job need. Their contents have not been read yet; [`Needed::plan`] reads them.
pub struct Needed {
    needs: Needs,
    by_library: bool,
}

impl Needed {
    /// What the programs of the job need.
    ///
    /// # Errors
    /// The ranks work inside of a folder that would become read-only; flags contradict each other.
    pub fn of_job(stage: &Stage, job: &JobSpec) -> Result<Needed, String> {
        let copies = stage.auto || stage.required || stage.by_library || stage.folder.is_some();
        if stage.prefetch && (copies || stage.room_mib.is_some()) {
            return Err("--stage=prefetch copies nothing: leave out --stage=auto, =require and =DIR, --stage-library \
                        and --stage-room"
                .into());
        }
        let mut found = BTreeMap::new();
        let (mut left_out, mut remarks, mut listings) = (BTreeMap::new(), Vec::new(), Listings::new());
        for app in &job.apps {
            let own = needs(app, &job.env, &stage.also).map_err(|error| error.with_flag("--stage-also"))?;
            found.extend(own.needs.into_iter().map(|need| (need.path.clone(), need)));
            left_out.extend(own.left_out);
            remarks.extend(own.remarks);
            listings.extend(own.listings);
        }
        let works = job.apps.iter().filter(|_| !stage.prefetch).map(|app| Path::new(OsStr::from_bytes(&app.cwd)));
        for work in works.map(|work| work.canonicalize().unwrap_or_else(|_| work.to_owned())) {
            if let Some(need) =
                found.values().find(|need| need.kind == NeedKind::Folder && work.starts_with(&need.path))
            {
                return Err(format!(
                    "{} cannot be staged: the ranks work in {}, and staged folders are read-only; name a folder inside \
                     it, or another working directory with --wdir",
                    need.path.display(),
                    work.display()
                ));
            }
        }
        let (needs, left_out) = (found.into_values().collect(), left_out.into_iter().collect());
        let needs = Needs { needs, left_out, remarks, listings };
        Ok(Needed { needs, by_library: stage.by_library })
    }

    /// Whether staging is worth its time.
    pub fn choice(&self, ranks: u32) -> Choice {
        Choice::of(&self.needs.needs, ranks)
    }

    /// The files that nodes read for `--stage=prefetch`, in this order. From a folder only shared libraries are
    /// read: ranks load those by page faults, in no order. They read other files in order, or not at all.
    pub fn files(&self) -> Vec<PathBuf> {
        let libraries = |folder: &Path| match self.needs.listings.get(folder) {
            Some(listing) => contents(folder, listing, false).libraries,
            None => contents(folder, &list(folder), false).libraries,
        };
        let files = self.needs.needs.iter().flat_map(|need| match need.kind {
            NeedKind::File => vec![need.path.clone()],
            NeedKind::Folder => libraries(&need.path),
            NeedKind::Link => Vec::new(),
        });
        files.collect()
    }

    pub fn plan(self) -> Result<Plan, String> {
        Plan::of_needs(self.needs, self.by_library)
    }
}

impl Plan {
    /// A plan for the paths of `stage`, without a program.
    pub fn of_paths(stage: &Stage, env: &[Vec<u8>]) -> Result<Plan, String> {
        let cwd = std::env::current_dir().map_err(|error| format!("the working directory: {error}"))?;
        let found = needs_of_paths(env, &cwd, &stage.also).map_err(|error| error.to_string())?;
        Plan::of_needs(found, stage.by_library)
    }

    fn of_needs(found: Needs, by_library: bool) -> Result<Plan, String> {
        let Needs { mut needs, mut left_out, remarks, listings } = found;
        let library = if by_library { Some(library()?) } else { None };
        needs.extend(library.filter(|library| needs.iter().all(|need| need.path != library.path)));
        let set = Set::collect_with(needs.iter().map(|need| need.path.as_path()), &listings, &digests());
        let set = set.map_err(|problem| format!("cannot stage {problem}"))?;
        let rights = LeftOut::Rights("set-user-ID or set-group-ID");
        left_out.extend(set.originals().map(|path| (path.to_owned(), rights.clone())));
        Ok(Plan { set, needs, left_out, remarks })
    }

    /// Says what ranks will lack, and which files with rights of their own stay where they are.
    ///
    /// # Errors
    /// `--stage=require` was given and such a file is not staged; with `named_only`, files inside staged folders are
    /// exempt.
    pub fn tell_refused(&self, stage: &Stage, named_only: bool) -> Result<(), String> {
        for remark in self.remarks.iter().filter(|remark| remark.is_lack) {
            out::tell(&remark.text);
        }
        for (path, why) in self.left_out.iter().filter(|(_, why)| matches!(why, LeftOut::Rights(_))) {
            let told = format!("{} is not staged ({why})", path.display());
            let may_stay = named_only && self.set.originals().any(|original| original == path);
            if stage.required && !may_stay {
                return Err(format!("{told}; --stage=require forbids that"));
            }
            out::tell(&format!("{told}; ranks use the original"));
        }
        Ok(())
    }

    /// The description of the set that is sent with the job.
    pub fn staged(&self, stage: &Stage) -> Staged {
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        let bare = Bare::of(&self.set).into_iter();
        Staged {
            set: self.set.digest(),
            store: stage.store(),
            required: stage.required,
            by_library: stage.by_library,
            bare: bare.map(|bare| BareFolder { path: bytes(bare.path), name: bare.name, mode: bare.mode }).collect(),
        }
    }

    /// The number of files to stage and their total size, as text.
    pub fn amount(&self) -> String {
        let files = self.set.files();
        format!("{files} {}, {}", if files == 1 { "file" } else { "files" }, bytes(self.set.len()))
    }
}

/// Finds the shared library that redirects ranks to the staged files on nodes where no mounts can be made.
fn library() -> Result<Need, String> {
    let missing = |place: &Path| {
        let (name, place) = (libraries::real_name(libraries::STAGED), place.display());
        format!("--stage-library: {name} is neither in {place} nor in {place}/../lib; wireup install puts it there")
    };
    let program = std::env::current_exe().map_err(|error| format!("the path of wireup: {error}"))?;
    let found = libraries::find(&program, libraries::STAGED).map_err(|place| missing(&place))?;
    let path = found.canonicalize().map_err(|error| format!("{}: {error}", found.display()))?;
    Ok(Need { path, kind: NeedKind::File, why: "for nodes where nothing can be mounted".into() })
}

/// A text that lists the files to be staged, with the reason and the size of each, and the files left out.
pub fn listing(plan: &Plan) -> String {
    let mut text = format!("staged on each node: {}\n", plan.amount());
    for need in &plan.needs {
        let inside = plan.set.entries().filter(|entry| entry.path().starts_with(&need.path));
        let (mut count, mut len) = (0, 0);
        for entry in inside {
            if let EntryKind::File { len: one, .. } = entry.kind {
                (count, len) = (count + 1, len + one);
            }
        }
        let files = if need.kind == NeedKind::Folder { format!("{count} files, ") } else { String::new() };
        text += &format!("  {}  ({}; {files}{})\n", need.path.display(), need.why, bytes(len));
    }
    let (systems, others): (Vec<_>, Vec<_>) = plan.left_out.iter().partition(|(_, why)| *why == LeftOut::OfTheNode);
    if !plan.left_out.is_empty() {
        text += "not staged:\n";
    }
    for (path, why) in others.iter().take(SHOWN) {
        text += &format!("  {}  ({why})\n", path.display());
    }
    if others.len() > SHOWN {
        text += &format!("  and {} more\n", others.len() - SHOWN);
    }
    if !systems.is_empty() {
        text += &format!("  {} files {}\n", systems.len(), LeftOut::OfTheNode);
    }
    for remark in &plan.remarks {
        text += &format!("{}\n", remark.text);
    }
    text
}
