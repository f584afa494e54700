//! The types of fields, and their text on the wire.

use super::Dialect;
use super::error::{Excerpt, Problem};
use alloc::vec::Vec;

/// What PMI-2 appends to a request's name in the reply.
pub(super) const RESPONSE: &str = "-response";

/// Identifies one field of the table in an error.
#[derive(Clone, Copy)]
pub(super) struct FieldName {
    pub(super) command: &'static str,
    pub(super) field: &'static str,
}

/// A field type of the table.
pub(super) trait Value<'a>: Sized {
    /// The name of the type in the printed table.
    const TYPE: &'static str;
    /// Whether a message may lack the field.
    const OPTIONAL: bool = false;
    /// Parses the field's text in the message, if any.
    fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem>;
    /// Appends the text; returns `false` if the field must be left out.
    fn write(&self, out: &mut Vec<u8>) -> bool;
}

fn required(name: FieldName, raw: Option<&[u8]>) -> Result<&[u8], Problem> {
    raw.ok_or(Problem::Missing { command: name.command, field: name.field })
}

fn number<T: TryFrom<i64>>(name: FieldName, raw: &[u8]) -> Result<T, Problem> {
    core::str::from_utf8(raw)
        .ok()
        .and_then(|text| text.trim_ascii().parse::<i64>().ok())
        .and_then(|number| T::try_from(number).ok())
        .ok_or(Problem::BadNumber { command: name.command, field: name.field, value: Excerpt::of(raw) })
}

/// Appends a decimal number.
pub(super) fn write_number(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

impl<'a> Value<'a> for &'a [u8] {
    const TYPE: &'static str = "text";

    fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem> {
        let raw = required(name, raw)?;
        if memchr::memchr(0, raw).is_some() {
            return Err(Problem::ZeroByte { command: name.command, field: name.field, value: Excerpt::of(raw) });
        }
        Ok(raw)
    }

    fn write(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self);
        true
    }
}

/// A value of arbitrary bytes, in which each `;` is doubled on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> Value<'a> for Raw<'a> {
    const TYPE: &'static str = "bytes";

    fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem> {
        required(name, raw).map(Raw)
    }

    fn write(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.0);
        true
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl<'a> Value<'a> for $type {
            const TYPE: &'static str = stringify!($type);

            fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem> {
                number(name, required(name, raw)?)
            }

            fn write(&self, out: &mut Vec<u8>) -> bool {
                write_number(i64::from(*self), out);
                true
            }
        }
    )*};
}

numbers!(u32, i32);

impl<'a> Value<'a> for bool {
    const TYPE: &'static str = "TRUE/FALSE";

    fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem> {
        let raw = required(name, raw)?;
        if raw.eq_ignore_ascii_case(b"true") {
            Ok(true)
        } else if raw.eq_ignore_ascii_case(b"false") {
            Ok(false)
        } else {
            Err(Problem::BadFlag { command: name.command, field: name.field, value: Excerpt::of(raw) })
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(if *self { b"TRUE" } else { b"FALSE" });
        true
    }
}

impl<'a, T: Value<'a>> Value<'a> for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const OPTIONAL: bool = true;

    fn read(name: FieldName, raw: Option<&'a [u8]>) -> Result<Self, Problem> {
        raw.map(|raw| T::read(name, Some(raw))).transpose()
    }

    fn write(&self, out: &mut Vec<u8>) -> bool {
        self.as_ref().is_some_and(|value| value.write(out))
    }
}

/// Builds one message of either dialect.
pub(super) struct MessageWriter<'o> {
    dialect: Dialect,
    out: &'o mut Vec<u8>,
    start: usize,
}

/// Length of the prefix of a PMI-2 body: the body's length, right-justified.
pub(super) const PMI2_HEADER_LEN: usize = 6;
/// Longest body length that six digits can represent.
const PMI2_LENGTH_MAX: usize = 999_999;

impl<'o> MessageWriter<'o> {
    /// Starts a message; its name is the concatenation of the two parts of `name`.
    pub(super) fn new(dialect: Dialect, name: (&[u8], &str), out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        if dialect == Dialect::Pmi2 {
            out.extend_from_slice(&[b' '; PMI2_HEADER_LEN]);
        }
        let mut writer = MessageWriter { dialect, out, start };
        writer.out.extend_from_slice(b"cmd=");
        writer.out.extend_from_slice(name.0);
        writer.out.extend_from_slice(name.1.as_bytes());
        writer.end_pair();
        writer
    }

    fn end_pair(&mut self) {
        if self.dialect == Dialect::Pmi2 {
            self.out.push(b';');
        }
    }

    pub(super) fn raw(&mut self, key: &str, value: &[u8]) {
        self.field(key, &value);
    }

    /// Appends `wordN=value`.
    pub(super) fn numbered(&mut self, word: &str, number: usize, value: &[u8]) {
        if self.dialect == Dialect::Pmi1 {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(word.as_bytes());
        write_number(number as i64, self.out);
        self.out.push(b'=');
        self.out.extend_from_slice(value);
        self.end_pair();
    }

    /// Appends each key and value as two numbered fields, counted from 0.
    pub(super) fn numbered_pairs(&mut self, words: (&str, &str), pairs: &[(Vec<u8>, Vec<u8>)]) {
        for (number, (key, value)) in pairs.iter().enumerate() {
            self.numbered(words.0, number, key);
            self.numbered(words.1, number, value);
        }
    }

    /// Appends `key=value`, or nothing if the value is absent.
    pub(super) fn field<'a>(&mut self, key: &str, value: &impl Value<'a>) {
        let before = self.out.len();
        if self.dialect == Dialect::Pmi1 {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(b'=');
        if value.write(self.out) {
            self.end_pair();
        } else {
            self.out.truncate(before);
        }
    }

    /// Appends a table field under all its names in the dialect. A value equal to its empty default is left out:
    /// MPICH's PMI-1 parser refuses empty values.
    pub(super) fn table_field<'a>(&mut self, keys: &[&str], value: &impl Value<'a>, default: Option<&str>) {
        for key in keys {
            let before = self.out.len();
            self.field(key, value);
            let without_value = before + key.len() + 2;
            if default == Some("") && self.out.len() == without_value {
                self.out.truncate(before);
            }
        }
    }

    pub(super) fn end(self) {
        match self.dialect {
            Dialect::Pmi1 => self.out.push(b'\n'),
            Dialect::Pmi2 => {
                let length = self.out.len() - self.start - PMI2_HEADER_LEN;
                assert!(length <= PMI2_LENGTH_MAX, "a PMI-2 body fits the six digits of its length");
                let mut rest = length;
                for slot in self.out[self.start..self.start + PMI2_HEADER_LEN].iter_mut().rev() {
                    *slot = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        break;
                    }
                }
            }
        }
    }
}
