//! A rank's requests for barriers of groups (PMI 1.2).

use super::connection::PmiLink;
use super::state::State;
use super::turn::{Effect, Turn};
use wireup_wire::group::{Group, tag_of};
use wireup_wire::limits::GROUP_BARRIERS_PER_RANK_MAX;
use wireup_wire::pmi::{Command, Envelope, Reply, encode_barrier_refusal, encode_reply};

impl PmiLink {
    /// A group's barrier is complete.
    pub fn answer_group(&mut self, tag: i32, reply: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        self.groups -= 1;
        encode_reply(self.dialect, Command::Barrier, None, &Reply::BarrierOut { tag: Some(tag) }, reply);
    }
}

impl Turn<'_, '_> {
    pub(super) fn on_group(&mut self, envelope: &Envelope<'_>, text: &[u8]) {
        if self.subversion < 2 {
            return self.refuse(envelope, "group_barriers_need_PMI_1.2");
        }
        let problem = match Group::parse(text, self.facts.job_size) {
            Err(problem) => problem.to_string(),
            Ok(group) if !group.members.contains(self.who.rank) => "the caller is not in the group".into(),
            Ok(_) if *self.groups >= GROUP_BARRIERS_PER_RANK_MAX => "too many barriers of groups under way".into(),
            Ok(group) => {
                *self.groups += 1;
                return self.effects.push(Effect::EnterGroup(group));
            }
        };
        encode_barrier_refusal(tag_of(text).unwrap_or(0), &problem, self.reply);
    }
}
