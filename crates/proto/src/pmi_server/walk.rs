//! Iteration over all pairs by number (`getbyidx`): the published pairs, as look-ups would find them.

use super::segments::UNREADABLE;
use super::turn::{Effect, Next, Turn, WaitingGet};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_reply};

impl Turn<'_, '_> {
    pub(super) fn on_get_by_index(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, index: i32) -> Next {
        let Ok(number) = u32::try_from(index) else {
            self.refuse(envelope, "idx_is_negative");
            return Next::Go;
        };
        if !self.is_own_kvs(kvsname) {
            self.refuse(envelope, "kvsname_is_not_that_of_this_job");
        } else if *self.lazy > 0 {
            *self.waiting_get = Some(WaitingGet::Number(number));
            return Next::Wait;
        } else {
            self.answer_number(number);
        }
        Next::Go
    }

    pub(super) fn answer_number(&mut self, number: u32) {
        let Self { tables, reply, dialect, effects, .. } = self;
        let answer = match tables.kvs.at(number) {
            Ok(Some((pair, next))) => match i32::try_from(next) {
                Ok(next_index) => Reply::Pair { next_index, key: pair.key, value: pair.value },
                Err(_) => Reply::Failed { message: "there_are_more_pairs_than_idx_can_number" },
            },
            Ok(None) => Reply::NotFound,
            Err(error) => {
                effects.push(Effect::unreadable(error));
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(*dialect, Command::GetByIdx, None, &answer, reply);
    }
}
