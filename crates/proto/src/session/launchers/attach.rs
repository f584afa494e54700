//! Attaching and detaching launchers: each gets a job number when it attaches.

use super::attached::{Asks, Attached};
use super::{Launchers, refuse_launch};
use crate::io::LinkId;
use crate::job::JobInput;
use crate::outbox::control_frame;
use crate::session::membership::Nodes;
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::JobId;
use wireup_wire::peer::{Cause, Control};
use wireup_wire::session::Welcome;

impl Launchers {
    pub(super) fn attach(&mut self, view: &View<'_>, nodes: &Nodes, link: LinkId, fx: &mut Effects) {
        self.newest = JobId(self.newest.0 + 1);
        let job = self.newest;
        let attached = Attached { job, has_launched: false, asks: Asks::default(), waits_for_nodes: false };
        self.attached.insert(link, attached);
        let welcome = Welcome {
            job,
            session: view.session.name.clone(),
            fanout: view.session.fanout,
            shared: view.session.remote_shell.starter().same_machine,
            by_step: view.is_by_step(),
            transport: view.session.transport,
            nodes: nodes.all().to_vec(),
        };
        fx.push(Effect::Send(link, control_frame(job, &Control::Welcome(welcome))));
    }

    pub(super) fn on_down(&mut self, link: LinkId, fx: &mut Effects) {
        self.owners.forget_link(link);
        self.forget_held_of(link);
        if let Some(attached) = self.attached.remove(&link) {
            fx.push(Effect::Job(attached.job, JobInput::LauncherGone));
        }
    }

    pub(super) fn refuse_link(&mut self, link: LinkId, problem: String, fx: &mut Effects) {
        if let Some(attached) = self.attached.get(&link).filter(|attached| !attached.has_launched) {
            refuse_launch(link, attached.job, String::new(), Cause::Launcher { problem }, fx);
        }
    }
}
