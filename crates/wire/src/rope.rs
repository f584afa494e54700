//! A byte string in several pieces: a list of shared slices, copied only when one contiguous piece is needed.
//!
//! ```text
//!   rope ─┬─ slice "ab"               nested ropes are shared: a part that one collective forwards
//!         └─ rope ─┬─ slice "c"       in many messages is listed once
//!                  └─ slice "def"
//! ```
//!
//! Cost: a clone increments a reference count; joining ropes takes one allocation for their list; [`Rope::into_bytes`]
//! copies each byte once, or none if there is one slice.

use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::{fmt, slice};

#[derive(Clone, Default)]
pub struct Rope {
    len: usize,
    node: Node,
}

#[derive(Clone)]
enum Node {
    Slice(Bytes),
    /// At least two ropes, none of them empty.
    List(Arc<[Rope]>),
}

impl Default for Node {
    fn default() -> Self {
        Node::Slice(Bytes::new())
    }
}

impl Rope {
    pub fn join(parts: impl IntoIterator<Item = Rope>) -> Rope {
        let mut parts: Vec<Rope> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.len() <= 1 {
            return parts.pop().unwrap_or_default();
        }
        Rope { len: parts.iter().map(Rope::len).sum(), node: Node::List(parts.into()) }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `len` bytes; all bytes if there are fewer.
    pub fn prefix(&self, len: usize) -> Rope {
        if len >= self.len {
            return self.clone();
        }
        match &self.node {
            Node::Slice(bytes) => bytes.slice(..len).into(),
            Node::List(parts) => {
                let mut left = len;
                Rope::join(parts.iter().map_while(|part| {
                    let prefix = (left > 0).then(|| part.prefix(left))?;
                    left -= prefix.len();
                    Some(prefix)
                }))
            }
        }
    }

    /// The slices in order, none of them empty.
    pub fn slices(&self) -> Slices<'_> {
        Slices { next: slice::from_ref(self).iter(), above: Vec::new() }
    }

    /// All bytes in one piece; copies them only if there are several slices.
    pub fn into_bytes(self) -> Bytes {
        if let Node::Slice(bytes) = self.node {
            return bytes;
        }
        let mut joined = BytesMut::with_capacity(self.len);
        self.slices().for_each(|slice| joined.extend_from_slice(slice));
        joined.freeze()
    }
}

/// The iterator that [`Rope::slices`] returns.
pub struct Slices<'a> {
    next: slice::Iter<'a, Rope>,
    /// The remaining items of the enclosing lists, the outermost first.
    above: Vec<slice::Iter<'a, Rope>>,
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a Bytes;

    fn next(&mut self) -> Option<&'a Bytes> {
        loop {
            match self.next.next().map(|rope| &rope.node) {
                Some(Node::Slice(bytes)) if bytes.is_empty() => {}
                Some(Node::Slice(bytes)) => return Some(bytes),
                Some(Node::List(parts)) => self.above.push(core::mem::replace(&mut self.next, parts.iter())),
                None => self.next = self.above.pop()?,
            }
        }
    }
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        Rope { len: bytes.len(), node: Node::Slice(bytes) }
    }
}

/// Compares the bytes, however they are split.
impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |rope: &Rope| rope.clone().into_bytes();
        self.len == other.len && bytes(self) == bytes(other)
    }
}

impl Eq for Rope {}

impl fmt::Debug for Rope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slices()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rope(text: &'static str) -> Rope {
        Bytes::from_static(text.as_bytes()).into()
    }

    #[test]
    fn a_single_slice_is_not_copied() {
        let bytes = Bytes::from_static(b"abc");
        let joined = Rope::join([Rope::default(), bytes.clone().into(), rope("")]);
        assert_eq!(joined.into_bytes().as_ptr(), bytes.as_ptr());
        assert_eq!(Rope::default().slices().count(), 0);
    }

    #[test]
    fn nested_ropes_share_their_slices() {
        let inner = Rope::join([rope("ab"), rope("c")]);
        let outer = Rope::join([inner.clone(), rope("d"), inner.clone()]);
        let places = |rope: &Rope| rope.slices().map(|slice| slice.as_ptr()).collect::<Vec<_>>();
        assert_eq!((outer.len(), &outer.clone().into_bytes()[..]), (7, &b"abcdabc"[..]));
        assert_eq!(places(&outer)[..2], places(&inner));
        assert_eq!(places(&outer)[3..], places(&inner));
    }

    /// Nested ropes built from one list of sizes.
    fn nested(sizes: &[usize], fill: &mut u8) -> Rope {
        match sizes {
            [] => Rope::default(),
            [size] => {
                *fill = fill.wrapping_add(1);
                Bytes::from(alloc::vec![*fill; *size]).into()
            }
            _ => {
                let (left, right) = sizes.split_at(sizes.len() / 2);
                Rope::join([nested(left, fill), nested(right, fill)])
            }
        }
    }

    proptest! {
        #[test]
        fn a_ropes_prefix_equals_the_prefix_of_its_bytes(
            sizes in proptest::collection::vec(0usize..9, 0..20),
            cut in 0usize..100,
        ) {
            let rope = nested(&sizes, &mut 0);
            let whole = rope.clone().into_bytes();
            prop_assert_eq!(rope.len(), whole.len());
            prop_assert_eq!(&rope, &Rope::from(whole.clone()));
            let cut = cut.min(whole.len());
            let prefix = rope.prefix(cut);
            prop_assert_eq!(prefix.len(), cut);
            let slices = |rope: &Rope| rope.slices().map(|slice| slice.as_ptr()).collect::<Vec<_>>();
            prop_assert!(slices(&rope).starts_with(&slices(&prefix)));
            prop_assert_eq!(prefix.into_bytes(), whole.slice(..cut));
        }
    }
}
