//! The kvs of a process that no launcher started: what it puts it may get.

use alloc::vec::Vec;

#[derive(Default)]
pub struct Local {
    /// In the order of their first put.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Local {
    pub const fn new() -> Self {
        Local { pairs: Vec::new() }
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

    /// The pair of that number.
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
}
