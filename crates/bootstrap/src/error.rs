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
    /// In a group of ranks.
    Group(Failure),
    /// The ranks do not call the same, or a value makes no sense.
    Mismatch,
    /// Not over in time; it goes on.
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
