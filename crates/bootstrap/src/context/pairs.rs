//! The job's pairs: those of its server; or, for a further library, its own, exchanged by an allgather, so that each
//! rank holds all.

use super::{Context, Error};
use crate::operation::Operation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_capi::job::MAX_LEN;
use wireup_group::Done;
use wireup_wire::values;

#[derive(Default)]
pub struct Pairs {
    /// Key and value in turn, since the last fence.
    put: Vec<u8>,
    known: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Pairs {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let len = values::encoded_len(key.len()) + values::encoded_len(value.len());
        if self.put.len() + len > MAX_LEN {
            return Err(Error::Argument);
        }
        [key, value].into_iter().for_each(|one| values::push(&mut self.put, one));
        Ok(())
    }

    /// What one rank has put.
    fn learn(&mut self, put: &[u8]) -> Result<(), Error> {
        let mut all = values::values(put);
        while let Some(key) = all.next() {
            let (Ok(key), Some(Ok(value))) = (key, all.next()) else { return Err(Error::Mismatch) };
            self.known.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }
}

impl Context {
    /// Adds a pair, which the next fence publishes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.is_further() {
            return self.pairs.put(key, value);
        }
        self.job.put(key, value).map_err(Error::Server)
    }

    /// Passes the value of a published key to `take`; `false`: there is none.
    pub fn get(&mut self, key: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        if self.is_further() {
            let found = self.pairs.known.get(key);
            found.into_iter().for_each(|value| take(value));
            return Ok(found.is_some());
        }
        self.job.get(&[], -1, key, take).map_err(Error::Server)
    }

    /// Every rank learns what all have put since the last time.
    pub(super) fn exchange_pairs(&mut self) -> Result<(), Error> {
        let bytes = core::mem::take(&mut self.pairs.put);
        let operation = Operation::Allgather { bytes, len_max: MAX_LEN, in_memory: false };
        let request = self.start(self.world(), operation)?;
        let Done::Rows(rows) = self.wait(&request, -1)? else { return Err(Error::Mismatch) };
        rows.iter().try_for_each(|put| self.pairs.learn(put))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_learnt_and_too_much_is_refused() {
        let (mut here, mut there) = (Pairs::default(), Pairs::default());
        here.put(b"a", b"1").unwrap();
        here.put(b"b", b"").unwrap();
        here.put(b"a", b"2").unwrap();
        there.learn(&here.put).unwrap();
        assert_eq!((there.known[&b"a"[..]].as_slice(), there.known[&b"b"[..]].as_slice()), (&b"2"[..], &b""[..]));
        assert_eq!(here.put(b"c", &[0; MAX_LEN]), Err(Error::Argument));
        assert_eq!(there.learn(&here.put[..3]), Err(Error::Mismatch));
    }
}
