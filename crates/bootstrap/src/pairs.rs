//! The key-value pairs of a secondary library in a process: put locally, exchanged by an allgather, and held by every
//! rank.

use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_capi::job::MAX_LEN;
use wireup_wire::values;

#[derive(Default)]
pub struct Pairs {
    /// Pairs put since the last fence: keys and values in turn.
    put: Vec<u8>,
    known: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Pairs {
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let len = values::encoded_len(key.len()) + values::encoded_len(value.len());
        if self.put.len() + len > MAX_LEN {
            return Err(Error::Argument);
        }
        [key, value].into_iter().for_each(|one| values::push(&mut self.put, one));
        Ok(())
    }

    /// Removes and returns the pairs put since the last call: keys and values in turn.
    pub fn take_put(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.put)
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.known.get(key).map(Vec::as_slice)
    }

    pub fn learn(&mut self, put: &[u8]) -> Result<(), Error> {
        let mut all = values::values(put);
        while let Some(key) = all.next() {
            let (Ok(key), Some(Ok(value))) = (key, all.next()) else { return Err(Error::Mismatch) };
            self.known.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
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
