//! The arithmetic of reductions: number types and operations.

use crate::message::Malformed;
use alloc::vec::Vec;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    U64,
    I64,
    F64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Sum,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduce {
    pub number: Number,
    pub op: Op,
}

impl Reduce {
    /// Whether the result is independent of how the operands are bracketed, which floating-point sums are not.
    pub fn is_exact(self) -> bool {
        !matches!((self.number, self.op), (Number::F64, Op::Sum))
    }

    /// Whether the operation exists for this type of number: floating-point numbers have no bitwise operations.
    pub fn is_defined(self) -> bool {
        self.number != Number::F64 || matches!(self.op, Op::Sum | Op::Min | Op::Max)
    }

    /// Combines two vectors of numbers (8 bytes each, native byte order); `left` belongs to the members further left.
    pub fn combine(self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed> {
        let ((left, []), (right, [])) = (left.as_chunks::<8>(), right.as_chunks::<8>()) else { return Err(Malformed) };
        if left.len() != right.len() {
            return Err(Malformed);
        }
        Ok(left.iter().zip(right).flat_map(|(left, right)| self.one(*left, *right)).collect())
    }

    fn one(self, left: [u8; 8], right: [u8; 8]) -> [u8; 8] {
        match self.number {
            Number::U64 => {
                let (a, b) = (u64::from_ne_bytes(left), u64::from_ne_bytes(right));
                let result = match self.op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::And => a & b,
                    Op::Or => a | b,
                    Op::Xor => a ^ b,
                };
                result.to_ne_bytes()
            }
            Number::I64 if matches!(self.op, Op::Min | Op::Max) => {
                let (a, b) = (i64::from_ne_bytes(left), i64::from_ne_bytes(right));
                if self.op == Op::Min { a.min(b) } else { a.max(b) }.to_ne_bytes()
            }
            // The other operations on signed numbers give the same bits as on unsigned ones.
            Number::I64 => Reduce { number: Number::U64, ..self }.one(left, right),
            Number::F64 => {
                let (a, b) = (f64::from_ne_bytes(left), f64::from_ne_bytes(right));
                let result = match self.op {
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Sum | Op::And | Op::Or | Op::Xor => a + b,
                };
                result.to_ne_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combine<const N: usize>(number: Number, op: Op, left: [[u8; 8]; N], right: [[u8; 8]; N]) -> Vec<u8> {
        Reduce { number, op }.combine(left.as_flattened(), right.as_flattened()).unwrap()
    }

    #[test]
    fn numbers_are_combined_by_kind() {
        let (minus, five) = ((-3i64).to_ne_bytes(), 5i64.to_ne_bytes());
        assert_eq!(combine(Number::I64, Op::Min, [minus], [five]), minus);
        assert_eq!(combine(Number::U64, Op::Min, [minus], [five]), five);
        assert_eq!(
            combine(Number::I64, Op::Sum, [minus, five], [five, five]),
            [2i64, 10].map(i64::to_ne_bytes).as_flattened()
        );
        assert_eq!(combine(Number::F64, Op::Sum, [0.5f64.to_ne_bytes()], [1f64.to_ne_bytes()]), 1.5f64.to_ne_bytes());
        assert_eq!(combine(Number::U64, Op::Xor, [6u64.to_ne_bytes()], [3u64.to_ne_bytes()]), 5u64.to_ne_bytes());
        assert_eq!(Reduce { number: Number::U64, op: Op::Sum }.combine(&[0; 8], &[0; 16]), Err(Malformed));
        assert!(!Reduce { number: Number::F64, op: Op::Sum }.is_exact());
        assert!(!Reduce { number: Number::F64, op: Op::And }.is_defined());
    }
}
