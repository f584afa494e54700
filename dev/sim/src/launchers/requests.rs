//! What launchers ask of a session that outlives its jobs: the welcome, a revival, the end of jobs, the end of the
//! session.

use super::{LauncherState, Role};
use crate::clock::Event;
use crate::fault_injection::Culprit;
use crate::world::World;
use bytes::Bytes;
use wireup_proto::control_frame;
use wireup_wire::ids::JobId;
use wireup_wire::peer;
use wireup_wire::session::Presence;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

impl World {
    /// Bytes of the root for a launcher that has no job yet.
    pub(super) fn on_answers(&mut self, launcher: u32, bytes: &mut Bytes) {
        while let Some(frame) = match self.launchers[launcher as usize].reader.next(bytes) {
            Ok(frame) => frame,
            Err(error) => return self.cx.problem(format!("launcher {launcher} reads: {error}")),
        } {
            match peer::decode(&frame.payload) {
                Ok(message) => self.on_answer_to_launcher(launcher, message),
                Err(error) => self.cx.problem(format!("launcher {launcher} reads: {error}")),
            }
        }
    }

    fn on_answer_to_launcher(&mut self, launcher: u32, message: Control) {
        match (self.launchers[launcher as usize].role, message) {
            (Role::Job(plan), Control::ToLauncher(ToLauncher::Welcome(welcome))) => {
                self.launchers[launcher as usize].welcome = Some(welcome);
                self.cx.clock.after(self.cx.spec.jobs[plan as usize].wait_ns, Event::LauncherLaunches(launcher));
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: true }))
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                if nodes.iter().any(|node| node.presence == Presence::Starting) {
                    self.cx.problem("the answer to Revive contains nodes that are still starting".into());
                }
                self.launcher_leaves(launcher, 0);
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(launcher, &Control::FromLauncher(FromLauncher::AskJobs))
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::JobList(jobs))) => {
                for entry in jobs {
                    let mut jobs = self.jobs.all.iter_mut();
                    if let Some(job) = jobs.find(|job| job.id == entry.job && job.plan.is_endless()) {
                        job.expect_losses(&mut self.cx);
                        job.checks.interrupted = true;
                        job.checks.blame(Culprit::Launcher, false);
                        let kill = Control::FromLauncher(FromLauncher::KillJob {
                            job: entry.job,
                            signal: None,
                            by: "helper".into(),
                        });
                        self.ask_root(launcher, &kill);
                    }
                }
                // The requests of the launcher are on their way, and it needs no answers.
                self.launcher_leaves(launcher, 0);
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: false }))
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                self.check_nodes(&nodes);
                self.ask_root(launcher, &Control::FromLauncher(FromLauncher::EndSession { kill: true }));
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::JobList(_)))
            | (_, Control::ToLauncher(ToLauncher::Decided(Ok(()))) | Control::Note(_)) => {}
            (role, message) => {
                self.cx.problem(format!("a launcher for {role:?} receives {message:?}"));
            }
        }
    }

    fn ask_root(&mut self, launcher: u32, message: &Control) {
        let at = &self.launchers[launcher as usize];
        if at.state == LauncherState::Running {
            self.net.send(&mut self.cx.clock, at.link, 0, control_frame(JobId(0), message));
        }
    }
}
