//! Return codes, and texts that describe failures.

use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_bootstrap::{Error, FabricError, Failure};
use wireup_capi::number as decimal;
use wireup_capi::secondary_client::{LIBRARIES_MAX, NotJoined};

/// A return code other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub c_int);

impl Status {
    pub const ARG: Status = Status(-1);
    pub const STATE: Status = Status(-2);
    pub const SERVER: Status = Status(-4);
    pub const SYSTEM: Status = Status(-5);
    pub const PEER_LOST: Status = Status(-6);
    pub const MISMATCH: Status = Status(-7);
    pub const TIMEOUT: Status = Status(-8);
    pub const CANCELLED: Status = Status(-9);
    pub const TRUNCATED: Status = Status(-10);
    pub const NOT_FOUND: Status = Status(-11);
    pub const API: Status = Status(-12);
    pub const EXISTS: Status = Status(-13);
}

pub type Result<T = ()> = core::result::Result<T, Status>;

/// Runs the body of a C function, and converts the result to a return code.
pub fn returned(body: impl FnOnce() -> Result) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(status) => status.0,
    }
}

pub fn status(error: Error) -> Status {
    match error {
        Error::Join(NotJoined::Taken) => Status::EXISTS,
        Error::Server(_) | Error::Join(_) => Status::SERVER,
        Error::System(_) | Error::Fabric(_) | Error::NoUniqueId => Status::SYSTEM,
        Error::Group(Failure::Lost { .. }) => Status::PEER_LOST,
        Error::Group(Failure::Cancelled) => Status::CANCELLED,
        Error::Group(Failure::NoGroup | Failure::NoMember) | Error::Argument => Status::ARG,
        Error::Group(Failure::Malformed | Failure::Disagrees { .. }) | Error::Mismatch => Status::MISMATCH,
        Error::TimedOut => Status::TIMEOUT,
        Error::NotFound => Status::NOT_FOUND,
    }
}

/// A description of a failure. It uses no formatting, because the standard library's needs an unwinder, which this
/// library does not have.
pub fn words(error: Error) -> Vec<u8> {
    let text = match error {
        Error::Server(_) => {
            "the job's server is gone, has refused, or serves another library of this process: \
             see what the launcher has printed"
        }
        Error::System(errno) => return sentence("a system call failed with error ", errno, " (see man 3 errno)"),
        Error::Group(Failure::Lost { rank }) => return sentence("rank ", rank, " of the job is gone"),
        Error::Group(Failure::Cancelled) => "the group was freed while this was in progress",
        Error::Group(Failure::NoGroup) => "there is no such group: it was freed",
        Error::Group(Failure::NoMember) => "the group has no such member",
        Error::Group(Failure::Disagrees { rank }) => {
            return sentence("rank ", rank, " of the job makes this group of other members, or in another order");
        }
        Error::Group(Failure::Malformed) | Error::Mismatch => {
            "the ranks do not call the same functions of a group in the same order with matching lengths"
        }
        Error::Join(NotJoined::Taken) => "a library in this process has, or has had, this name",
        Error::Join(NotJoined::Full) => {
            return sentence("this process has joined under ", LIBRARIES_MAX, " names: no more are allowed");
        }
        Error::Join(NotJoined::NoRoom) => "no descriptors are left, here or in wireup's agent (ulimit -n)",
        Error::Join(NotJoined::NoAgent) => {
            "wireup's agent does not answer: this process is not a rank of this host, \
             or is in another network namespace"
        }
        Error::Join(NotJoined::Foreign) => {
            "another user's process answers instead of wireup's agent: \
             open the context inside wireup run, in the user and network namespaces of its agent"
        }
        Error::TimedOut => "not complete in time; the operation goes on",
        Error::NoUniqueId => "a member of the group could not make its unique id",
        Error::NotFound => "the rank has not set such an address",
        Error::Fabric(FabricError::Missing) => {
            "libfabric.so.1 cannot be loaded: install it (Debian: libfabric1), or name its folder in LD_LIBRARY_PATH"
        }
        Error::Fabric(FabricError::NoProvider) => {
            "libfabric has no provider of FI_EP_RDM that reaches other hosts: \
             compare FI_PROVIDER with the list of fi_info -t FI_EP_RDM"
        }
        Error::Fabric(FabricError::Memory) => "libfabric: out of memory",
        Error::Fabric(FabricError::Call { what, number }) => {
            let end = " (see man 3 fi_errno); FI_LOG_LEVEL=warn tells more, FI_PROVIDER chooses another provider";
            return sentence(&["libfabric: ", what, " failed with error "].concat(), number, end);
        }
        Error::Argument => "an argument is not valid for this group",
    };
    text.into()
}

/// A text that contains a number, which must not be negative.
fn sentence(text: &str, number: impl TryInto<usize>, end: &str) -> Vec<u8> {
    let mut words = Vec::from(text);
    decimal::push(number.try_into().unwrap_or_default(), &mut words);
    words.extend_from_slice(end.as_bytes());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_libfabric_say_what_to_do() {
        let said = |error| std::string::String::from_utf8(words(Error::Fabric(error))).unwrap();
        assert!(
            said(FabricError::Missing).contains("libfabric.so.1") && said(FabricError::Missing).contains("libfabric1")
        );
        assert!(said(FabricError::NoProvider).contains("FI_PROVIDER"));
        let failed = said(FabricError::Call { what: "opening a domain", number: 19 });
        assert!(
            failed.starts_with("libfabric: opening a domain failed with error 19 (see man 3 fi_errno)"),
            "{failed}"
        );
    }
}
