//! The formats that a rank reads in its agent's memory. Their header contains the length, which random bytes rarely
//! match: so each input is read as it is, and once more with a matching header.

use wireup_wire::blob::Pair;
use wireup_wire::shared::rows::{Form, Rows};
use wireup_wire::shared::segment::{Layout, Segment};

/// Pairs with their index: a listed pair can be looked up, unless another pair with the same key is found first, and a
/// segment built from the pairs gives the same answers.
pub fn segment(input: &[u8]) {
    pairs_are_found(input);
    let Some((&slots, body)) = input.split_first() else { return };
    let slots = u32::from(slots).min(body.len() as u32 / 4);
    let blob_len = body.len() as u32 - slots * 4;
    pairs_are_found(&with_header(b"WKV1", &[slots, slots, blob_len, 0, 0, 0, 0], body));
}

fn pairs_are_found(bytes: &[u8]) {
    let Ok(segment) = Segment::read(bytes) else { return };
    let pairs: Vec<Pair<'_>> = segment.pairs().collect();
    let mut layout = Layout::default();
    for pair in &pairs {
        // Slots may point into each other's pairs, so that the same bytes are counted several times.
        if layout.add(*pair).is_err() {
            return;
        }
        let _ = segment.get(pair.key);
        let longer = [pair.key, b"?"].concat();
        assert!(segment.get(&longer).is_none() || pairs.iter().any(|pair| pair.key == longer));
    }
    let mut again = vec![0; layout.total_len()];
    layout.build(&mut again, pairs.iter().copied());
    let again = Segment::read(&again).expect("what is built can be read");
    for (at, pair) in pairs.iter().enumerate() {
        if pairs[at + 1..].iter().all(|later| later.key != pair.key) {
            assert_eq!(again.get(pair.key), Some(pair.value));
        }
    }
}

/// The array of an allgather: rows and packed values yield as many values as the header says, or an error.
pub fn rows(input: &[u8]) {
    values_are_counted(input);
    let [form, count, stride, body @ ..] = input else { return };
    let form = u32::from(form % 2);
    let count = if form == Form::Rows as u32 { body.len() as u32 / u32::from(*stride).max(1) } else { (*count).into() };
    let body = if form == Form::Rows as u32 { &body[..(count * u32::from(*stride)) as usize] } else { body };
    let header = [form, count, (*stride).into(), body.len() as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    values_are_counted(&with_header(b"WAG1", &header, body));
}

fn values_are_counted(bytes: &[u8]) {
    let Ok(rows) = Rows::read(bytes) else { return };
    let values: Vec<_> = rows.values().collect();
    let whole = values.iter().all(Result::is_ok);
    assert!(if whole { values.len() as u32 == rows.count() } else { values.last().is_some_and(Result::is_err) });
    let fits = values.iter().flatten().all(|value| value.len() <= rows.stride());
    let Some(len) = (rows.count() as usize).checked_mul(rows.stride()).filter(|len| *len < 1 << 20) else { return };
    let mut buffer = vec![0xaa; len];
    let filled = rows.fill(&mut buffer, rows.stride());
    assert_eq!(filled.is_ok(), whole && fits);
    for (rank, row) in buffer.chunks(rows.stride().max(1)).enumerate().filter(|_| filled.is_ok()) {
        let value = values[rank].expect("the values were counted");
        assert!(row.starts_with(value) && row[value.len()..].iter().all(|byte| *byte == 0));
        assert!(rows.row(rank as u32).is_none_or(|own| own == row));
    }
}

fn with_header(magic: &[u8], numbers: &[u32], body: &[u8]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    magic.iter().copied().chain(numbers).chain(body.iter().copied()).collect()
}
