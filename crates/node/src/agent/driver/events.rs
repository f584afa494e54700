//! Dispatches a ready descriptor to its owner.

use super::AgentDriver;
use crate::agent::ranks::JobRanks;
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Event;

impl AgentDriver {
    pub fn on_event(&mut self, token: Token, event: Event) {
        let Self { reactor, links, jobs, further, shells, inputs, buffer, .. } = self;
        let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
        match &token {
            Token::Transport(which) => links.on_transport(*which, turn),
            Token::Link(id) => links.on_event(*id, event, turn),
            Token::Shells => {
                if let Some(shells) = shells {
                    shells.on_keeper(turn);
                }
            }
            Token::ShellError(shell) => {
                if let Some(shells) = shells {
                    shells.on_error_text(*shell, turn);
                }
            }
            Token::StepIn(shell) => {
                if let Some(shells) = shells {
                    shells.on_step_input(*shell, turn.reactor);
                }
            }
            Token::StepOut(shell) => {
                if let Some(shells) = shells {
                    shells.on_step_output(*shell, turn);
                }
            }
            Token::Keeper(slot) => {
                if let Some(ranks) = jobs.at(*slot) {
                    ranks.on_keeper(turn);
                    if ranks.keeper().lost().is_some() {
                        self.parent_weight.on_keeper_lost(ranks.keeper().pid());
                    }
                }
            }
            Token::IdleKeeper(pid) => self.keepers.on_event(*pid, turn.reactor),
            Token::Output(slot, local, stream) => {
                if let Some(ranks) = jobs.at(*slot) {
                    ranks.output.on_readable(*local, *stream, turn);
                }
            }
            Token::Pmi(slot, client) => {
                if let Some(ranks) = jobs.at(*slot) {
                    ranks.clients.on_pmi_event(*client, event, turn);
                }
            }
            Token::Further => further.on_event(jobs, turn),
            Token::Fellows => self.keepers.answer_fellows(turn.reactor),
            Token::Stdin(slot, local) => {
                if let Some(ranks) = jobs.at(*slot) {
                    ranks.stdin.flush(*local, turn);
                }
            }
            Token::Relay(slot, relay) => {
                if let Some(ranks) = jobs.at(*slot) {
                    ranks.relays.on_relay_event(*relay, event, turn);
                }
            }
            Token::PmixServer(slot) => {
                if let Some(ranks) = jobs.at(*slot) {
                    if let Some(pmix) = ranks.pmix().filter(|_| event.writable) {
                        pmix.flush(turn.reactor);
                    }
                    if event.readable || event.hangup {
                        ranks.on_pmix_bytes(turn);
                    }
                }
            }
            Token::PmixError(slot) => {
                if let Some(pmix) = jobs.at(*slot).and_then(JobRanks::pmix) {
                    pmix.on_error_text(turn);
                }
            }
            Token::Launcher(_) | Token::Caller(_) => {}
        }
        self.take_inputs();
        if let Token::Pmi(..) = token {
            // A rank gets its reply at once, so that it can go on while the next request is read.
            self.perform_all();
        }
    }
}
