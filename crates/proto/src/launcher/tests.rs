//! Tests of a launcher; the test plays the root agent.

use super::*;
use crate::testing::{job_on, places_of};
use wireup_wire::frame::PeerFrame;
use wireup_wire::ids::AgentId;
use wireup_wire::pmi::{HostFiles, SpawnCommand, SpawnRequest};
use wireup_wire::talk::{FromLauncher, JobDown, JobUp, SessionDown, ToLauncher};

const LINK: LinkId = LinkId(1);

struct Bench {
    launcher: Launcher,
    sent: Vec<(JobId, Control)>,
    credit: Vec<(JobId, u32)>,
    notices: Vec<Notice>,
    host_files: Vec<(JobId, Vec<Vec<u8>>)>,
    code: Option<u8>,
}

impl Bench {
    /// A job with two ranks on each of two nodes runs.
    fn new() -> Bench {
        let job = job_on(1, 0..2, 2);
        let config = LauncherConfig {
            places: places_of(&job),
            job,
            timeout_ns: None,
            explains_timeout: true,
            one_shot: true,
            relay_stdin: false,
            growth: Growth::Free,
        };
        let launcher = Launcher::new(config, Instant(0));
        let mut bench = Bench {
            launcher,
            sent: Vec::new(),
            credit: Vec::new(),
            notices: Vec::new(),
            host_files: Vec::new(),
            code: None,
        };
        bench.input(LauncherInput::LinkUp { link: LINK });
        assert!(matches!(&bench.sent[..], [(JobId(1), Control::FromLauncher(FromLauncher::Launch(_)))]));
        bench.says(1, JobUp::Started { ranks: 4, pmix: None });
        bench.sent.clear();
        bench.notices.clear();
        bench
    }

    fn input(&mut self, input: LauncherInput) {
        self.launcher.handle(Instant(1), input);
        while let Some(output) = self.launcher.poll() {
            match output {
                LauncherOutput::Send { frame, .. } if frame.kind == FrameKind::Control => {
                    self.sent.push((JobId(frame.job), peer::decode(&frame.payload).expect("a message")));
                }
                LauncherOutput::Send { frame, .. } => self.credit.push((JobId(frame.job), frame.arg)),
                LauncherOutput::Notice(notice) => self.notices.push(notice),
                LauncherOutput::Exit { code } => self.code = Some(code),
                LauncherOutput::ReadHostFiles { child, paths } => self.host_files.push((child, paths)),
                LauncherOutput::Write { .. } | LauncherOutput::ReadStdin { .. } | LauncherOutput::Suspend => {}
            }
        }
    }

    fn frame(&mut self, frame: &Frame) {
        for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload.clone()] {
            self.input(LauncherInput::LinkBytes { link: LINK, bytes });
        }
    }

    fn says(&mut self, job: u32, message: impl Into<Control>) {
        self.frame(&control_frame(JobId(job), &message.into()));
    }

    fn asks(&mut self, job: u32, child: u32, host: &str) {
        self.asks_with(job, child, ("host", host));
    }

    fn asks_with(&mut self, job: u32, child: u32, (key, value): (&str, &str)) {
        let info = vec![(key.as_bytes().to_vec(), value.as_bytes().to_vec())];
        let command = SpawnCommand { program: b"b".to_vec(), args: Vec::new(), ranks: 2, info, env: Vec::new() };
        let request = SpawnRequest { commands: vec![command], preput: Vec::new() };
        self.says(job, ToLauncher::Spawn { job: JobId(child), from: Rank(1), request: request.into() });
    }

    fn ends(&mut self, job: u32, failure: Option<Failure>) {
        self.says(job, ToLauncher::Ended(Ended { failure, done: Done::default() }));
    }

    fn take_sent(&mut self) -> Vec<(JobId, Control)> {
        std::mem::take(&mut self.sent)
    }

    /// The job that the launcher has launched because a rank has asked for it; nothing else was sent.
    fn launched(&mut self, child: u32) -> JobSpec {
        match &self.take_sent()[..] {
            [(job, Control::FromLauncher(FromLauncher::Launch(spec)))] if job.0 == child => (**spec).clone(),
            sent => panic!("{sent:?}"),
        }
    }

    /// Why the launcher does not start a job that a rank has asked for; nothing else was sent.
    fn refused(&mut self, child: u32) -> String {
        match &self.take_sent()[..] {
            [(job, Control::FromLauncher(FromLauncher::Spawned(Err(problem))))] if job.0 == child => problem.clone(),
            sent => panic!("{sent:?}"),
        }
    }

    /// The link to the root ends; returns the exit code.
    fn link_down(&mut self) -> Option<u8> {
        self.input(LauncherInput::LinkDown { link: LINK, problem: String::new() });
        self.code
    }
}

fn failure(cause: Cause) -> Failure {
    Failure { node: Default::default(), host: "n1".into(), rank: Some(Rank(0)), pid: None, cause }
}

#[test]
fn a_rank_is_answered_when_the_ranks_of_its_job_run() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "n1");
    let spec = bench.launched(2);
    let spawned = spec.spawned.as_ref().expect("it was asked for");
    assert_eq!((spawned.by, spawned.rank, &spec.nodes[0].name[..]), (JobId(1), Rank(1), "n1"));
    bench.says(2, JobUp::Started { ranks: 2, pmix: None });
    let told = NewJob { nspace: spec.nspace.clone(), ranks: 2 };
    assert_eq!(bench.take_sent(), [(JobId(2), Control::FromLauncher(FromLauncher::Spawned(Ok(told))))]);
    bench.ends(1, None);
    assert_eq!((bench.code, bench.take_sent()), (None, Vec::new()), "the other job goes on");
    bench.ends(2, None);
    assert_eq!(bench.take_sent(), [(JobId(1), Control::SessionDown(SessionDown::Shutdown))]);
    assert_eq!(bench.link_down(), Some(0));
}

#[test]
fn a_request_waits_until_its_files_of_hosts_are_read() {
    let mut bench = Bench::new();
    let files = |names: Result<Vec<String>, String>| HostFiles::from([(b"/hosts".to_vec(), names)]);
    for child in [2, 3] {
        bench.asks_with(1, child, ("hostfile", "/hosts"));
        assert_eq!(bench.host_files.pop(), Some((JobId(child), vec![b"/hosts".to_vec()])));
    }
    assert_eq!(bench.take_sent(), []);
    bench.input(LauncherInput::HostFiles { child: JobId(3), files: files(Ok(vec!["n1".into()])) });
    let spec = bench.launched(3);
    assert_eq!(&spec.nodes[0].name[..], "n1");
    for _ in 0..2 {
        bench.input(LauncherInput::HostFiles { child: JobId(2), files: files(Err("no such file".into())) });
    }
    assert_eq!(bench.refused(2), "the file of hosts /hosts cannot be read where the launcher runs: no such file");
}

#[test]
fn a_request_that_cannot_be_fulfilled_is_answered_with_the_reason() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "moon");
    assert!(bench.refused(2).starts_with("moon is not"));
    assert!(matches!(&bench.notices[..], [Notice::NotSpawned { from: Origin { job: None, rank: Rank(1) }, .. }]));
}

#[test]
fn agents_of_added_hosts_have_the_names_that_the_root_says() {
    let mut bench = Bench::new();
    bench.asks_with(1, 2, ("add-host", "moon,n1,sun"));
    let spec = bench.launched(2);
    let nodes: Vec<_> = spec.nodes.iter().map(|node| (node.agent, &node.name[..])).collect();
    assert_eq!(nodes, [(AgentId::ADDED, "moon"), (AgentId::ADDED, "sun")]);
    bench.says(5, ToLauncher::Added { agents: vec![AgentId(8)] });
    bench.says(2, ToLauncher::Added { agents: vec![AgentId(9), AgentId(8)] });
    let added = |agent, host: &str| Notice::Added { agent: AgentId(agent), host: host.into() };
    assert_eq!(bench.notices, [added(9, "moon"), added(8, "sun")]);
    bench.says(2, ToLauncher::Added { agents: vec![AgentId(7)] });
    assert_eq!(bench.notices.len(), 2, "each has one number");
}

#[test]
fn no_job_is_launched_on_a_lost_node() {
    let mut bench = Bench::new();
    bench.says(1, JobUp::Missing(vec![peer::MissingAgent { agent: AgentId(1), problem: Default::default() }]));
    bench.asks(1, 2, "n1");
    assert!(bench.refused(2).starts_with("n1 is lost"));
    bench.asks(1, 3, "n0");
    bench.launched(3);
}

#[test]
fn a_job_that_cannot_start_does_not_end_the_others() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "n1");
    bench.take_sent();
    let cause = Cause::Launcher { problem: "no room".into() };
    bench.says(2, JobUp::Failed(failure(cause.clone())));
    bench.ends(2, Some(failure(cause)));
    bench.refused(2);
    assert!(matches!(&bench.notices[..], [Notice::NotStarted { job: JobId(2), .. }]), "{:?}", bench.notices);
    bench.ends(1, None);
    assert_eq!(bench.link_down(), Some(0));
}

#[test]
fn a_failure_of_one_job_ends_all_and_is_the_exit_code() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "n0");
    bench.says(2, JobUp::Started { ranks: 2, pmix: None });
    bench.asks(2, 3, "n1");
    bench.take_sent();
    bench.says(2, JobUp::Failed(failure(Cause::Exited(9))));
    let killed: Vec<JobId> = bench.take_sent().into_iter().map(|(job, _)| job).collect();
    assert_eq!(killed, [JobId(1), JobId(3)], "its own root ends the job that failed");
    assert!(matches!(&bench.notices[..], [Notice::OfJob { job: JobId(2), .. }]));
    bench.asks(1, 4, "n1");
    // No more jobs are started.
    bench.refused(4);
    // A rank has waited for job 3.
    bench.ends(3, Some(failure(Cause::Signalled { signal: 15, core_dumped: false })));
    bench.refused(3);
    bench.ends(2, Some(failure(Cause::Exited(9))));
    bench.ends(1, Some(failure(Cause::Signalled { signal: 15, core_dumped: false })));
    assert_eq!(bench.link_down(), Some(9));
}

#[test]
fn jobs_that_have_disconnected_do_not_end_each_other() {
    let mut bench = Bench::new();
    for child in [2, 3] {
        bench.asks(1, child, "n0");
        bench.says(child, JobUp::Started { ranks: 2, pmix: None });
    }
    bench.take_sent();
    // Job 77 belongs to another launcher and is ignored. The message arrives once for each job of this launcher, and
    // only the first one counts.
    let together =
        |connected| Control::ToLauncher(ToLauncher::Together { jobs: vec![JobId(1), JobId(2), JobId(77)], connected });
    bench.says(1, together(true));
    bench.says(2, together(true));
    bench.says(1, together(false));
    bench.says(2, JobUp::Failed(failure(Cause::Exited(9))));
    assert!(bench.take_sent().is_empty());
    bench.ends(2, Some(failure(Cause::Exited(9))));
    bench.asks(1, 4, "n1");
    // The others go on.
    bench.launched(4);
    bench.says(1, JobUp::Failed(failure(Cause::Exited(7))));
    let killed: Vec<JobId> = bench.take_sent().into_iter().map(|(job, _)| job).collect();
    assert_eq!(killed, [JobId(3), JobId(4)]);
    for job in [1, 3, 4] {
        bench.ends(job, None);
    }
    assert_eq!(bench.link_down(), Some(9), "the first failure counts");
}

#[test]
fn signals_are_for_all_jobs() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "n0");
    bench.take_sent();
    bench.input(LauncherInput::Signal { signal: SIGTERM, sender: Some(7) });
    let signalled = [1, 2].map(|job| (JobId(job), Control::JobDown(JobDown::Signal { signal: SIGTERM })));
    assert_eq!(bench.take_sent(), signalled);
    bench.input(LauncherInput::Signal { signal: SIGTERM, sender: Some(8) });
    assert_eq!(bench.take_sent(), [], "a process repeats it at once");
    bench.input(LauncherInput::Signal { signal: SIGTERM, sender: None });
    let killed = [1, 2].map(|job| (JobId(job), Control::JobDown(JobDown::Kill { grace_ns: 0 })));
    assert_eq!(bench.take_sent(), killed);
}

#[test]
fn each_job_gets_credit_for_what_it_has_written() {
    let mut bench = Bench::new();
    bench.asks(1, 2, "n0");
    for (job, bytes) in [(1, &b"first\n"[..]), (2, b"second\n"), (1, b"third\n")] {
        let payload = Bytes::from_static(bytes);
        bench.frame(&Frame::new(UpFrame::Output, Stream::Out as u16, job, MIXED, payload));
    }
    bench.input(LauncherInput::Written { stream: Stream::Out, bytes: 9 });
    assert_eq!(std::mem::take(&mut bench.credit), [(JobId(1), 6), (JobId(2), 3)]);
    bench.input(LauncherInput::Written { stream: Stream::Out, bytes: 10 });
    assert_eq!(bench.credit, [(JobId(2), 4), (JobId(1), 6)]);
}

#[test]
fn a_frame_that_the_root_cannot_send_ends_the_link() {
    let from_launchers = DownFrame::ALL.iter().map(|kind| Frame::new(*kind, 0, 1, 0, Bytes::new()));
    let from_agents = PeerFrame::ALL.iter().map(|kind| Frame::new(*kind, 0, 1, 0, Bytes::new()));
    let of_a_launcher = control_frame(JobId(1), &FromLauncher::AskJobs.into());
    for frame in from_launchers.chain(from_agents).chain([of_a_launcher]) {
        let mut bench = Bench::new();
        bench.frame(&frame);
        let [Notice::Failed(Failure { cause: Cause::AgentLost { agent, problem }, .. })] = &bench.notices[..] else {
            panic!("{frame:?}: {:?}", bench.notices)
        };
        assert_eq!((*agent, problem.to_string()), (AgentId(0), PeerError::Misdirected.to_string()));
        assert!(bench.code.is_some_and(|code| code != 0), "it exits");
    }
}

const JOB: JobId = JobId(1);

#[test]
fn output_is_awaited_for_a_limited_time_once_the_end_was_requested() {
    let mut unwritten = Unwritten::new(Instant(0));
    assert!(unwritten.add(Instant(1), JOB, Stream::Out, 5) && unwritten.add(Instant(2), JOB, Stream::Err, 1));
    assert_eq!(unwritten.deadline(), None);
    for _ in 0..2 {
        unwritten.hurry(Instant(3));
        unwritten.moved_at = Instant(4);
    }
    assert_eq!(unwritten.deadline(), Some(Instant(4) + UNTAKEN_NS_MAX));
    unwritten.is_dropped = true;
    let taken = [(Stream::Out, 2), (Stream::Out, u32::MAX), (Stream::Out, 9), (Stream::Err, 1), (Stream::Err, 0)];
    let taken = taken.map(|(stream, max)| unwritten.take_oldest(stream, max).map(|(_, bytes)| bytes));
    assert_eq!(taken, [Some(2), Some(3), None, Some(1), None]);
    assert_eq!((unwritten.deadline(), unwritten.add(Instant(5), JOB, Stream::Out, 5)), (None, false));
}

#[test]
fn input_is_read_as_far_as_its_credit_goes_and_until_its_end() {
    assert_eq!(Stdin::new(false).bytes_max(), None);
    let mut stdin = Stdin::new(true);
    assert_eq!(stdin.bytes_max(), Some(STDIN_CHUNK_MAX.min(STDIN_WINDOW_BYTES) as u32));
    assert!(stdin.on_read(STDIN_WINDOW_BYTES));
    assert_eq!(stdin.bytes_max(), Some(0));
    stdin.on_credit(7);
    assert_eq!(stdin.bytes_max(), Some(7));
    assert_eq!([stdin.on_read(0), stdin.on_read(1)], [true, false]);
    assert_eq!(stdin.bytes_max(), None);
}

#[test]
fn ranks_report_where_they_wait_before_a_time_limit_ends_them() {
    let mut bench = Bench::new();
    let stacks = Control::JobUp(JobUp::Stacks(Vec::new()));
    bench.says(1, stacks.clone());
    assert_eq!(bench.notices, [], "wireup why has asked");
    bench.launcher.timeout = Some(TimeLimit { at: Instant(1), after_ns: 1, explains: true, has_asked: false });
    bench.input(LauncherInput::Tick);
    let asked = [JobDown::StallAsk { collective: None }, JobDown::StackAsk];
    assert_eq!(bench.sent, asked.map(|message| (JobId(1), Control::JobDown(message))));
    bench.sent.clear();
    bench.input(LauncherInput::Tick);
    assert_eq!(bench.sent, [], "the answer is awaited");
    let limit = bench.launcher.deadline().expect("the answer is not awaited forever");
    assert_eq!(limit, Instant(1) + TIMEOUT_STACKS_NS_MAX);
    bench.says(1, stacks);
    assert_eq!(bench.notices, [Notice::Stacks(Vec::new())]);
    bench.input(LauncherInput::Tick);
    assert!(matches!(&bench.sent[..], [(JobId(1), Control::JobDown(JobDown::Kill { .. }))]), "{:?}", bench.sent);
}

#[test]
fn a_crash_that_is_reported_after_its_consequence_is_the_result() {
    let mut bench = Bench::new();
    let [exit, crash] = [Cause::Exited(1), Cause::Signalled { signal: 11, core_dumped: false }].map(failure);
    for reported in [&exit, &crash, &exit] {
        bench.says(1, JobUp::Failed(reported.clone()));
    }
    assert_eq!(bench.notices, [exit, crash].map(Notice::Failed));
    bench.ends(1, None);
    assert_eq!(bench.launcher.result.failure.as_ref().map(|failure| exit_code(Some(failure))), Some(139));
}

#[test]
fn a_time_limit_ends_jobs_of_wireup_itself_at_once() {
    let mut bench = Bench::new();
    bench.launcher.timeout = Some(TimeLimit { at: Instant(1), after_ns: 1, explains: false, has_asked: false });
    bench.input(LauncherInput::Tick);
    assert!(matches!(&bench.sent[..], [(JobId(1), Control::JobDown(JobDown::Kill { .. }))]), "{:?}", bench.sent);
}
