//! Files of variables: one `NAME=VALUE` per line, as shell assignments without expansion.
//!
//! `export` may precede a name, `#` begins a comment, quotes and backslashes work as in a shell; `$` and `` ` `` are
//! literal. What a shell would run as a command is an error.

use crate::bounded_file;
use std::path::Path;

/// Longest file: Linux accepts no larger environment.
const FILE_BYTES_MAX: u64 = 2 << 20;

const NAME: &str = "write NAME=VALUE, with a name of letters, digits and _";

/// All variables of a file, `NAME=VALUE`, in order.
pub fn read_file(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let file = path.display().to_string();
    let unreadable = |problem| format!("--env-file {file}: {problem}; is it a file of variables?");
    parse(&file, &bounded_file::read(path, FILE_BYTES_MAX).map_err(unreadable)?)
}

fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut variables = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let refused = |problem| format!("--env-file {file}, line {}: {problem}", index + 1);
        variables.push(assignment(line).map_err(refused)?);
    }
    Ok(variables)
}

fn assignment(line: &[u8]) -> Result<Vec<u8>, &'static str> {
    if line.contains(&0) {
        return Err("the line contains a zero byte; is this a text file?");
    }
    let exported = line.strip_prefix(b"export").filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace));
    let line = exported.map_or(line, <[u8]>::trim_ascii_start);
    let at = line.iter().position(|&byte| byte == b'=').ok_or(NAME)?;
    let name = &line[..at];
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || name[0].is_ascii_digit() || !name.iter().all(letter) {
        return Err(NAME);
    }
    let mut variable = line[..=at].to_vec();
    value(&mut variable, &line[at + 1..])?;
    Ok(variable)
}

/// Appends a value without its quotes, up to the first blank outside of quotes.
fn value(to: &mut Vec<u8>, text: &[u8]) -> Result<(), &'static str> {
    let mut quote = None;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (None, b'\\') => to.extend(bytes.next()),
            (Some(b'"'), b'\\') => match bytes.next_if(|next| b"\\\"$`".contains(next)) {
                Some(next) => to.push(next),
                None => to.push(b'\\'),
            },
            (None, byte) if byte.is_ascii_whitespace() => {
                let rest: Vec<u8> = bytes.collect();
                let problem = "unexpected text after the value; put a value that contains blanks into quotes";
                return if matches!(rest.trim_ascii_start(), [] | [b'#', ..]) { Ok(()) } else { Err(problem) };
            }
            (_, byte) => to.push(byte),
        }
    }
    if quote.is_some() { Err("a quote is not closed; close it on the same line") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Vec<String> {
        let variables = parse("vars", text.as_bytes()).expect(text);
        variables.into_iter().map(|variable| String::from_utf8(variable).expect("UTF-8")).collect()
    }

    fn refused(text: &str) -> String {
        parse("vars", text.as_bytes()).expect_err(text)
    }

    #[test]
    fn assignments_are_parsed_as_in_a_shell() {
        let text = "# all\n\nA=1\r\nexport B=two # said\n\tC='a b'\"c\\\"d\\n\"e\\ f\nD=\nE=$HOME`x`\nF=a#b\n\
                    G=\"# no\"\nH=x=y\nexported=1\nI='\\'";
        assert_eq!(
            parsed(text),
            ["A=1", "B=two", "C=a bc\"d\\ne f", "D=", "E=$HOME`x`", "F=a#b", "G=# no", "H=x=y", "exported=1", "I=\\"]
        );
    }

    #[test]
    fn env_file_errors_name_the_line() {
        let expected = "--env-file vars, line 2: write NAME=VALUE, with a name of letters, digits and _";
        assert_eq!(refused("A=1\nfoo bar\n"), expected);
        assert!(refused("A = 1").contains("line 1: write NAME=VALUE"));
        assert!(refused("1A=1").contains("write NAME=VALUE"));
        assert!(refused("export A").contains("write NAME=VALUE"));
        assert!(refused("A='x\n'").starts_with("--env-file vars, line 1: a quote is not closed"));
        assert!(refused("A=x y").contains("unexpected text after the value"));
        assert!(refused("A=\0").contains("a zero byte"));
        assert!(read_file(Path::new("/dev/zero")).expect_err("endless").contains("longer than 2 MiB"));
        let missing = read_file(Path::new("/no/such")).expect_err("no file");
        assert!(missing.starts_with("--env-file /no/such: "), "{missing}");
    }

    proptest! {
        #[test]
        fn single_quotes_keep_all_characters(value in "[ -&(-~]{0,40}") {
            prop_assert_eq!(parsed(&format!("A='{value}'")), [format!("A={value}")]);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(variables) = parse("vars", &bytes) {
                prop_assert!(variables.iter().all(|variable| variable.contains(&b'=') && !variable.contains(&0)));
            }
        }
    }
}
