//! Keeps the answers to requests until the caller takes them.

use alloc::collections::{BTreeMap, BTreeSet};

/// `K`: the type of a request's number.
pub struct Answers<K, T> {
    over: BTreeMap<K, T>,
    /// Requests that have no answer yet, and whose answers will be dropped.
    forgotten: BTreeSet<K>,
}

impl<K, T> Default for Answers<K, T> {
    fn default() -> Self {
        Answers { over: BTreeMap::new(), forgotten: BTreeSet::new() }
    }
}

impl<K: Ord, T> Answers<K, T> {
    /// Keeps the first answer to a request, unless the request was forgotten.
    pub fn on_answer(&mut self, request: K, answer: T) {
        if !self.forgotten.remove(&request) {
            self.over.entry(request).or_insert(answer);
        }
    }

    pub fn is_over(&self, request: K) -> bool {
        self.over.contains_key(&request)
    }

    /// Removes and returns a request's answer; `None`: no answer has arrived, or it was removed before.
    pub fn take(&mut self, request: K) -> Option<T> {
        self.over.remove(&request)
    }

    /// Drops the answer of a request, now or when it arrives.
    pub fn forget(&mut self, request: K) {
        if self.over.remove(&request).is_none() {
            self.forgotten.insert(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_until_they_are_taken_unless_they_are_not_wanted() {
        let mut answers = Answers::default();
        answers.on_answer(4, 40);
        [2, 4].into_iter().for_each(|request| answers.forget(request));
        for request in [3, 2, 1, 1] {
            answers.on_answer(request, request * 10);
        }
        assert_eq!([1, 2, 3, 4].map(|request| answers.is_over(request)), [true, false, true, false]);
        assert_eq!([answers.take(1), answers.take(1), answers.take(3)], [Some(10), None, Some(30)]);
        assert!(answers.forgotten.is_empty());
    }
}
