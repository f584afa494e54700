//! The values of both neighbours.
//!
//! If the server has a ring, this is one round trip. Slurm's server and ours have one, and both set `PMI_JOBID`. Other
//! servers may end the job when they receive an unknown command, so the ring is not requested without that variable. In
//! that case, and if the server refuses, the ring is a put, a fence and two gets, in rank order.

use super::Job;
use crate::codes::{Code, Result};
use crate::server::Failure;
use alloc::vec::Vec;
use wireup_client::escape::{double, halve};
use wireup_client::number;
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::pmi::Request;

/// A rank's position in the ring, which may differ from its rank, and the values of both neighbours.
pub struct Ring {
    pub position: u32,
    pub left: Vec<u8>,
    pub right: Vec<u8>,
}

impl Job {
    /// Exchanges a value with both neighbours.
    ///
    /// # Errors
    /// [`Code::INVALID_VAL_LENGTH`]: the value is longer than a server takes.
    pub fn ring(&mut self, value: &[u8]) -> Result<Ring> {
        if value.len() > VALUE_LEN_MAX {
            return Err(Code::INVALID_VAL_LENGTH);
        }
        if self.size == 1 {
            return Ok(Ring { position: 0, left: value.to_vec(), right: value.to_vec() });
        }
        if self.server_is_known
            && let Some(ring) = self.ring_of_the_server(value)?
        {
            return Ok(ring);
        }
        self.neighbours(value)
    }

    /// Exchanges the values through the server's ring; `None`: the server has no ring.
    fn ring_of_the_server(&mut self, value: &[u8]) -> Result<Option<Ring>> {
        let mut sent = Vec::new();
        double(value, &mut sent);
        let (mut ring, mut plain) = (None, Vec::new());
        let asked = self.server()?.call(&Request::Ring { count: 1, left: &sent, right: &sent }, &mut |fields| {
            let mut side = |name| fields.get(name).map(|text| halve(text, &mut plain).to_vec());
            if let (Some(left), Some(right), Some(position)) =
                (side("ring-left"), side("ring-right"), fields.get("ring-count").and_then(number::parse))
            {
                ring = Some(Ring { position, left, right });
            }
        });
        match asked {
            // A server without a ring refuses the request.
            Err(Failure::Refused) => Ok(None),
            Err(failure) => Err(failure.into()),
            Ok(()) => ring.ok_or(Code::OTHER).map(Some),
        }
    }

    /// As [`Job::ring`], in the order of ranks whatever the server: the values of all ranks travel to every node.
    fn neighbours(&mut self, value: &[u8]) -> Result<Ring> {
        let (rank, size) = (self.rank, self.size);
        let (left_rank, right_rank) = ((rank + size - 1) % size, (rank + 1) % size);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let id = self.start_allgather(value, VALUE_LEN_MAX, false);
        let gathered = self.collect(id)?;
        self.values(&gathered, &[left_rank, right_rank], &mut |rank, value| {
            // In a job of two, both neighbours are the same rank.
            if rank == left_rank {
                left = value.to_vec();
            }
            if rank == right_rank {
                right = value.to_vec();
            }
            Ok(())
        })?;
        Ok(Ring { position: rank, left, right })
    }
}
