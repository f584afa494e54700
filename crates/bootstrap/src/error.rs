//! Why a call of this library fails.

use core::ffi::c_int;
use wireup_capi::codes::Code;
use wireup_capi::secondary_client::NotJoined;
use wireup_group::Failure;

/// Why a call has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The job's server is gone, or has refused.
    Server(Code),
    /// A system call has failed.
    System(c_int),
    /// An operation of a group of ranks has failed.
    Group(Failure),
    /// The ranks have called different functions, or a received value makes no sense.
    Mismatch,
    /// The time limit has passed; the operation goes on.
    TimedOut,
    /// The argument makes no sense.
    Argument,
    /// There is no such thing.
    NotFound,
    /// A member could not make its unique id.
    NoUniqueId,
    /// A further library cannot join.
    Join(NotJoined),
    /// libfabric cannot be used.
    Fabric(wireup_fabric::Error),
}
