//! The job's pairs: those of its server; or, for a further library, its own ([`crate::pairs`]).

use super::Context;
use crate::error::Error;
use crate::operation::Operation;
use wireup_capi::job::MAX_LEN;
use wireup_group::Done;

impl Context {
    /// Adds a pair, which the next fence publishes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.is_secondary() {
            return self.pairs.put(key, value);
        }
        self.job.put(key, value).map_err(Error::Server)
    }

    /// Passes the value of a published key to `take`; `false`: there is none.
    pub fn get(&mut self, key: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        if self.is_secondary() {
            let found = self.pairs.get(key);
            found.into_iter().for_each(&mut *take);
            return Ok(found.is_some());
        }
        self.job.get(&[], -1, key, take).map_err(Error::Server)
    }

    /// Every rank learns what all have put since the last time.
    pub(super) fn exchange_pairs(&mut self) -> Result<(), Error> {
        let bytes = self.pairs.take_put();
        let operation = Operation::Allgather { bytes, len_max: MAX_LEN, in_memory: false };
        let request = self.start(self.world(), operation)?;
        let Done::Rows(rows) = self.wait(&request, -1)? else { return Err(Error::Mismatch) };
        rows.iter().try_for_each(|put| self.pairs.learn(put))
    }
}
