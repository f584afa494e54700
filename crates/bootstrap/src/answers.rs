//! Answers of the server, until they are taken.

use alloc::collections::{BTreeMap, BTreeSet};

pub struct Answers<T> {
    last: u32,
    under_way: BTreeSet<u32>,
    over: BTreeMap<u32, T>,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Answers { last: 0, under_way: BTreeSet::new(), over: BTreeMap::new() }
    }
}

impl<T> Answers<T> {
    /// The number of a new request, below 2^31.
    pub fn begin(&mut self) -> u32 {
        self.last = (self.last + 1) & (u32::MAX >> 1);
        self.under_way.insert(self.last);
        self.last
    }

    pub fn on_answer(&mut self, number: u32, answer: T) {
        if self.under_way.remove(&number) {
            self.over.insert(number, answer);
        }
    }

    pub fn is_over(&self, number: u32) -> bool {
        self.over.contains_key(&number)
    }

    /// An answer is taken once.
    pub fn take(&mut self, number: u32) -> Option<T> {
        self.over.remove(&number)
    }

    /// The answer is not wanted.
    pub fn forget(&mut self, number: u32) {
        self.under_way.remove(&number);
        self.over.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_until_they_are_taken_unless_they_are_not_wanted() {
        let mut answers = Answers::default();
        let [one, two, three] = [(); 3].map(|()| answers.begin());
        answers.forget(two);
        for number in [three, two, one] {
            answers.on_answer(number, number * 10);
        }
        assert_eq!([one, two, three].map(|number| answers.is_over(number)), [true, false, true]);
        assert_eq!(
            [answers.take(one), answers.take(one), answers.take(three)],
            [Some(one * 10), None, Some(three * 10)]
        );
        answers.last = u32::MAX >> 1;
        assert_eq!(answers.begin(), 0);
    }
}
