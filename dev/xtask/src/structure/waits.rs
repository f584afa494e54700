//! A wait for descriptors has a time limit, or a comment in front of it that says why it needs no limit: `// No time
//! limit: REASON`.
//!
//! The rule finds calls that wait without a limit by their last argument, such as `None`. It does not see the values of
//! variables.

use super::Finding;
use super::Tree;
use super::source::Source;
use crate::step::Result;

/// Functions whose last argument is the limit, with its text for "no limit": of the product's own crates and `rustix`,
/// and of the C library. (The ranks' libraries have a `wait` for requests with a limit in milliseconds, which is as
/// endless as the caller's program wants.)
const ENDLESS: [(&str, &str); 6] = [
    ("wait", "None"),
    ("poll", "None"),
    ("poll", "-1"),
    ("epoll_wait", "-1"),
    ("epoll_pwait", "-1"),
    ("ppoll", "null()"),
];
const REASON: &str = "// No time limit: ";

/// # Errors
/// A file is not valid Rust.
pub fn check(tree: &Tree) -> Result<Finding> {
    let mut broken = Vec::new();
    for path in tree.ending(".rs").filter(|path| is_checked(path)) {
        let text = tree.get(path).unwrap_or_default();
        let source = Source::parse(text).map_err(|e| format!("{path}:{}: {e}", e.span().start().line))?;
        let lines: Vec<&str> = text.lines().collect();
        for call in source.calls {
            let is_endless = ENDLESS.iter().any(|(name, last)| call.name == *name && call.last.ends_with(last));
            if is_endless && !has_reason(&lines[..call.line - 1]) {
                broken.push(format!("{path}:{}: {}(.. {})", call.line, call.name, call.last));
            }
        }
    }
    Ok(Finding { rule: "a wait has a limit, or a reason for none".into(), broken })
}

fn is_checked(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.split('/').nth(2) == Some("src");
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    is_source && !is_test
}

/// Whether the comment that ends with these lines gives a reason.
fn has_reason(before: &[&str]) -> bool {
    let comment = before.iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with("//"));
    comment.into_iter().any(|line| line.starts_with(REASON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_waits_without_a_reason_are_named() {
        let text = "fn f() {
            socket::wait(&fd, true, false, None)?;
            // No time limit: the other side always answers,
            // or ends.
            socket::wait(&fd, true, false, None)?;
            links.wait(None, Some(limit));
            libc::poll(&mut one, 1, -1);
            poll(&mut ready, timeout.as_ref());
            // Another comment.
            assert!(reactor.wait(None).is_ok());
            task.wait();
            context.wait(&request, -1);
        }
        #[cfg(test)] mod tests { fn f() { socket::wait(&fd, true, false, None); } }";
        let tree = Tree::from_files(&[
            ("crates/a/src/b.rs", text),
            ("crates/a/src/tests.rs", text),
            ("crates/a/tests/b.rs", text),
            ("dev/sim/src/b.rs", text),
        ]);
        let broken = check(&tree).expect("valid Rust").broken;
        let expected = ["2: wait(.. None)", "7: poll(.. -1)", "10: wait(.. None)"];
        assert_eq!(broken, expected.map(|place| format!("crates/a/src/b.rs:{place}")));
    }
}
