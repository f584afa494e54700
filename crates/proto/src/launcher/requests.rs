//! Requests of ranks for processes: each becomes a job, once the host files that it names have been read.
//!
//! The job gets the environment, the limits and the options of the job of the rank that asks, without standard input,
//! terminal and profile. Each program is an entry of its own in the list of programs, so its position is its
//! application number.

use super::job_family::JobFamily;
use super::spawn_placement::{Growth, SpawnNode, SpawnPlacement, blocks};
use crate::plan::app_of;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::job::{AppSpec, JobOptions, JobSpec, Spawned, StdinTarget, StdioOptions};
use wireup_wire::limits::LAUNCHER_PAYLOAD_MAX;
use wireup_wire::pmi::{HostFiles, SpawnCommand, SpawnInfo, SpawnRequest};

/// Most bytes of arguments and variables of a job that a rank asks for. Chosen: half of what a launcher may send in one
/// frame, so that the rest of the job fits as well.
const JOB_BYTES_MAX: usize = LAUNCHER_PAYLOAD_MAX / 2;
/// Bytes that an argument or variable takes in a frame besides its text.
const WORD_BYTES: usize = 8;

/// The `PATH` to which the info key `path` is prepended if the environment has no `PATH`.
const USUAL_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// A rank's request for processes.
pub struct Request {
    /// The job of the rank that asks.
    pub by: JobId,
    pub from: Rank,
    pub request: SpawnRequest,
}

/// What the launcher has to do for a request.
pub enum Step {
    /// Read these host files.
    ReadHostFiles(Vec<Vec<u8>>),
    /// Launch this job.
    Launch(Box<JobSpec>),
    /// Tell the rank that its request is refused, and why.
    Refuse { request: Request, problem: String },
}

pub struct Requests {
    /// The name of the job that the user has launched.
    nspace: String,
    /// The nodes on which ranks of further jobs may run.
    places: Vec<SpawnNode>,
    growth: Growth,
    /// Number of jobs that ranks have asked for so far.
    children: u32,
    /// Requests whose hostfiles are being read, by the number of the new job.
    reading: BTreeMap<JobId, Request>,
    /// Agents on whose nodes no job can start.
    pub lost: BTreeSet<AgentId>,
}

impl Requests {
    pub fn new(nspace: String, places: Vec<SpawnNode>, growth: Growth) -> Requests {
        Requests { nspace, places, growth, children: 0, reading: BTreeMap::new(), lost: BTreeSet::new() }
    }

    /// A rank asks for processes, which become the job `child`.
    pub fn on_request(&mut self, family: &JobFamily, child: JobId, request: Request) -> Step {
        let host_files = |parent| host_files(parent, request.from, &request.request);
        match family.to_grow(request.by).and_then(host_files) {
            Ok(paths) if !paths.is_empty() => {
                self.reading.insert(child, request);
                Step::ReadHostFiles(paths.into_iter().collect())
            }
            Ok(_) => self.describe(family, child, request, &HostFiles::new()),
            Err(problem) => Step::Refuse { request, problem },
        }
    }

    /// The host files that a request names were read. `None`: no request waits for them.
    pub fn on_host_files(&mut self, family: &JobFamily, child: JobId, files: &HostFiles) -> Option<Step> {
        let request = self.reading.remove(&child)?;
        Some(self.describe(family, child, request, files))
    }

    /// Creates a job from a request.
    fn describe(&mut self, family: &JobFamily, child: JobId, request: Request, host_files: &HostFiles) -> Step {
        self.children += 1;
        let names = (child, nspace(&self.nspace, self.children));
        let job = |parent| self.job(names, (parent, &request), &family.loads(), host_files);
        match family.to_grow(request.by).and_then(job) {
            Ok(spec) => Step::Launch(spec.into()),
            Err(problem) => Step::Refuse { request, problem },
        }
    }

    /// The job with this number and name that a rank of `parent` asks for. `loads`: number of ranks on each node.
    ///
    /// # Errors
    /// Why the job cannot be created.
    fn job(
        &self,
        (id, nspace): (JobId, String),
        (parent, Request { from, request, .. }): (&JobSpec, &Request),
        loads: &BTreeMap<AgentId, u32>,
        host_files: &HostFiles,
    ) -> Result<JobSpec, String> {
        let (model, mut infos) = read(parent, *from, request)?;
        infos.iter_mut().try_for_each(|info| info.name_hosts_of_files(host_files, &model.cwd))?;
        let added: Vec<_> = infos.iter().flat_map(|info| info.added.iter().cloned()).collect();
        let places = match added.is_empty() {
            true => Cow::Borrowed(&self.places),
            false => Cow::Owned(self.growth.add(&self.places, &added)?),
        };
        let mut placement = SpawnPlacement::new(&places, loads).without(&self.lost);
        let (mut apps, mut given) = (Vec::new(), Vec::new());
        let mut bytes: usize = parent.env.iter().map(|word| word.len() + WORD_BYTES).sum();
        for (command, info) in request.commands.iter().zip(&infos) {
            let app = app(command, info, parent, model);
            // Each program gets all variables of the rank that asks, so many programs together may exceed a frame.
            let words = app.argv.iter().chain(&app.env).chain([&app.cwd]);
            bytes += words.map(|word| word.len() + WORD_BYTES).sum::<usize>();
            if bytes > JOB_BYTES_MAX {
                let problem = "the words and variables of the programs take more than";
                return Err(format!("{problem} {JOB_BYTES_MAX} bytes"));
            }
            given.push(placement.give(app.ranks, info.hosts.as_deref(), info.layout)?);
            apps.push(app);
        }
        let (nodes, blocks) = blocks(&places, &given);
        let preput = request.preput.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect();
        let spec = JobSpec {
            job: id,
            nspace,
            nodes,
            blocks,
            apps,
            env: parent.env.clone(),
            endpoints: Vec::new(),
            spawned: Some(Spawned {
                family: parent.spawned.as_ref().map_or(parent.job, |spawned| spawned.family),
                by: parent.job,
                nspace: parent.nspace.clone(),
                rank: *from,
                preput,
            }),
            options: options(&parent.options),
        };
        let mapping = Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32);
        mapping.map(|_| spec).map_err(|error| error.to_string())
    }
}

fn options(parent: &JobOptions) -> JobOptions {
    let mut options = JobOptions { profile: false, ..parent.clone() };
    options.stdio = StdioOptions { stdin: StdinTarget::None, stdin_inherit: false, pty: None, ..options.stdio };
    // The user's rankfile places the ranks of the launched job, not those of a spawned one.
    options.binding.slots.clear();
    // The spawned program may need other Python modules and other files than the launched one.
    options.process.preload = None;
    options.process.prefetch.clear();
    // The folders may have changed since the launcher read them at the start of the run.
    options.process.staged.iter_mut().for_each(|staged| staged.bare.clear());
    options
}

/// Paths of the host files that a request of rank `from` of `parent` names. The files are read before the request
/// becomes a job.
///
/// # Errors
/// Why the request cannot be fulfilled.
fn host_files(parent: &JobSpec, from: Rank, request: &SpawnRequest) -> Result<BTreeSet<Vec<u8>>, String> {
    let (model, infos) = read(parent, from, request)?;
    Ok(infos.iter().flat_map(|info| info.host_files(&model.cwd)).collect())
}

/// The program of the rank that asks, and the info keys of each program that it asks for.
fn read<'a>(parent: &'a JobSpec, from: Rank, request: &SpawnRequest) -> Result<(&'a AppSpec, Vec<SpawnInfo>), String> {
    request.check().map_err(|unfit| unfit.to_string())?;
    if from.0 >= parent.job_size() {
        return Err(format!("rank {from} does not exist"));
    }
    let infos = request.commands.iter().map(SpawnInfo::parse).collect::<Result<Vec<_>, _>>()?;
    Ok((&parent.apps[usize::from(app_of(parent, from))], infos))
}

/// Describes one program of a request. `model`: the program of the rank that asks.
fn app(command: &SpawnCommand, info: &SpawnInfo, parent: &JobSpec, model: &AppSpec) -> AppSpec {
    let mut env = model.env.clone();
    env.extend(command.env.iter().chain(&info.env).cloned());
    if let Some(path) = &info.path {
        // If there are several `path` keys, the last one takes effect.
        let path_of =
            |env: &[Vec<u8>]| env.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH=")).map(<[u8]>::to_vec);
        let before = path_of(&env).or_else(|| path_of(&parent.env));
        env.push([b"PATH=", &path[..], b":", before.as_deref().unwrap_or(USUAL_PATH)].concat());
    }
    AppSpec {
        ranks: info.ranks(command.ranks),
        argv: [&command.program].into_iter().chain(&command.args).cloned().collect(),
        cwd: match &info.cwd {
            None => model.cwd.clone(),
            Some(cwd) if cwd.starts_with(b"/") => cwd.clone(),
            Some(cwd) => [&model.cwd[..], b"/", cwd].concat(),
        },
        env,
    }
}

/// The namespace of the `number`th job, from 1 on, that ranks of a family have asked for.
///
/// Open MPI identifies a job by 32 bits: a 16-bit hash of the text before the `@`, and the lower 16 bits of the number
/// after it (0 without a number, as in the name of the job that the user launched). Names that differ only before the
/// `@` can therefore collide.
fn nspace(of_family: &str, number: u32) -> String {
    // Numbers whose lower 16 bits are 0 are skipped: they would collide with the job that the user launched.
    let number = u64::from(number) + (u64::from(number) - 1) / 0xffff;
    format!("{of_family}@{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job_on, places_of};

    /// A program, its number of ranks, and its info keys.
    type Asked<'a> = (&'a str, u32, &'a [(&'a str, &'a str)]);

    fn asked(commands: &[Asked<'_>]) -> SpawnRequest {
        let command = |(program, ranks, info): &Asked<'_>| SpawnCommand {
            program: program.as_bytes().to_vec(),
            args: vec![b"x".to_vec()],
            ranks: *ranks,
            info: info.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect(),
            env: Vec::new(),
        };
        SpawnRequest { commands: commands.iter().map(command).collect(), preput: vec![(b"k".to_vec(), b"v".to_vec())] }
    }

    fn child(commands: &[Asked<'_>]) -> Result<JobSpec, String> {
        child_of(Vec::new(), commands)
    }

    /// `env`: variables of the program whose rank asks.
    fn child_of(env: Vec<Vec<u8>>, commands: &[Asked<'_>]) -> Result<JobSpec, String> {
        let mut parent = job_on(1, 0..2, 1);
        parent.apps[0].env = env;
        parent.apps[0].cwd = b"/w".to_vec();
        parent.env = vec![b"PATH=/bin".to_vec()];
        parent.options.stdio.stdin = StdinTarget::All;
        let names = (JobId(5), "child".to_owned());
        let requests = Requests::new("parent".into(), places_of(&parent), Growth::Free);
        let read = |path: Vec<u8>| {
            let names = match &path[..] {
                b"/w/hosts" => Ok(vec!["n0".to_owned(), "moon:2".to_owned()]),
                _ => Err("there is none".to_owned()),
            };
            (path, names)
        };
        let request = Request { by: parent.job, from: Rank(1), request: asked(commands) };
        let named = host_files(&parent, Rank(1), &request.request)?;
        let files = named.into_iter().map(read).collect();
        requests.job(names, (&parent, &request), &BTreeMap::new(), &files)
    }

    #[test]
    fn open_mpi_tells_65535_jobs_and_the_first_one_apart() {
        let number = |child| {
            let name = nspace("wireup-7-ab", child);
            let (family, number) = name.rsplit_once('@').expect("a number");
            assert_eq!(family, "wireup-7-ab");
            number.parse::<u64>().expect("a number") & 0xffff
        };
        let near = |from: u32| (from..from + 0xffff).map(number).collect::<std::collections::BTreeSet<u64>>();
        for from in [1, 40_000, u32::MAX - 0x1_0000] {
            let seen = near(from);
            assert!(seen.len() == 0xffff && !seen.contains(&0));
        }
    }

    #[test]
    fn a_child_has_the_surroundings_of_the_rank_that_asks() {
        let spec = child(&[("./a", 2, &[]), ("b", 1, &[("wdir", "sub"), ("path", "/p")])]).expect("it is possible");
        assert_eq!((spec.job, &spec.nspace[..], spec.job_size()), (JobId(5), "child", 3));
        let [first, second] = &spec.apps[..] else { panic!("two programs") };
        assert_eq!((first.argv.clone(), &first.cwd[..]), (vec![b"./a".to_vec(), b"x".to_vec()], &b"/w"[..]));
        assert_eq!((&second.cwd[..], second.env.last()), (&b"/w/sub"[..], Some(&b"PATH=/p:/bin".to_vec())));
        assert_eq!(spec.options.stdio.stdin, StdinTarget::None);
        let spawned = spec.spawned.expect("it was asked for");
        assert_eq!((spawned.family, spawned.by, spawned.rank), (JobId(1), JobId(1), Rank(1)));
        assert_eq!(spawned.preput.len(), 1);
    }

    /// Each program gets the variables of the program whose rank asks.
    #[test]
    fn programs_whose_variables_fit_no_frame_are_refused() {
        let env = vec![[b"A=", &[b'x'; 1 << 20][..]].concat()];
        assert!(child_of(env.clone(), &[("a", 1, &[])]).is_ok());
        let refused = child_of(env, &vec![("a", 1, &[] as &[_]); 40]).expect_err("40 MiB of variables");
        assert!(refused.contains("take more than 33554432 bytes"), "{refused}");
    }

    #[test]
    fn a_child_runs_on_hosts_that_are_added_for_it() {
        let spec = child(&[("a", 1, &[("add-host", "moon,sun")]), ("b", 1, &[])]).expect("it is possible");
        let nodes: Vec<_> = spec.nodes.iter().map(|node| (node.agent.0, node.name.as_str())).collect();
        assert_eq!(nodes, [(0, "n0"), (AgentId::ADDED.0, "moon")], "no rank runs on the other one");
        let spec = child(&[("a", 4, &[("add-host", "moon:3,sun")])]).expect("it is possible");
        let nodes: Vec<_> = spec.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(nodes, ["moon", "sun"], "slots first");
    }

    #[test]
    fn files_name_hosts_too() {
        let spec = child(&[("a", 2, &[("add-hostfile", "hosts"), ("map_by", "node")])]).expect("it is possible");
        assert_eq!(spec.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n0", "moon"]);
        let refused = |key: &str, path: &str| child(&[("a", 1, &[(key, path)])]).expect_err("impossible");
        assert!(refused("hostfile", "hosts").starts_with("moon is not a node of this run"));
        assert!(refused("hostfile", "/none").starts_with("the file of hosts /none cannot be read"));
    }

    #[test]
    fn what_is_impossible_is_refused_with_the_reason() {
        let refused = |commands: &[Asked<'_>]| child(commands).expect_err("impossible");
        assert!(refused(&[("a", 1, &[("host", "moon")])]).starts_with("moon is not a node of this run"));
        assert!(refused(&[("a", 1, &[("ppr", "none")])]).contains("info key ppr"));
        assert!(refused(&[]).contains("no program"));
        assert!(refused(&[("a", 70_000, &[("ppn", "70000")])]).contains("more than 65535"));
    }

    #[test]
    fn jobs_of_requests_are_numbered_and_refused_once_the_family_is_closed() {
        let (spec, mut family) = (job_on(1, 0..2, 1), JobFamily::default());
        let request = |by| Request { by: JobId(by), from: Rank(0), request: asked(&[("a", 1, &[])]) };
        let mut requests = Requests::new("j".into(), places_of(&spec), Growth::Free);
        family.add(spec);
        for (child, nspace) in [(2, "j@1"), (3, "j@2")] {
            let Step::Launch(spec) = requests.on_request(&family, JobId(child), request(1)) else { panic!("it fits") };
            assert_eq!((spec.job, &spec.nspace[..]), (JobId(child), nspace));
        }
        assert!(requests.on_host_files(&family, JobId(4), &HostFiles::new()).is_none());
        for (by, is_closed, words) in [(9, false, "the job is being ended"), (1, true, "the jobs are being ended")] {
            family.is_closed = is_closed;
            let step = requests.on_request(&family, JobId(4), request(by));
            assert!(matches!(step, Step::Refuse { problem, .. } if problem == words), "{words}");
        }
    }
}
