//! Opens pseudo-terminals for ranks, and changes the modes of the user's own terminal.

use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Opens a pseudo-terminal of the given size; returns its controlling end and the rank's end. The caller's own
/// controlling terminal does not change.
pub fn open(rows: u16, columns: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let (master, slave) = pair()?;
    resize(&master, rows, columns)?;
    Ok((master, slave))
}

/// Opens a pseudo-terminal in raw mode, without a window size; returns its controlling end and the rank's end.
pub fn open_raw() -> io::Result<(OwnedFd, OwnedFd)> {
    let (master, slave) = pair()?;
    SavedTerminal::save(&slave)?.set_raw(&slave)?;
    Ok((master, slave))
}

/// Whether `fd` is an end of a pseudo-terminal or another terminal.
pub fn is_terminal(fd: impl AsFd) -> bool {
    rustix::termios::isatty(fd)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    // The rank's end is not opened by its name, which might lead to another terminal: `/dev/pts` in a container need
    // not be the instance of its `/dev/ptmx`.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}

/// Sets the size of a terminal; its foreground processes get `SIGWINCH` if it changed.
pub fn resize(fd: impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(fd, size)?)
}

/// The size of a terminal: (rows, columns).
pub fn size(fd: impl AsFd) -> io::Result<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(fd)?;
    Ok((size.ws_row, size.ws_col))
}

/// Modes of standard input before this process changed them.
static REMEMBERED: OnceLock<SavedTerminal> = OnceLock::new();

/// The saved modes of a terminal.
#[derive(Clone, Debug)]
pub struct SavedTerminal {
    modes: Termios,
}

impl SavedTerminal {
    pub fn save(fd: impl AsFd) -> io::Result<SavedTerminal> {
        Ok(SavedTerminal { modes: rustix::termios::tcgetattr(fd)? })
    }

    /// Remembers these modes, those of standard input, for keepers that are forked after this process has changed the
    /// modes. Only the first call has an effect.
    pub fn remember(&self) {
        let _ = REMEMBERED.set(self.clone());
    }

    /// The modes of standard input that `remember` has stored.
    pub fn remembered() -> Option<SavedTerminal> {
        REMEMBERED.get().cloned()
    }

    /// Switches the terminal to raw mode: every key is passed on as typed, without echo and without signals.
    pub fn set_raw(&self, fd: impl AsFd) -> io::Result<()> {
        let mut modes = self.modes.clone();
        modes.make_raw();
        Ok(rustix::termios::tcsetattr(fd, OptionalActions::Now, &modes)?)
    }

    pub fn restore(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(rustix::termios::tcsetattr(fd, OptionalActions::Now, &self.modes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::termios::LocalModes;

    #[test]
    fn raw_mode_is_set_and_restored() {
        let (_master, slave) = open(24, 80).unwrap();
        let echoes = || rustix::termios::tcgetattr(&slave).unwrap().local_modes.contains(LocalModes::ECHO);
        let saved = SavedTerminal::save(&slave).unwrap();
        assert!(echoes());
        saved.set_raw(&slave).unwrap();
        assert!(!echoes());
        saved.restore(&slave).unwrap();
        assert!(echoes());
    }

    #[test]
    fn a_raw_pseudo_terminal_changes_no_byte_and_keeps_what_was_written_before_its_end_closed() {
        let (master, slave) = open_raw().unwrap();
        assert!(is_terminal(&slave) && is_terminal(&master));
        let written: Vec<u8> = (0..=255).collect();
        assert_eq!(rustix::io::write(&slave, &written).unwrap(), written.len());
        drop(slave);
        let mut read = [0; 512];
        assert_eq!(rustix::io::read(&master, &mut read).unwrap(), written.len());
        assert_eq!(read[..written.len()], written[..]);
        assert_eq!(rustix::io::read(&master, &mut read), Err(rustix::io::Errno::IO));
    }

    #[test]
    fn the_terminal_size_is_set_and_changed() {
        let (master, slave) = open(24, 80).unwrap();
        assert_eq!(size(&slave).unwrap(), (24, 80));
        resize(&master, 50, 132).unwrap();
        assert_eq!(size(&slave).unwrap(), (50, 132));
    }
}
