use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wireup_wire::ids::JobId;

impl Kvs {
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        blob::push(&mut self.pending, key, value);
    }
}

/// An operation of a job on its kvs.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Fence,
    Get(Vec<u8>),
    Map,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || proptest::collection::vec(b'a'..=b'd', 1..4);
    let step = prop_oneof![
        6 => (key(), proptest::collection::vec(any::<u8>(), 0..30)).prop_map(|(key, value)| Step::Put(key, value)),
        3 => Just(Step::Fence),
        2 => key().prop_map(Step::Get),
        2 => Just(Step::Map),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A rank that reads segments itself.
struct Client {
    segments: Vec<(u32, Bytes)>,
    shares: Shares,
}

impl Default for Client {
    fn default() -> Self {
        Client { segments: Vec::new(), shares: Shares::new(JobId(1)) }
    }
}

impl Client {
    fn map(&mut self, kvs: &mut Kvs) {
        let have: Vec<u32> = self.segments.iter().map(|(end, _)| *end).collect();
        let mapping = kvs.map(&have, &mut self.shares).unwrap();
        self.segments.truncate(mapping.keep as usize);
        self.segments.extend(mapping.fresh.iter().map(|(end, share)| match self.shares.content(*share) {
            Content::Bytes(bytes) => (*end, bytes.clone()),
            content => panic!("a segment is bytes, not {content:?}"),
        }));
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.segments.iter().rev().find_map(|(_, shared)| Segment::read(shared).unwrap().get(key))
    }

    /// Checks that each segment is more than twice as large as the next.
    fn check_sizes(&self) {
        let sizes: Vec<usize> =
            self.segments.iter().map(|(_, shared)| Segment::read(shared).unwrap().blob_len()).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] > 2 * pair[1]), "{sizes:?}");
        assert!(sizes.len() <= 31);
    }
}

fn fence(kvs: &mut Kvs) {
    let blob = kvs.take_pending();
    kvs.commit(vec![blob]).unwrap();
}

#[test]
fn the_memory_of_pairs_is_counted() {
    let mut kvs = Kvs::default();
    let mut exchange = || {
        kvs.put(b"key", &[b'x'; 100]);
        fence(&mut kvs);
        let committed = kvs.memory;
        assert!(kvs.get(b"key").unwrap().is_some());
        let segment_bytes = kvs.segments[0].bytes.len() as u64;
        ([committed, kvs.memory].map(|memory| (memory.written_bytes, memory.peak_bytes)), segment_bytes)
    };
    let ([committed, indexed], segment) = exchange();
    assert_eq!((committed, indexed), ((106, 106), (106 + segment, 106 + segment)));
    // The new segment replaces the old one, which exists until then.
    let ([committed, indexed], _) = exchange();
    assert_eq!((committed, indexed), ((212 + segment, 106 + segment), (212 + 2 * segment, 106 + 2 * segment)));
}

proptest! {
    #[test]
    fn agent_and_client_answer_like_a_map(steps in steps()) {
        let (mut kvs, mut client) = (Kvs::default(), Client::default());
        let (mut put, mut published) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    kvs.put(&key, &value);
                    put.insert(key, value);
                }
                Step::Fence => {
                    let before = kvs.version;
                    prop_assert_eq!(kvs.pending.is_empty(), put.is_empty());
                    fence(&mut kvs);
                    prop_assert_eq!(kvs.version, before + u32::from(!put.is_empty()));
                    published.append(&mut put);
                }
                Step::Get(key) => prop_assert_eq!(kvs.get(&key), Ok(published.get(&key).map(|value| &value[..]))),
                Step::Map => {
                    client.map(&mut kvs);
                    client.check_sizes();
                    for (key, value) in &published {
                        prop_assert_eq!(client.get(key), Some(&value[..]));
                        prop_assert_eq!(kvs.get(key), Ok(Some(&value[..])));
                    }
                    prop_assert_eq!(client.get(b"missing"), None);
                }
            }
        }
    }

    #[test]
    fn a_truncated_blob_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 1..60)) {
        let mut kvs = Kvs::default();
        kvs.commit(vec![Bytes::from(bytes.clone())]).unwrap();
        let whole = (0..bytes.len()).try_fold(0, |offset, _| {
            Ok::<_, blob::Truncated>(blob::pair_at(&bytes, offset)?.map_or(offset, |(_, next)| next))
        });
        prop_assert_eq!(kvs.get(b"k").is_err(), whole.is_err());
    }
}

#[test]
fn a_put_is_not_seen_before_its_commit() {
    let mut kvs = Kvs::default();
    kvs.put(b"k", b"v");
    assert_eq!(kvs.get(b"k"), Ok(None));
}

#[test]
fn segments_stay_few_and_a_client_fetches_little() {
    let (mut kvs, mut client) = (Kvs::default(), Client::default());
    let mut fetched = 0;
    for round in 0..1000 {
        kvs.put(format!("key-{round}").as_bytes(), b"value");
        fence(&mut kvs);
        let before = client.segments.clone();
        client.map(&mut kvs);
        client.check_sizes();
        fetched += client.segments.iter().filter(|segment| !before.contains(segment)).count();
        assert!(client.segments.len() <= 10, "{} segments of {round} pairs", client.segments.len());
    }
    assert_eq!(fetched, 1000, "one new segment per round");
}

#[test]
fn putting_the_same_keys_again_does_not_grow_segments() {
    let (mut kvs, mut client) = (Kvs::default(), Client::default());
    for round in 0..100 {
        for rank in 0..100 {
            kvs.put(format!("key-{rank}").as_bytes(), format!("{round:4}").as_bytes());
        }
        fence(&mut kvs);
        client.map(&mut kvs);
        let held: usize = client.segments.iter().map(|(_, shared)| shared.len()).sum();
        assert!(held < 100 * (3 + 6 + 4 + 6) + 36, "{held} bytes in round {round}");
        assert_eq!(client.get(b"key-7"), Some(format!("{round:4}").as_bytes()));
    }
}

#[test]
fn collected_pairs_that_are_never_read_are_bounded() {
    let mut kvs = Kvs::default();
    for round in 0..100u32 {
        for rank in 0..200 {
            kvs.put(format!("key-{rank}").as_bytes(), &[round as u8; 1024]);
        }
        fence(&mut kvs);
        let indexed: usize = kvs.segments.iter().map(|segment| segment.bytes.len()).sum();
        let held = indexed + kvs.collected.iter().map(Bytes::len).sum::<usize>();
        assert!(held < 2 * COLLECTED_BYTES_MAX, "{held} bytes in round {round}");
    }
    assert_eq!(kvs.get(b"key-7"), Ok(Some(&[99; 1024][..])));
    assert_eq!(kvs.version, 100);
}

#[test]
fn memory_is_requested_once_and_released_when_its_segment_is_merged() {
    let (mut kvs, mut shares) = (Kvs::default(), Shares::new(JobId(1)));
    let put = |kvs: &mut Kvs, key: &str, len: usize| {
        kvs.put(key.as_bytes(), &vec![b'x'; len]);
        fence(kvs);
    };
    let mut mapped = |kvs: &mut Kvs| -> Vec<ShareId> {
        kvs.map(&[], &mut shares).unwrap().fresh.into_iter().map(|(_, share)| share).collect()
    };
    put(&mut kvs, "large", 1000);
    let large = mapped(&mut kvs);
    put(&mut kvs, "small", 10);
    let both = mapped(&mut kvs);
    assert_eq!((&both[..1], mapped(&mut kvs)), (&large[..], both.clone()), "all clients get the same memory");
    assert_eq!(kvs.merged.drain(..).count(), 0);
    put(&mut kvs, "another", 10);
    let merged = mapped(&mut kvs);
    assert_eq!((&merged[..1], merged.len()), (&large[..], 2));
    assert_eq!(kvs.merged.drain(..).collect::<Vec<_>>(), both[1..]);
    put(&mut kvs, "not mapped", 10);
    assert!(kvs.get(b"small").unwrap().is_some());
    assert_eq!(kvs.merged.drain(..).collect::<Vec<_>>(), merged[1..], "a look-up also merges");
}

/// All pairs, as a client reads them by number.
fn walk(kvs: &mut Kvs) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut met, mut number) = (BTreeMap::new(), 0);
    while let Some((pair, next)) = kvs.at(number).unwrap() {
        let again = met.insert(pair.key.to_vec(), pair.value.to_vec());
        assert!(again.is_none() && next > number, "each pair is visited once");
        number = next;
    }
    met
}

proptest! {
    #[test]
    fn an_iteration_visits_every_pair_once(steps in steps()) {
        let (mut kvs, mut put, mut published) = (Kvs::default(), BTreeMap::new(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    kvs.put(&key, &value);
                    put.insert(key, value);
                }
                Step::Fence => {
                    fence(&mut kvs);
                    published.append(&mut put);
                }
                Step::Get(_) | Step::Map => prop_assert_eq!(&walk(&mut kvs), &published),
            }
        }
    }
}

#[test]
fn a_mark_advances_past_the_pairs_that_were_read() {
    let (mut kvs, mut mark, mut other) = (Kvs::default(), Mark::default(), Mark::default());
    let one = |key: &[u8]| {
        let mut blob = Vec::new();
        blob::push(&mut blob, key, b"v");
        blob
    };
    kvs.put(b"a", b"v");
    assert_eq!(kvs.pending_since(&mut mark), one(b"a"));
    kvs.put(b"b", b"v");
    assert_eq!(kvs.pending_since(&mut mark), one(b"b"));
    assert_eq!(kvs.pending_since(&mut mark), Bytes::new());
    assert_eq!(kvs.pending_since(&mut other), [one(b"a"), one(b"b")].concat());
    assert_eq!(kvs.take_pending(), [one(b"a"), one(b"b")].concat(), "the fence takes all pairs");
    kvs.put(b"c", b"v");
    assert_eq!(kvs.pending_since(&mut mark), one(b"c"));
}

/// Overwritten puts are dropped even if no fence ever takes the puts, as in a program that only uses groups.
#[test]
fn overwritten_puts_are_dropped() {
    let (mut kvs, mut mark) = (Kvs::default(), Mark::default());
    for round in 0..10_000u32 {
        for key in [b"a", b"b"] {
            kvs.put(key, &round.to_le_bytes().repeat(50));
        }
        let pairs = kvs.pending_since(&mut mark);
        kvs.commit(vec![pairs]).unwrap();
        assert!(kvs.pending.len() < 2 * PENDING_KEPT_BYTES + 1000, "{} bytes", kvs.pending.len());
    }
    assert_eq!(kvs.get(b"b"), Ok(Some(&9999u32.to_le_bytes().repeat(50)[..])));
    let last = kvs.take_pending();
    fence(&mut kvs);
    kvs.commit(vec![last]).unwrap();
    assert_eq!(kvs.get(b"a"), Ok(Some(&9999u32.to_le_bytes().repeat(50)[..])));
}

#[test]
fn pairs_beyond_the_ceiling_are_refused_and_overwritten_ones_make_room() {
    let mut kvs = Kvs { bytes_max: 2_000, ..Kvs::default() };
    let mut fence = |key: u8| {
        kvs.put(&[key], &[key; 500]);
        let pairs = kvs.take_pending();
        kvs.commit(vec![pairs])
    };
    assert!((0..50).all(|_| fence(b'a').is_ok()));
    let results: Vec<_> = (b'b'..b'g').map(&mut fence).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(full()), Err(full()), Err(full())]);
    assert_eq!(kvs.get(b"c"), Ok(Some(&[b'c'; 500][..])), "the earlier ones stay");
}
