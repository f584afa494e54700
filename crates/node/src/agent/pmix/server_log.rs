//! Limits the text that a PMIx server process writes for the user, and divides it into whole lines.

/// Most bytes of one server's output that are passed on. Chosen: a hundred lines; a library that repeats a message
/// would flood the terminal.
const BYTES_MAX: usize = 8 << 10;

/// Text that is passed on in place of output beyond [`BYTES_MAX`].
const MORE: &str = "(further output of this process is not shown)\n";

pub struct ServerLog {
    /// Bytes of the server's output that were not passed on yet.
    bytes: Vec<u8>,
    /// Number of bytes that may still be passed on.
    left: usize,
    /// Whether output was left out.
    is_cut: bool,
    /// Whether `MORE` was passed on.
    is_told: bool,
}

impl Default for ServerLog {
    fn default() -> ServerLog {
        ServerLog { bytes: Vec::new(), left: BYTES_MAX, is_cut: false, is_told: false }
    }
}

impl ServerLog {
    pub fn push(&mut self, piece: &[u8]) {
        let room = self.left - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        self.is_cut |= piece.len() > room;
    }

    /// Takes the whole lines that were not passed on yet; at the output's end or limit, also an incomplete last line.
    pub fn take_lines(&mut self, is_end: bool) -> Option<String> {
        let whole = self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let end = if is_end || self.is_cut { self.bytes.len() } else { whole };
        let mut text = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..end);
        self.left -= end;
        if self.is_cut && !std::mem::replace(&mut self.is_told, true) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text += MORE;
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_passed_on_and_the_rest_at_the_end() {
        let mut log = ServerLog::default();
        log.push(b"one\ntw");
        assert_eq!(log.take_lines(false).as_deref(), Some("one\n"));
        log.push(b"o\nthree");
        assert_eq!(log.take_lines(false).as_deref(), Some("two\n"));
        assert_eq!(log.take_lines(false), None);
        assert_eq!(log.take_lines(true).as_deref(), Some("three"));
    }

    #[test]
    fn a_flood_is_cut_once() {
        let mut log = ServerLog::default();
        let mut passed = String::new();
        for _ in 0..BYTES_MAX {
            log.push(b"again and again\n");
            passed.extend(log.take_lines(false));
        }
        passed.extend(log.take_lines(true));
        assert!(passed.ends_with(MORE) && passed.matches(MORE).count() == 1);
        assert!(passed.len() <= BYTES_MAX + MORE.len() + 1);
    }
}
