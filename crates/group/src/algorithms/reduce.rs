//! Reductions: of the members up to this one, and of all members.

use super::{Algorithm, Broadcast, Outcome, Step};
use crate::message::Malformed;
use crate::reduce::Reduce;
use crate::shape::{Link, Shape, Side};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Combines the value of one or more members with the value of members further to the right.
pub trait Combine: Send {
    /// Combines two values that travel to the right.
    fn rightwards(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed>;

    /// Combines two values that travel to the left.
    fn leftwards(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed> {
        self.rightwards(left, right)
    }
}

impl Combine for Reduce {
    fn rightwards(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed> {
        self.combine(left, right)
    }
}

/// Combines the values of all members to the left, and of all to the right: in step d, values travel 2^d to both sides,
/// and not around the end of the ring. The order of the operands is that of the members.
pub struct Scan<C> {
    combine: C,
    power: usize,
    /// The combined values of the members on the left and of this member.
    pub up_to: Vec<u8>,
    /// The combined values of this member and of the members on the right.
    pub from: Vec<u8>,
    /// The combined values of the members on the left; `None`: there are none.
    pub before: Option<Vec<u8>>,
    /// The combined values of the members on the right; `None`: there are none.
    pub after: Option<Vec<u8>>,
}

impl<C: Combine> Scan<C> {
    pub fn new(combine: C, value: Vec<u8>) -> Self {
        Scan::with_both(combine, value.clone(), value)
    }

    /// Starts a scan with one value that travels to the right (`up_to`) and another that travels to the left (`from`).
    pub fn with_both(combine: C, up_to: Vec<u8>, from: Vec<u8>) -> Self {
        Scan { combine, power: 0, up_to, from, before: None, after: None }
    }

    pub fn next(&mut self, shape: &Shape) -> Option<Step> {
        let power = self.power;
        if power == shape.powers() {
            return None;
        }
        self.power += 1;
        let mut step = Step::default();
        for (link, value) in [(Link::right(power), &self.up_to), (Link::left(power), &self.from)] {
            if shape.is_inside(link) {
                step.sends.push((link, value.clone()));
                step.receives.push(link);
            }
        }
        Some(step)
    }

    pub fn on_message(&mut self, from: Link, value: &[u8]) -> Result<(), Malformed> {
        let Scan { combine, up_to, from: from_here, before, after, .. } = self;
        match from.side {
            Side::Left => {
                *up_to = combine.rightwards(value, up_to)?;
                *before = Some(before.as_ref().map_or(Ok(value.to_vec()), |before| combine.rightwards(value, before))?);
            }
            Side::Right => {
                *from_here = combine.leftwards(from_here, value)?;
                *after = Some(after.as_ref().map_or(Ok(value.to_vec()), |after| combine.leftwards(after, value))?);
            }
        }
        Ok(())
    }
}

/// A prefix reduction: combines the values up to this member (`MPI_Scan`), or of those before it (`MPI_Exscan`).
pub struct Prefix {
    scan: Scan<Reduce>,
    is_exclusive: bool,
}

impl Prefix {
    pub fn new(reduce: Reduce, value: Vec<u8>, is_exclusive: bool) -> Prefix {
        Prefix { scan: Scan::new(reduce, value), is_exclusive }
    }
}

impl Algorithm for Prefix {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let mut step = self.scan.next(shape);
        if let Some(step) = &mut step {
            // A prefix needs no values from members on the right.
            step.sends.retain(|(link, _)| link.side == Side::Right);
            step.receives.retain(|link| link.side == Side::Left);
        }
        Ok(step)
    }

    fn on_message(&mut self, _: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        self.scan.on_message(from, payload)
    }

    fn outcome(self: Box<Self>) -> Outcome {
        let Scan { up_to, before, .. } = self.scan;
        Outcome::Bytes(if self.is_exclusive { before.unwrap_or_default() } else { up_to })
    }
}

/// Combines the values of all members; every member gets the same bits.
///
/// Where rounding cannot make the order matter: the values to the left, the own value and the values to the right, from
/// one scan in both directions (S2), `log P` steps. Sums of floating-point numbers depend on the bracketing, so they
/// are formed towards member 0 along a binomial tree and then broadcast, `2 log P` steps.
pub enum Allreduce {
    Both { reduce: Reduce, scan: Scan<Reduce> },
    Up { reduce: Reduce, value: Vec<u8>, power: usize },
    Down(Broadcast),
}

impl Allreduce {
    pub fn new(reduce: Reduce, value: Vec<u8>) -> Allreduce {
        if reduce.is_exact() {
            Allreduce::Both { reduce, scan: Scan::new(reduce, value) }
        } else {
            Allreduce::Up { reduce, value, power: 0 }
        }
    }
}

impl Algorithm for Allreduce {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        match self {
            Allreduce::Both { scan, .. } => Ok(scan.next(shape)),
            Allreduce::Up { value, power, .. } => {
                while *power < shape.powers() {
                    let link = *power;
                    *power += 1;
                    if shape.me & 1 << link != 0 {
                        *power = shape.powers();
                        return Ok(Some(Step { sends: vec![(Link::left(link), value.clone())], receives: Vec::new() }));
                    }
                    if shape.is_inside(Link::right(link)) {
                        return Ok(Some(Step { sends: Vec::new(), receives: vec![Link::right(link)] }));
                    }
                }
                *self = Allreduce::Down(Broadcast::new(0, core::mem::take(value)));
                self.next(shape)
            }
            Allreduce::Down(broadcast) => broadcast.next(shape),
        }
    }

    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        match self {
            Allreduce::Both { scan, .. } => scan.on_message(from, payload),
            Allreduce::Up { reduce, value, .. } => {
                *value = reduce.combine(value, payload)?;
                Ok(())
            }
            Allreduce::Down(broadcast) => broadcast.on_message(shape, from, payload),
        }
    }

    fn outcome(self: Box<Self>) -> Outcome {
        match *self {
            Allreduce::Both { reduce, scan: Scan { up_to, after, .. } } => {
                let all = after.map(|after| reduce.combine(&up_to, &after));
                // Both vectors have the length of this member's own value, because a message of another length was
                // refused.
                Outcome::Bytes(all.and_then(Result::ok).unwrap_or(up_to))
            }
            Allreduce::Up { value, .. } => Outcome::Bytes(value),
            Allreduce::Down(broadcast) => Box::new(broadcast).outcome(),
        }
    }
}
