//! The requests of launchers to a session that outlives its jobs: the welcome, the revival of nodes, the end of jobs,
//! the end of the session.

use super::{LauncherState, Launchers, Role};
use crate::clock::Event;
use crate::cx::Cx;
use crate::fault_injection::Culprit;
use crate::jobs::Jobs;
use crate::net::Net;
use bytes::Bytes;
use wireup_proto::control_frame;
use wireup_wire::ids::JobId;
use wireup_wire::peer;
use wireup_wire::session::Presence;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

impl Launchers {
    /// A launcher that has no job yet receives bytes of the root.
    pub(super) fn on_answers(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, bytes: &mut Bytes) {
        while let Some(frame) = match self.all[launcher as usize].reader.next(bytes) {
            Ok(frame) => frame,
            Err(error) => return cx.problem(format!("launcher {launcher} reads: {error}")),
        } {
            match peer::decode(&frame.payload) {
                Ok(message) => self.on_answer(cx, net, jobs, launcher, message),
                Err(error) => cx.problem(format!("launcher {launcher} reads: {error}")),
            }
        }
    }

    fn on_answer(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, message: Control) {
        match (self.all[launcher as usize].role, message) {
            (Role::Job(plan), Control::ToLauncher(ToLauncher::Welcome(welcome))) => {
                self.all[launcher as usize].welcome = Some(welcome);
                let job = &cx.spec.jobs[plan as usize];
                // The launcher reads the files that it stages before it launches the staging job.
                let reads_ns = if job.is_staging() { jobs.file_server.load(cx) } else { 0 };
                cx.clock.after(job.wait_ns + reads_ns, Event::LauncherLaunches(launcher));
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: true }))
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                if nodes.iter().any(|node| node.presence == Presence::Starting) {
                    cx.problem("the answer to Revive contains nodes that are still starting".into());
                }
                self.leave(cx, net, jobs, launcher, 0);
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskJobs))
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::JobList(entries))) => {
                for entry in entries {
                    let mut jobs = jobs.all.iter_mut();
                    if let Some(job) = jobs.find(|job| job.id == entry.job && job.plan.is_endless()) {
                        job.expect_losses(cx);
                        job.checks.interrupted = true;
                        job.checks.blame(Culprit::Launcher, false);
                        let kill = Control::FromLauncher(FromLauncher::KillJob {
                            job: entry.job,
                            signal: None,
                            by: "helper".into(),
                        });
                        self.ask_root(cx, net, launcher, &kill);
                    }
                }
                // The requests of the launcher are sent, and the launcher exits without waiting for answers.
                self.leave(cx, net, jobs, launcher, 0);
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: false }))
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                self.nodes = Some(nodes);
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::EndSession { kill: true }));
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::JobList(_)))
            | (_, Control::ToLauncher(ToLauncher::Decided(Ok(()))) | Control::Note(_)) => {}
            (role, message) => {
                cx.problem(format!("a launcher for {role:?} receives {message:?}"));
            }
        }
    }

    fn ask_root(&self, cx: &mut Cx, net: &mut Net, launcher: u32, message: &Control) {
        let at = &self.all[launcher as usize];
        if at.state == LauncherState::Running {
            let now = cx.clock.now();
            net.send(&mut cx.clock, at.link, 0, control_frame(JobId(0), message), now);
        }
    }
}
