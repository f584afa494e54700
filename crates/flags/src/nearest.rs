//! Finds the word that the user probably meant.

/// The candidate nearest to `typed`, if it is near enough: a prefix, or at most one third of the letters wrong. One
/// letter may be wrong in words of two letters, not in a word of one. With more than one wrong letter the first one
/// must be right: `version` is not `session`.
pub fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let begins_alike = |candidate: &str| typed.as_bytes().first() == candidate.as_bytes().first();
    let scored = candidates.map(|candidate| (score(typed, candidate), candidate));
    let scored = scored.filter(|&(score, candidate)| score <= 1 || begins_alike(candidate));
    let best = scored.min_by_key(|&(score, candidate)| (score, candidate.len().abs_diff(typed.len())));
    let is_near = |score: usize, len: usize| score <= (len / 3).max(1) && score < len;
    best.filter(|&(score, candidate)| is_near(score, typed.len().max(candidate.len()))).map(|(_, name)| name)
}

fn score(typed: &str, candidate: &str) -> usize {
    if typed.len() >= 3 && candidate.starts_with(typed) {
        return 1;
    }
    distance(typed.as_bytes(), candidate.as_bytes())
}

/// Edit distance of two words, where two swapped letters count as one edit.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, &a) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &b) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(a != b);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && a == right[column - 1] && left[row - 1] == b {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_distant_words_are_not() {
        let names = ["virtual-nodes", "verbose", "fanout", "ppn", "np", "label"];
        let find = |typed| nearest(typed, names.into_iter());
        assert_eq!(find("virtual-node"), Some("virtual-nodes"));
        assert_eq!(find("vnodes"), None);
        assert_eq!(find("virtual"), Some("virtual-nodes"));
        assert_eq!(find("fan-out"), Some("fanout"));
        assert_eq!(find("lable"), Some("label"));
        assert_eq!(find("pnp"), Some("ppn"));
        assert_eq!(find("frobnicate"), None);
        assert_eq!((nearest("3", ["1"].into_iter()), nearest("xp", ["np"].into_iter())), (None, Some("np")));
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
