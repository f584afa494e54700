//! Puts that nobody waits for one by one: their answers are counted, and a refusal shows at the next fence.

#[derive(Clone, Copy, Default, Debug)]
pub struct Posts {
    sent: u64,
    answered: u64,
    /// The first and the last that were refused, counted from 1, since somebody last asked.
    refused: Option<(u64, u64)>,
}

impl Posts {
    pub fn sent(&self) -> u64 {
        self.sent
    }

    pub fn unanswered(&self) -> u64 {
        self.sent - self.answered
    }

    pub fn on_sent(&mut self) {
        self.sent += 1;
    }

    pub fn on_answered(&mut self, succeeded: bool) {
        self.answered += 1;
        if !succeeded {
            let first = self.refused.map_or(self.answered, |(first, _)| first);
            self.refused = Some((first, self.answered));
        }
    }

    /// Whether one of the first `sent` was refused; that is then forgotten.
    pub fn take_refusal(&mut self, sent: u64) -> bool {
        match self.refused {
            Some((first, last)) if first <= sent => {
                self.refused = if last > sent { Some((last, last)) } else { None };
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_post_is_reported_once_at_the_next_fence() {
        let mut posts = Posts::default();
        for _ in 0..4 {
            posts.on_sent();
        }
        for succeeded in [true, false, true, false] {
            posts.on_answered(succeeded);
        }
        assert_eq!(posts.unanswered(), 0);
        assert!(!posts.take_refusal(1));
        assert!(posts.take_refusal(3) && !posts.take_refusal(3));
        assert!(posts.take_refusal(4) && !posts.take_refusal(4));
    }
}
