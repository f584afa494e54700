//! A queue whose items arrive one by one and in order.

use crate::clock::{Clock, Event};
use std::collections::VecDeque;
use wireup_proto::Instant;

/// Each `push` schedules one event; when that event occurs, the receiver pops the front item.
#[derive(Debug)]
pub struct Fifo<T> {
    items: VecDeque<T>,
    last_arrival: Instant,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { items: VecDeque::new(), last_arrival: Instant(0) }
    }
}

impl<T> Fifo<T> {
    pub fn push(&mut self, clock: &mut Clock, delay_ns: u64, item: T, event: Event) {
        self.last_arrival = self.last_arrival.max(clock.now() + delay_ns);
        self.items.push_back(item);
        clock.at(self.last_arrival, event);
    }

    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }
}
