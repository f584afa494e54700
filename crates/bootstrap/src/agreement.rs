//! Agrees on the secret of the ranks' network where the job's server is not wireup's. Whoever reads the data on that
//! server does not learn the secret.
//!
//! Rank 0 makes the secret. It reaches the other ranks over a tree of degree [`ARITY`], in two exchanges by the server:
//! first of public keys (X25519, made for this job only), then of sealed keys. A rank and its parent share a key, which
//! both compute from the public keys (Diffie-Hellman). Rank 0 seals the secret for each of its children; any other
//! parent seals the key that it shares with its own parent. So a rank opens its parent's seal, with the key in it the
//! grandparent's seal for the parent, and so on up to the secret.
//!
//! ```text
//!   rank 0   seals for 2: secret             with key(0, 2)
//!   rank 2   seals for 9: key(0, 2)          with key(2, 9)
//!   rank 9   opens both, the lower one first
//! ```
//!
//! A rank publishes its public key and at most [`ARITY`] seals, and reads the public keys of its parent and its
//! children and the seals of the ranks above it, log P of them.
//!
//! Whoever only reads the exchanges learns nothing. Whoever can change them can replace the ranks' public keys by
//! others, and then learns the secret: the server is trusted to return what each rank has published.

use crate::error::Error;
use crate::network::proof::{SEAL_LEN, Secret};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::iter::successors;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Dh;
use wireup_wire::hex;
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::rank_address;

/// Number of children of a rank. Chosen: the seals for them fit into a value of any server.
const ARITY: u32 = 4;
const KEY_LEN: usize = 32;
const SEALED_LEN: usize = KEY_LEN + SEAL_LEN;
/// Label that is mixed into every key derived here, so that no other protocol derives the same one.
const PURPOSE: &[u8] = b"wireup agreement 1";

// Hexadecimal texts: in the first exchange a public key, a rank and its address with the transport's byte; in the
// second exchange the seals.
const _: () = assert!(2 * (KEY_LEN + 4 + 1 + rank_address::LEN_MAX) <= VALUE_LEN_MAX);
const _: () = assert!(2 * ARITY as usize * SEALED_LEN <= VALUE_LEN_MAX);

/// Publishes a text to all ranks, and returns the texts of the requested ranks. All ranks must call it equally often.
pub type Exchange<'a> = dyn FnMut(&[u8], &BTreeSet<u32>) -> Result<BTreeMap<u32, Vec<u8>>, Error> + 'a;

/// Returns the secret, and the bytes that each rank of `whose` has published in the first exchange (its argument
/// `told`).
///
/// # Errors
/// An exchange has failed, or a rank has published something malformed.
pub fn agree(
    (me, size): (u32, u32),
    told: &[u8],
    whose: &[u32],
    exchange: &mut Exchange<'_>,
) -> Result<(Secret, BTreeMap<u32, Vec<u8>>), Error> {
    let own = Keys::new(me)?;
    let above: Vec<u32> = successors(parent(me), |rank| parent(*rank)).collect();
    let below: Vec<u32> = children(me, size).collect();
    let mut all_told = BTreeMap::from([(me, told.to_vec())]);
    let mut up = random()?;
    if size == 1 {
        return Ok((up, all_told));
    }

    let wanted = above.first().into_iter().chain(&below).chain(whose).copied().filter(|rank| *rank != me).collect();
    let published = exchange(&hex::encode(&[&own.public[..], told].concat()), &wanted)?;
    let mut links = BTreeMap::new();
    for rank in wanted {
        let text = published.get(&rank).ok_or(Error::Mismatch)?;
        let bytes = hex::decode(text).ok_or(Error::Mismatch)?;
        let (public, told) = bytes.split_first_chunk().ok_or(Error::Mismatch)?;
        if above.first() == Some(&rank) || below.contains(&rank) {
            links.insert(rank, own.link(rank, public)?);
        }
        all_told.insert(rank, told.to_vec());
    }

    if let Some(parent) = above.first() {
        up = links[parent];
    }
    let sealed: Result<Vec<_>, Error> = below.iter().map(|child| seal(&links[child], &up)).collect();
    let published = exchange(&hex::encode(&sealed?.concat()), &above.iter().copied().collect())?;
    let (mut secret, mut child) = (up, me);
    for rank in above {
        let seals = published.get(&rank).and_then(|text| hex::decode(text)).ok_or(Error::Mismatch)?;
        let at = (child - 1) % ARITY;
        let sealed = seals.chunks(SEALED_LEN).nth(at as usize).ok_or(Error::Mismatch)?;
        (secret, child) = (open(&secret, sealed)?, rank);
    }
    Ok((secret, all_told))
}

fn parent(rank: u32) -> Option<u32> {
    Some(rank.checked_sub(1)? / ARITY)
}

fn children(rank: u32, size: u32) -> impl Iterator<Item = u32> {
    (1..=ARITY).map_while(move |nth| rank.checked_mul(ARITY)?.checked_add(nth)).filter(move |child| *child < size)
}

fn random() -> Result<Secret, Error> {
    let mut bytes = Secret::default();
    getrandom::fill(&mut bytes).map_err(|error| Error::System(error.raw_os_error().unwrap_or(0)))?;
    Ok(bytes)
}

struct Keys {
    rank: u32,
    private: Box<dyn Dh>,
    public: [u8; KEY_LEN],
}

impl Keys {
    fn new(rank: u32) -> Result<Keys, Error> {
        // This cannot fail: the algorithms are compiled into this library.
        let mut private = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(Error::System(0))?;
        private.set(&random()?);
        let public = private.pubkey().try_into().map_err(|_| Error::System(0))?;
        Ok(Keys { rank, private, public })
    }

    /// The key that this rank shares with another one.
    fn link(&self, other: u32, public: &[u8; KEY_LEN]) -> Result<Secret, Error> {
        let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).ok_or(Error::System(0))?;
        let (mut common, mut key) = ([0; KEY_LEN], Secret::default());
        self.private.dh(public, &mut common).map_err(|_| Error::Mismatch)?;
        let mut ends = [(self.rank, &self.public), (other, public)];
        ends.sort_unstable();
        let ends = ends.map(|(rank, public)| [&rank.to_le_bytes()[..], public].concat()).concat();
        hash.hmac(&common, &[PURPOSE, &ends].concat(), &mut key);
        Ok(key)
    }
}

/// Encrypts `content` with a fixed nonce, so each key must seal one content only.
fn seal(key: &Secret, content: &Secret) -> Result<Vec<u8>, Error> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).ok_or(Error::System(0))?;
    cipher.set(key);
    let mut sealed = vec![0; SEALED_LEN];
    let len = cipher.encrypt(0, &[], content, &mut sealed);
    sealed.truncate(len);
    Ok(sealed)
}

fn open(key: &Secret, sealed: &[u8]) -> Result<Secret, Error> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).ok_or(Error::System(0))?;
    cipher.set(key);
    let mut content = [0; SEALED_LEN];
    let len = cipher.decrypt(0, &[], sealed, &mut content).map_err(|_| Error::Mismatch)?;
    content[..len].try_into().map_err(|_| Error::Mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    /// The texts that an untrusted server sees: one map per exchange, from each rank to its text.
    type Seen = Vec<BTreeMap<u32, Vec<u8>>>;

    type Got = Result<(Secret, BTreeMap<u32, Vec<u8>>), Error>;

    /// Runs [`agree`] on all ranks over a server that changes texts with `change`. Returns each rank's result, and the
    /// texts that the server has seen.
    fn agreed(size: u32, change: fn(&mut Seen)) -> (Vec<Got>, Seen) {
        let (seen, barrier) = (Mutex::new(Seen::new()), Barrier::new(size as usize));
        let run = |me: u32| {
            let mut nth = 0;
            let mut exchange = |text: &[u8], wanted: &BTreeSet<u32>| {
                let mut all = seen.lock().unwrap();
                all.resize(nth + 1, BTreeMap::new());
                all[nth].insert(me, text.to_vec());
                drop(all);
                if barrier.wait().is_leader() {
                    change(&mut seen.lock().unwrap());
                }
                barrier.wait();
                nth += 1;
                let all = seen.lock().unwrap();
                Ok(wanted.iter().map(|rank| (*rank, all[nth - 1][rank].clone())).collect())
            };
            agree((me, size), &me.to_le_bytes(), &[(me + 1) % size], &mut exchange)
        };
        let results = thread::scope(|scope| {
            let run = &run;
            let ranks: Vec<_> = (0..size).map(|me| scope.spawn(move || run(me))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        (results, seen.into_inner().unwrap())
    }

    #[test]
    fn all_ranks_get_the_secret_and_whoever_reads_the_exchanges_does_not() {
        for size in [1, 2, 5, 6, 21, 22, 100] {
            let (results, seen) = agreed(size, |_| {});
            let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            let secret = results[0].0;
            for (me, (own, told)) in results.iter().enumerate() {
                let right = (me as u32 + 1) % size;
                assert_eq!((own, &told[&right][..]), (&secret, &right.to_le_bytes()[..]), "rank {me} of {size}");
            }
            let text = hex::encode(&secret);
            assert!(seen.iter().flat_map(BTreeMap::values).all(|one| !one.windows(text.len()).any(|at| at == text)));
        }
        let secrets = [0, 1].map(|_| agreed(2, |_| {}).0.remove(0).unwrap().0);
        assert_ne!(secrets[0], secrets[1], "each job has its own");
    }

    #[test]
    fn seals_that_were_changed_on_their_way_are_noticed() {
        let (results, _) = agreed(6, |seen| {
            if let Some(seals) = seen.get_mut(1).and_then(|exchange| exchange.get_mut(&0)) {
                seals[0] = if seals[0] == b'0' { b'1' } else { b'0' };
            }
        });
        // Rank 5 is a child of rank 1, whose seal was changed.
        let has_secret: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(has_secret, [true, false, true, true, true, false]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [&b"x"[..], b"00", b""] {
            let mut exchange = |_: &[u8], wanted: &BTreeSet<u32>| {
                Ok(wanted.iter().map(|rank| (*rank, text.to_vec())).collect::<BTreeMap<u32, Vec<u8>>>())
            };
            assert_eq!(agree((1, 3), &[], &[], &mut exchange).err(), Some(Error::Mismatch));
        }
    }

    #[test]
    fn numbers_of_children_do_not_overflow() {
        assert_eq!(children(u32::MAX / 2, u32::MAX).count(), 0);
    }
}
