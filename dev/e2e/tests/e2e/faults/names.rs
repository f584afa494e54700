//! Recognizes host names in messages.

/// Whether a text names a node, alone or in a range.
pub fn names(text: &str, node: u16) -> bool {
    let plain = format!("n{node}");
    let words = || text.split(|c: char| !(c.is_ascii_alphanumeric() || "[]-,".contains(c)));
    let in_range = |list: &str| {
        list.split(',').any(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            matches!((low.parse::<u16>(), high.parse::<u16>()), (Ok(low), Ok(high)) if (low..=high).contains(&node))
        })
    };
    let ranges = |word: &str| word.split("n[").skip(1).filter_map(|rest| rest.split(']').next()).any(in_range);
    words().any(|word| word.split(',').any(|part| part == plain) || ranges(word))
}

#[test]
fn host_names_and_ranges_are_found_in_messages() {
    assert!(names("wireup: node n3: the link", 3) && names("n[1-3]: refused", 2) && names("on n[0,4-5]:", 5));
    assert!(!names("node n30: x", 3) && !names("n[1-3]", 4));
}
