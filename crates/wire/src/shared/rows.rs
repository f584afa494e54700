//! The values of all ranks of a job, from an allgather: one array for all ranks of a node.
//!
//! ```text
//! +--------+------+-------+--------+----------+----------+------------------------------------------------+
//! | "WAG1" | form | count | stride | body_len | zero     | rows:   count rows of stride bytes, NUL-padded |
//! | u32    | u32  | u32   | u32    | u64      | 40 bytes | packed: count values as in `crate::values`     |
//! +--------+------+-------+--------+----------+----------+------------------------------------------------+
//! ```
//!
//! `stride` is the maximum length of a value; row = rank. A client can return rows without a copy; packed values need
//! no padding and are unpacked in one pass, in rank order.
//!
//! Cost per rank: `stride` bytes, or the value and 1 byte (3 from 255 bytes on); plus 64 bytes per array.
//!
//! A short array lies in an arena, memory of [`ARENA_SLOTS`] slots that a rank maps once and that is reused: a
//! descriptor, a mapping and its first touch cost more than transferring the array to the node. Place `n` is slot `n %
//! ARENA_SLOTS` of arena number `n / ARENA_SLOTS`. With its next allgather a rank reports which places it no longer
//! uses; a slot is reused only when all ranks have done so.

use super::{Malformed, u32_at, u64_at};
use crate::values::{encoded_len, prefix, split_first, values};

const MAGIC: u32 = u32::from_le_bytes(*b"WAG1");
/// Length of the header: a whole cache line, so that rows of whole cache lines stay aligned.
pub const HEADER_LEN: usize = 64;

/// Arrays in an arena: one can be read while the next one is written.
pub const ARENA_SLOTS: u32 = 2;

/// How the values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Form {
    Packed = 0,
    Rows = 1,
}

/// An array in memory that another process has written.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    form: Form,
    count: u32,
    stride: usize,
    body: &'a [u8],
}

impl<'a> Rows<'a> {
    /// Reads the header of an array. `bytes`: the whole array; bytes after its end are ignored.
    ///
    /// # Errors
    /// The header is that of another format, or its numbers do not match the length.
    #[inline(never)] // Keeps libraries small that call it in several places.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let field = |index: usize| u32_at(bytes, index * 4).ok_or(Malformed);
        let (magic, form, count, stride) = (field(0)?, field(1)?, field(2)?, field(3)?);
        let body_len = u64_at(bytes, 16).ok_or(Malformed)?;
        let body_len = usize::try_from(body_len).map_err(|_| Malformed)?;
        let body = bytes.get(HEADER_LEN..).and_then(|rest| rest.get(..body_len)).ok_or(Malformed)?;
        let form = match form {
            0 => Form::Packed,
            1 => Form::Rows,
            _ => return Err(Malformed),
        };
        // A value takes at least one byte, so the count cannot exceed the number of bytes.
        let fits = count as usize <= body_len
            && (form == Form::Packed || u64::from(count) * u64::from(stride) == body_len as u64);
        if magic != MAGIC || !fits {
            return Err(Malformed);
        }
        Ok(Rows { form, count, stride: stride as usize, body })
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// The number of ranks of the job.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Maximum length of a value, which is the length of a row (bytes).
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All rows, `count * stride` bytes; `None` if the values are packed.
    pub fn array(&self) -> Option<&'a [u8]> {
        (self.form == Form::Rows).then_some(self.body)
    }

    /// A rank's row; `None` if the values are packed or the rank does not exist.
    pub fn row(&self, rank: u32) -> Option<&'a [u8]> {
        let rows = self.array().filter(|_| rank < self.count)?;
        rows.get(rank as usize * self.stride..)?.get(..self.stride)
    }

    /// Each rank's value in rank order; a row includes its padding, since a value may itself end in zeros. Stops after
    /// an error.
    pub fn values(&self) -> Values<'a> {
        Values { form: self.form, left: self.count, stride: self.stride, rest: self.body }
    }

    /// Copies all values into rows of `stride` bytes, NUL-padded, in one pass.
    ///
    /// # Errors
    /// The packed values are truncated, one is longer than `stride`, or `buffer` is not `count * stride` bytes long.
    pub fn fill(&self, buffer: &mut [u8], stride: usize) -> Result<(), Malformed> {
        if (self.count as usize).checked_mul(stride) != Some(buffer.len()) {
            return Err(Malformed);
        }
        if let Some(rows) = self.array().filter(|_| stride == self.stride) {
            buffer.copy_from_slice(rows);
            return Ok(());
        }
        let mut left = buffer;
        for value in self.values() {
            let (row, rest) = left.split_at_mut_checked(stride).ok_or(Malformed)?;
            let value = value?;
            let (head, padding) = row.split_at_mut_checked(value.len()).ok_or(Malformed)?;
            head.copy_from_slice(value);
            padding.fill(0);
            left = rest;
        }
        Ok(())
    }
}

/// The iterator that [`Rows::values`] returns.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    form: Form,
    left: u32,
    stride: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<&'a [u8], Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let split = match self.form {
            Form::Packed => split_first(self.rest).ok(),
            Form::Rows => self.rest.split_at_checked(self.stride),
        };
        let Some((value, rest)) = split else {
            self.left = 0;
            return Some(Err(Malformed));
        };
        self.rest = rest;
        Some(Ok(value))
    }
}

/// The contents of an array, so that its length is known before it is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    form: Form,
    count: u32,
    stride: u32,
    body_len: usize,
}

impl Layout {
    /// The layout of an array with `count` rows, one for each rank, of `stride` bytes each; `stride` is at least 1.
    pub fn rows(count: u32, stride: u32) -> Self {
        Layout { form: Form::Rows, count, stride, body_len: count as usize * stride as usize }
    }

    /// `count` values of at most `stride` bytes which take `body_len` bytes with their lengths: the sum of
    /// [`encoded_len`], or the length of the bytes received from all nodes.
    pub fn packed(count: u32, stride: u32, body_len: usize) -> Self {
        Layout { form: Form::Packed, count, stride, body_len }
    }

    /// Length of the array including its header.
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.body_len
    }

    /// Starts to write the array.
    ///
    /// # Panics
    /// If `out` is not [`total_len`](Self::total_len) bytes long.
    pub fn build(self, out: &mut [u8]) -> Builder<'_> {
        assert_eq!(out.len(), self.total_len(), "an array is built into a buffer of its length");
        let (header, body) = out.split_at_mut(HEADER_LEN);
        header.fill(0);
        for (index, number) in [MAGIC, self.form as u32, self.count, self.stride].into_iter().enumerate() {
            header[index * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        header[16..24].copy_from_slice(&(self.body_len as u64).to_le_bytes());
        Builder { layout: self, body, placed: 0, offset: 0 }
    }
}

/// An array being written: each rank's value once; rows in any order, packed values in rank order.
pub struct Builder<'a> {
    layout: Layout,
    body: &'a mut [u8],
    placed: u32,
    /// Offset of the next value, if the values are packed.
    offset: usize,
}

impl Builder<'_> {
    /// # Panics
    /// If the value is longer than the stride, the rank is not in the job, or packed values are out of order or do not
    /// fit: the exchange checks the data received from others.
    pub fn place(&mut self, rank: u32, value: &[u8]) {
        let stride = self.layout.stride as usize;
        assert!(value.len() <= stride && rank < self.layout.count, "a value must belong to this allgather");
        match self.layout.form {
            Form::Rows => {
                let (head, rest) = self.body[rank as usize * stride..][..stride].split_at_mut(value.len());
                head.copy_from_slice(value);
                rest.fill(0);
            }
            Form::Packed => {
                assert_eq!(rank, self.placed, "packed values must be placed in rank order");
                let (prefix, prefix_len) = prefix(value.len());
                let place = &mut self.body[self.offset..][..encoded_len(value.len())];
                place[..prefix_len].copy_from_slice(&prefix[..prefix_len]);
                place[prefix_len..].copy_from_slice(value);
                self.offset += place.len();
            }
        }
        self.placed += 1;
    }

    /// The values of the next ranks, concatenated (see [`values`](crate::values)).
    ///
    /// # Panics
    /// If a value is longer than the stride, the values do not fit, or the values are truncated.
    pub fn place_all(&mut self, bytes: &[u8]) {
        let values = values(bytes).map(|value| value.expect("the exchange has checked them"));
        if self.layout.form == Form::Rows {
            return values.for_each(|value| self.place(self.placed, value));
        }
        // Packed values are copied as received.
        for value in values {
            assert!(value.len() <= self.layout.stride as usize, "a value must belong to this allgather");
            self.placed += 1;
        }
        self.body[self.offset..][..bytes.len()].copy_from_slice(bytes);
        self.offset += bytes.len();
    }

    /// # Panics
    /// If ranks are missing, or the packed values are shorter than announced.
    pub fn finish(self) {
        assert_eq!(self.placed, self.layout.count, "an array holds a value of each rank");
        assert!(self.layout.form == Form::Rows || self.offset == self.body.len(), "packed values are missing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn rows(values: &[Vec<u8>], stride: u32, order: &[usize]) -> Vec<u8> {
        let layout = Layout::rows(values.len() as u32, stride);
        // The previous contents of the buffer do not matter.
        let mut out = vec![0xaa; layout.total_len()];
        let mut builder = layout.build(&mut out);
        order.iter().for_each(|rank| builder.place(*rank as u32, &values[*rank]));
        builder.finish();
        out
    }

    fn packed(values: &[Vec<u8>], stride: u32) -> Vec<u8> {
        let body_len = values.iter().map(|value| encoded_len(value.len())).sum();
        let layout = Layout::packed(values.len() as u32, stride, body_len);
        let mut out = vec![0xaa; layout.total_len()];
        let mut builder = layout.build(&mut out);
        values.iter().enumerate().for_each(|(rank, value)| builder.place(rank as u32, value));
        builder.finish();
        out
    }

    fn padded(values: &[Vec<u8>], stride: usize) -> Vec<u8> {
        values.iter().flat_map(|value| [&value[..], &vec![0; stride - value.len()]].concat()).collect()
    }

    fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let len = prop_oneof![4 => 0usize..20, 1 => 250usize..260];
        let value = (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
        proptest::collection::vec(value, 0..20)
    }

    proptest! {
        #[test]
        fn both_forms_give_the_same_rows(values in values(), seed in any::<u64>(), spare in 0usize..5) {
            let stride = 260;
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by_key(|rank| (*rank as u64 + 1).wrapping_mul(seed | 1));
            let (rows, packed) = (rows(&values, stride, &order), packed(&values, stride));
            let expected = padded(&values, stride as usize);
            for bytes in [&rows, &packed] {
                let read = Rows::read(bytes).unwrap();
                prop_assert_eq!((read.count() as usize, read.stride()), (values.len(), stride as usize));
                // Values may be copied into rows of a larger stride than their maximum length.
                for stride in [stride as usize, stride as usize + spare] {
                    let mut buffer = vec![0xbb; values.len() * stride];
                    read.fill(&mut buffer, stride).unwrap();
                    prop_assert_eq!(&buffer, &padded(&values, stride));
                }
                prop_assert_eq!(read.values().count(), values.len());
            }
            let read = Rows::read(&packed).unwrap();
            let expected_values = values.iter().map(|value| &value[..]).collect::<Vec<_>>();
            prop_assert_eq!(read.values().collect::<Result<Vec<_>, _>>().unwrap(), expected_values);
            prop_assert!(read.array().is_none() && read.row(0).is_none());
            let read = Rows::read(&rows).unwrap();
            for (rank, row) in expected.chunks(stride as usize).enumerate() {
                prop_assert_eq!(read.row(rank as u32), Some(row));
            }
            prop_assert_eq!(read.row(values.len() as u32), None);
        }
    }

    /// A change of the byte layout breaks clients that are older than their agent.
    #[test]
    fn the_byte_layout_is_fixed() {
        let values = [b"ab".to_vec(), Vec::new(), b"c".to_vec()];
        let bytes = rows(&values, 3, &[2, 0, 1]);
        assert_eq!(bytes[..24], *b"WAG1\x01\0\0\0\x03\0\0\0\x03\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(bytes[24..64], [0; 40]);
        assert_eq!(bytes[64..], *b"ab\0\0\0\0c\0\0");
        let bytes = packed(&values, 3);
        assert_eq!(bytes[..24], *b"WAG1\0\0\0\0\x03\0\0\0\x03\0\0\0\x06\0\0\0\0\0\0\0");
        assert_eq!(bytes[64..], *b"\x02ab\x00\x01c");
    }

    #[test]
    fn short_buffers_and_cut_off_bytes_are_errors() {
        let bytes = packed(&[b"abc".to_vec(), b"d".to_vec()], 3);
        let read = Rows::read(&bytes).unwrap();
        assert_eq!(read.fill(&mut [0; 4], 2), Err(Malformed), "a value is longer than the stride");
        assert_eq!(read.fill(&mut [0; 5], 3), Err(Malformed), "the buffer is too short");
        assert_eq!(Rows::read(&bytes[..bytes.len() - 1]).unwrap_err(), Malformed);
        assert_eq!(Rows::read(&bytes[..20]).unwrap_err(), Malformed);
    }

    #[test]
    #[should_panic(expected = "a value of each rank")]
    fn finishing_rows_without_every_rank_panics() {
        let layout = Layout::rows(2, 1);
        let mut out = vec![0; layout.total_len()];
        let mut builder = layout.build(&mut out);
        builder.place(0, b"a");
        builder.finish();
    }
}
