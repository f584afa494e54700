//! Decimal numbers in texts of a launcher or a server.

use alloc::vec::Vec;

/// Parses a number, which may have blanks around it.
pub fn parse<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
    integer(text)?.try_into().ok()
}

fn integer(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        _ => (1, text),
    };
    let add = |sum: i64, digit: &u8| {
        let value = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(sign * value)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// A comma-separated list of numbers; `None` if an element is not a number.
pub fn list<T: TryFrom<i64>>(text: &[u8]) -> Option<Vec<T>> {
    text.split(|byte| *byte == b',').map(parse).collect()
}

/// Appends a number.
pub fn push(number: usize, out: &mut Vec<u8>) {
    if number > 9 {
        push(number / 10, out);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Appends a number to a list that commas separate.
pub fn push_item(number: usize, list: &mut Vec<u8>) {
    if !list.is_empty() {
        list.push(b',');
    }
    push(number, list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_as_text() {
        let mut text = Vec::new();
        push(1024, &mut text);
        assert_eq!(parse::<usize>(&text), Some(1024));
        push_item(7, &mut text);
        assert_eq!(text, b"1024,7");
    }

    #[test]
    fn only_numbers_in_range_are_parsed() {
        assert_eq!(parse::<u32>(b" 1024\n"), Some(1024));
        assert_eq!(parse::<i32>(b"-7"), Some(-7));
        assert_eq!(parse::<i64>(b"-9223372036854775808"), Some(i64::MIN));
        for text in [&b""[..], b" ", b"-", b"1 2", b"0x1", b"9223372036854775808", b"99999999999999999999"] {
            assert_eq!(parse::<i64>(text), None, "{}", text.escape_ascii());
        }
        assert_eq!((list(b"1, -2,3"), list::<i32>(b"1,,3")), (Some([1, -2, 3].into()), None));
        assert_eq!((parse::<u32>(b"-1"), parse::<u8>(b"256")), (None, None));
    }
}
