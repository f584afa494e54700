//! The errors of this library's functions.

use core::ffi::c_int;
use wireup_capi::codes::Code;
use wireup_capi::secondary_client::NotJoined;
use wireup_group::Failure;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The connection to the job's server is broken, or the server has refused a request.
    Server(Code),
    /// A system call has failed.
    System(c_int),
    /// An operation of a group of ranks has failed.
    Group(Failure),
    /// The ranks have called different functions, or a received value is malformed.
    Mismatch,
    /// The time limit has passed; the operation continues.
    TimedOut,
    Argument,
    NotFound,
    /// A member could not make its unique id.
    NoUniqueId,
    /// A secondary library cannot join the job.
    Join(NotJoined),
    Fabric(wireup_fabric::Error),
}
