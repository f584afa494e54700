//! The kvs of a process that no launcher started, and the names that it publishes: what it puts it may get.

use alloc::vec::Vec;

#[derive(Default)]
pub struct Local {
    /// The pairs, in the order of their first put.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    names: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What to do with a name.
#[derive(Clone, Copy)]
pub enum Wish<'a> {
    /// Publish the name with this port.
    Publish(&'a [u8]),
    LookUp,
    Unpublish,
}

impl Local {
    pub const fn new() -> Self {
        Local { pairs: Vec::new(), names: Vec::new() }
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        match self.pairs.iter_mut().find(|pair| pair.0 == key) {
            Some(pair) => pair.1 = value.to_vec(),
            None => self.pairs.push((key.to_vec(), value.to_vec())),
        }
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.iter().find(|pair| pair.0 == key).map(|pair| &pair.1[..])
    }

    /// Returns the name's port; `None`: it is taken, or there is no such name.
    pub fn name(&mut self, name: &[u8], wish: Wish<'_>) -> Option<Vec<u8>> {
        let at = self.names.iter().position(|pair| pair.0 == name);
        match (wish, at) {
            (Wish::Publish(_), Some(_)) => None,
            (Wish::Publish(port), None) => {
                self.names.push((name.to_vec(), port.to_vec()));
                Some(Vec::new())
            }
            (Wish::LookUp, at) => at.map(|at| self.names[at].1.clone()),
            (Wish::Unpublish, at) => at.map(|at| self.names.swap_remove(at).1),
        }
    }

    /// The pair at `index`, in the order of the first puts.
    pub fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.pairs.get(index).map(|pair| (&pair.0[..], &pair.1[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_put_of_a_key_wins() {
        let mut local = Local::new();
        local.put(b"a", b"1");
        local.put(b"b", b"2");
        local.put(b"a", b"3");
        assert_eq!((local.get(b"a"), local.get(b"c")), (Some(&b"3"[..]), None));
        assert_eq!((local.at(1), local.at(2)), (Some((&b"b"[..], &b"2"[..])), None));
    }

    #[test]
    fn a_name_is_published_once() {
        let mut local = Local::new();
        let mut publish = |name: &[u8], port: &[u8]| local.name(name, Wish::Publish(port)).is_some();
        assert!(publish(b"a", b"1") && publish(b"b", b"2") && !publish(b"a", b"3"));
        let port = |local: &mut Local, name: &[u8]| local.name(name, Wish::LookUp);
        assert_eq!((port(&mut local, b"a"), port(&mut local, b"c")), (Some(b"1".to_vec()), None));
        assert!(local.name(b"a", Wish::Unpublish).is_some() && local.name(b"a", Wish::Unpublish).is_none());
        assert_eq!((port(&mut local, b"a"), port(&mut local, b"b")), (None, Some(b"2".to_vec())));
        assert_eq!(local.get(b"b"), None);
    }
}
