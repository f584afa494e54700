//! Errors in host names, each with its remedy.

use thiserror::Error;

/// Most hosts of one job. Chosen: more than any machine has, and few enough to expand while the command line is parsed.
#[cfg(not(fuzzing))]
pub const HOSTS_MAX: u64 = 1_000_000;
#[cfg(fuzzing)]
pub const HOSTS_MAX: u64 = 1_000;

/// A word or line that is not a valid host.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum HostProblem {
    #[error("a host name is missing; remove the extra comma, or name a host")]
    NoName,
    #[error("{name}: {letter:?} is not allowed in a host name; write names as n0,n1:8,n[2-5]")]
    Letter { name: String, letter: char },
    #[error("{name}: a host name must not begin with \"-\"; is the value of the previous flag missing?")]
    Dash { name: String },
    #[error("{name}: brackets do not match; write n[2-5], or [fd00::1] for an IPv6 address")]
    Brackets { name: String },
    #[error("[{text}] is not a range of numbers; write n[2-5] or n[01-04,07]")]
    Range { text: String },
    #[error("[{text}]: the first number of the range is larger than the second; swap them")]
    RangeDown { text: String },
    #[error("{text} is not an IPv6 address; write [fd00::1] or [fd00::1]:8")]
    Ipv6 { text: String },
    #[error("{name}: more than one colon; put an IPv6 address into brackets, as [fd00::1] or [fd00::1]:8")]
    Colons { name: String },
    #[error("{text} is not a valid number of slots; write n1:8 (at most {})", u32::MAX)]
    Slots { text: String },
    #[error("more than {HOSTS_MAX} hosts; check the ranges for an extra digit")]
    TooMany,
    #[error("unknown word {word}; {cure}")]
    Word { word: String, cure: String },
    #[error("{word}: the slots were already given on this line; give them once")]
    SlotsTwice { word: String },
    #[error("max_slots={max} is less than slots={slots}; raise max_slots or lower slots")]
    MaxBelowSlots { slots: u32, max: u32 },
    #[error("not valid UTF-8; write names in UTF-8")]
    NotUtf8,
}
