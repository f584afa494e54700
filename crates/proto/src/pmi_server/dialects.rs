//! Converts keys and values that clients of one dialect write and clients of the other read.
//!
//! The kvs stores text as PMI-2 writes it, with each `;` doubled. A line break cannot be in a message of PMI-1.

use wireup_wire::pmi::escape::{doubled, halve};
use wireup_wire::pmi::{Dialect, Reply};

/// Text of a client as it is stored.
pub fn stored<'a>(dialect: Dialect, text: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    match dialect {
        Dialect::Pmi1 => doubled(text, room),
        Dialect::Pmi2 => text,
    }
}

/// Stored text for a client; `None`: it has a line break, and the client speaks PMI-1.
pub fn shown<'a>(dialect: Dialect, text: &'a [u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    match dialect {
        Dialect::Pmi1 => Some(halve(text, room)).filter(|text| !text.contains(&b'\n')),
        Dialect::Pmi2 => Some(text),
    }
}

/// The answer in place of text that the client's dialect cannot express.
pub const UNSPEAKABLE: Reply<'static> =
    Reply::Failed { message: "the_value_has_a_line_break_which_PMI-1_cannot_carry" };
