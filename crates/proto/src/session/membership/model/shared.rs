//! A part of a state that most of its successor states share: it is copied when it changes, and hashed once.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

#[derive(Clone, Default)]
pub(super) struct Shared<T>(Arc<(T, OnceLock<u64>)>);

impl<T> Shared<T> {
    pub(super) fn new(of: T) -> Shared<T> {
        Shared(Arc::new((of, OnceLock::new())))
    }

    pub(super) fn edit(&mut self) -> &mut T
    where
        T: Clone,
    {
        let (of, hash) = Arc::make_mut(&mut self.0);
        hash.take();
        of
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hash = self.0.1.get_or_init(|| BuildHasherDefault::<DefaultHasher>::default().hash_one(&self.0.0));
        state.write_u64(*hash);
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
