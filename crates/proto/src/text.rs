//! Prepares text from other processes for forwarding.

/// A prefix of `text`, at most `len_max` bytes, cut between two characters.
pub fn beginning(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A prefix of `text`, at most `len_max` bytes, with line breaks and control characters replaced by spaces.
pub fn line(text: &str, len_max: usize) -> String {
    let is_of_line = |letter: char| !letter.is_control() && !matches!(letter, '\u{2028}' | '\u{2029}');
    beginning(text, len_max).chars().map(|letter| if is_of_line(letter) { letter } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_letters_and_kept_on_one_line() {
        assert_eq!(beginning("für", 2), "f");
        assert_eq!(beginning("für", 3), "fü");
        assert_eq!(beginning("für", 9), "für");
        assert_eq!(line("a\nb\x1b[1m\u{2028}c", 99), "a b [1m c");
        assert_eq!(line("\u{85}\u{85}", 3), " ");
    }
}
