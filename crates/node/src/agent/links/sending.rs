//! Sends frames on links: queued as they come, written once a turn.

use super::LinkSet;
use crate::agent::token::Token;
use crate::transport::link::LinkError;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{Input, LinkId};
use wireup_wire::frame::Frame;
use wireup_wire::limits::LAUNCHER_UNREAD_BYTES_MAX;

impl LinkSet {
    /// Queues a frame for a link; `flush` sends it.
    pub fn send(&mut self, id: LinkId, frame: Frame) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.link.send(frame);
            if self.dirty.last() != Some(&id) {
                self.dirty.push(id);
            }
        }
    }

    pub fn close(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.closing = true;
            self.dirty.push(id);
        }
    }

    /// Writes queued frames, once a turn.
    pub fn flush(&mut self, reactor: &Reactor, inputs: &mut Vec<Input>) {
        if !self.dirty.is_empty() {
            self.plan_look();
        }
        for id in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.links.get_mut(&id) else { continue };
            let flushed = entry.link.flush();
            let interest = match entry.link.wants_to_write() {
                false => Interest::READABLE,
                // A launcher that does not read its answers is not read until it reads them.
                true if entry.link.is_local() => Interest::WRITABLE,
                true => Interest::BOTH,
            };
            let is_unread = entry.link.is_local() && entry.link.waiting_bytes() > LAUNCHER_UNREAD_BYTES_MAX;
            match flushed {
                Ok(false) if is_unread => self.fail(id, LinkError::Unread, reactor, inputs),
                Ok(true) if entry.closing => self.forget(id, reactor),
                Ok(_) => {
                    if std::mem::replace(&mut entry.interest, interest) != interest {
                        let _ = entry.link.watch(Token::Link(id).pack(), interest, reactor);
                    }
                }
                Err(error) => self.fail(id, error, reactor, inputs),
            }
        }
    }
}
