//! The error that a rank wrote before it exited, in the format of torch's `@record`.

use super::one_line;
use serde_json::Value;
use wireup_wire::peer::RankError;

/// Lines of a traceback that are shown: the last ones, next to the error itself.
const LINES_SHOWN: usize = 64;

/// A line that names the rank, then its traceback.
pub fn lines(error: &RankError) -> Vec<String> {
    let RankError { rank, host, text, .. } = error;
    let text = description(text);
    let all: Vec<&str> = text.trim_end().lines().collect();
    let (omitted, shown) = all.split_at(all.len().saturating_sub(LINES_SHOWN));
    let head = format!("rank {rank} on {host} failed first:");
    if let ([], [only]) = (omitted, shown) {
        return vec![format!("{head} {}", one_line(only))];
    }
    let cut = (!omitted.is_empty()).then(|| format!("    ({} lines left out)", omitted.len()));
    let shown = shown.iter().map(|line| format!("    {}", one_line(line)));
    [head].into_iter().chain(cut).chain(shown).collect()
}

/// The traceback, or else the message, or else the text as it is.
fn description(text: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(text).ok();
    let message = json.as_ref().and_then(|json| json.get("message"));
    let found = message.and_then(|message| {
        let traceback = message.pointer("/extraInfo/py_callstack");
        traceback.or(message.get("message")).unwrap_or(message).as_str()
    });
    found.map_or_else(|| String::from_utf8_lossy(text).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    fn shown(text: &str) -> Vec<String> {
        lines(&RankError { rank: Rank(3), host: "n1".into(), at_ns: 1, text: text.into() })
    }

    #[test]
    fn the_traceback_is_shown_or_what_there_is() {
        let recorded = r#"{"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1",
            "py_callstack": "Traceback (most recent call last):\n  File \"a.py\", line 1\u001b\nValueError: no\n"}}}"#;
        assert_eq!(
            shown(recorded),
            [
                "rank 3 on n1 failed first:", "    Traceback (most recent call last):", "      File \"a.py\", line 1 ",
                "    ValueError: no",
            ]
        );
        for text in [r#"{"message": {"message": "no"}}"#, r#"{"message": "no"}"#, "no\n"] {
            assert_eq!(shown(text), ["rank 3 on n1 failed first: no"], "{text}");
        }
        assert_eq!(shown(r#"{"other": 1}"#), [r#"rank 3 on n1 failed first: {"other": 1}"#]);
    }

    #[test]
    fn a_long_traceback_loses_its_beginning() {
        let text: String = (0..100).map(|line| format!("{line}\n")).collect();
        let shown = shown(&text);
        assert_eq!((shown.len(), shown[1].as_str()), (LINES_SHOWN + 2, "    (36 lines left out)"));
        assert_eq!(shown.last().map(String::as_str), Some("    99"));
    }
}
