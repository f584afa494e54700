//! Errors in host names, each with its remedy.

use super::HOSTS_MAX;
use thiserror::Error;

/// A word or line that is not a valid host.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum HostProblem {
    #[error("a host's name is missing; remove the comma too many, or name a host")]
    NoName,
    #[error("{name}: a host's name has no {letter:?}; write names as n0,n1:8,n[2-5]")]
    Letter { name: String, letter: char },
    #[error("{name}: a host's name does not begin with \"-\"; is a flag's value missing?")]
    Dash { name: String },
    #[error("{name}: brackets do not match; write n[2-5], or [fd00::1] for an IPv6 address")]
    Brackets { name: String },
    #[error("[{text}]: no range of numbers; write n[2-5] or n[01-04,07]")]
    Range { text: String },
    #[error("[{text}]: the range goes down; write the smaller number first")]
    RangeDown { text: String },
    #[error("{text}: no IPv6 address; brackets with colons hold one, as [fd00::1] or [fd00::1]:8")]
    Ipv6 { text: String },
    #[error("{name}: more than one colon; an IPv6 address stands in brackets, as [fd00::1] or [fd00::1]:8")]
    Colons { name: String },
    #[error("{text}: slots are a whole number up to {}; write n1:8", u32::MAX)]
    Slots { text: String },
    #[error("more than {HOSTS_MAX} hosts; look for a range with a digit too many")]
    TooMany,
    #[error("unknown word {word}; {cure}")]
    Word { word: String, cure: String },
    #[error("{word} says again how many slots there are; say it once")]
    SlotsTwice { word: String },
    #[error("max_slots={max} is less than slots={slots}; raise one or lower the other")]
    MaxBelowSlots { slots: u32, max: u32 },
    #[error("not valid UTF-8; write names in UTF-8")]
    NotUtf8,
}
