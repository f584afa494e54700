//! Decimal numbers in texts of a launcher or a server.

/// A number with blanks around it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_range_and_nothing_else() {
        assert_eq!(parse::<u32>(b" 1024\n"), Some(1024));
        assert_eq!(parse::<i32>(b"-7"), Some(-7));
        assert_eq!(parse::<i64>(b"-9223372036854775808"), Some(i64::MIN));
        for text in [&b""[..], b" ", b"-", b"1 2", b"0x1", b"9223372036854775808", b"99999999999999999999"] {
            assert_eq!(parse::<i64>(text), None, "{}", text.escape_ascii());
        }
        assert_eq!((parse::<u32>(b"-1"), parse::<u8>(b"256")), (None, None));
    }
}
