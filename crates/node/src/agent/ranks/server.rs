//! Drives the PMIx server process of a job: where it comes from, and what the keeper and the process itself report.

use super::JobRanks;
use crate::agent::directory;
use crate::agent::pmix::{Opening, PmixServer, StandbyServer};
use crate::agent::shells::in_words;
use crate::agent::turn::Turn;
use crate::keeper::{KeeperEvent, Request};
use wireup_os::reactor::Reactor;
use wireup_proto::io::{JobEvent, PmixPlan};
use wireup_wire::ids::NodeId;
use wireup_wire::peer::SpawnError;
use wireup_wire::signal::SIGKILL;

impl JobRanks {
    /// Gives the job a PMIx server process: the one that its keeper started before the job was known, or a new one.
    pub fn start_pmix(&mut self, plan: &PmixPlan, reactor: &Reactor) -> Result<(), SpawnError> {
        let wanted = Opening::new(plan);
        match self.standby.take_if(|standby| standby.serves(&wanted)) {
            Some(standby) => self.pmix = Some(PmixServer::with(standby, plan, self.slot, reactor)?),
            None => self.start_new_pmix(plan, reactor)?,
        }
        // On a shared machine one agent is enough to remove old directories. This runs while the server process starts.
        if !plan.begin.shared || plan.begin.node == NodeId(0) {
            directory::remove_left();
        }
        Ok(())
    }

    fn start_new_pmix(&mut self, plan: &PmixPlan, reactor: &Reactor) -> Result<(), SpawnError> {
        let (mut server, batch) = PmixServer::prepare(plan, self.slot)?;
        self.dismiss_standby();
        // The removal is requested before the directory exists, because this agent could be killed at any moment.
        self.keeper.request(&Request::RemoveAtEnd { directory: server.directory.bytes() });
        self.keeper.flush(reactor);
        server.make_directory()?;
        self.keeper.request(&Request::Spawn(batch));
        self.keeper.flush(reactor);
        self.pmix = Some(server);
        Ok(())
    }

    pub(super) fn dismiss_standby(&mut self) {
        let request = self.standby.as_mut().map(StandbyServer::dismiss);
        request.into_iter().for_each(|request| self.keeper.request(&request));
    }

    /// The planned PMIx server for the next job of the family, to be started before that job is known; `None`: none is
    /// planned.
    pub fn next_standby(&mut self) -> Option<StandbyServer> {
        self.pmix.as_mut()?.next.take()
    }

    /// Reads once from the server process's socket. `false`: nothing more is available now.
    pub fn on_pmix_bytes(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(pmix) = &mut self.pmix else { return false };
        let (was_dying, more) = (pmix.is_dying, pmix.on_bytes(turn));
        if pmix.is_dying && !was_dying {
            // A server that has closed its socket is useless, so it is killed; the keeper reports its exit later.
            self.stop_pmix();
        }
        more
    }

    pub fn stop_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            // No server is started for the next job, since it would fail in the same way.
            pmix.next = None;
            self.keeper.request(&Request::Signal { slot: Some(pmix.process), signal: SIGKILL });
        }
    }

    pub(super) fn on_server_event(&mut self, slot: u32, event: KeeperEvent, turn: &mut Turn<'_>) {
        let job = self.job;
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.process == slot) else {
            // The event is of a standby server that the job does not use.
            if !matches!(event, KeeperEvent::Started { .. }) {
                self.standby = None;
            }
            return;
        };
        match event {
            KeeperEvent::Started { fds, .. } => pmix.adopt(fds, turn.reactor),
            KeeperEvent::StartFailed { error, .. } => {
                turn.push_event(job, JobEvent::PmixGone { end: Err(in_words(error)) });
            }
            KeeperEvent::Exited { status, .. } => {
                pmix.on_exited(status, turn);
                for (slot, status) in std::mem::take(&mut self.exits.deferred) {
                    // `Exited` carries no descriptors to adopt, so `on_keeper_event` cannot fail.
                    let _ = self.on_keeper_event(KeeperEvent::Exited { slot, status }, turn);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::keepers::Keepers;
    use crate::agent::pmix::tests::plan;
    use crate::agent::token::{JobSlot, Token};
    use crate::keeper::SERVER_SLOT;
    use wireup_proto::io::Input;
    use wireup_wire::ids::JobId;

    const JOB: JobId = JobId(2);

    /// The program of the servers is here the test's own, which is no server and exits by itself; the test is about
    /// what the agent does with them.
    #[test]
    fn a_job_that_wants_another_server_gets_a_new_one_and_the_waiting_one_is_ended() {
        let (mut reactor, mut keepers) = (Reactor::new().unwrap(), Keepers::default());
        let mut wanted = plan(&format!("wireup-{}-dismissed", std::process::id()));
        let standby = StandbyServer::like(&wanted).unwrap();
        let directory = standby.directory();
        keepers.join(JOB, JobId(1));
        keepers.plan_standby(JOB, standby);
        keepers.on_tick(u64::MAX, &reactor);
        assert!(directory.exists());

        let mut ranks = JobRanks::new(JOB, JobSlot(0), wanted.kernel_session, &mut keepers, &reactor).unwrap();
        assert!(ranks.standby.is_some());
        wanted.env = vec![b"PMIX_MCA_another=1".to_vec()];
        ranks.start_pmix(&wanted, &reactor).unwrap();
        let (mut buffer, mut inputs) = (vec![0; 1 << 16], Vec::new());
        let is_gone = |inputs: &[Input]| {
            inputs.iter().any(|input| matches!(input, Input::Job { event: JobEvent::PmixGone { .. }, .. }))
        };
        while ranks.standby.is_some() || !is_gone(&inputs) {
            for event in reactor.wait(None).unwrap().to_vec() {
                let turn = &mut Turn { now_ns: 0, reactor: &reactor, buffer: &mut buffer, inputs: &mut inputs };
                match Token::unpack(event.token) {
                    Some(Token::Keeper(_)) => ranks.on_keeper(turn),
                    Some(Token::PmixServer(_)) => drop(ranks.on_pmix_bytes(turn)),
                    Some(Token::PmixError(_)) => ranks.pmix.as_mut().unwrap().on_error_text(turn),
                    _ => {}
                }
            }
            ranks.keeper.flush(&reactor);
        }
        assert_eq!(ranks.pmix.as_ref().unwrap().process, SERVER_SLOT);
        keepers.give_back(JOB, ranks.keeper, &reactor);
        keepers.into_keepers(std::iter::empty(), &reactor).for_each(|keeper| drop(keeper.close()));
        assert!(!directory.exists());
    }
}
