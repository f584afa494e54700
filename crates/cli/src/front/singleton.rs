//! `mpiexec -pmi_args PORT INTERFACE KEY PID`: what MPICH's library starts when a process that was started without a
//! launcher needs one.
//!
//! Rank 0 of the job becomes a process that passes on what the process at `PORT` and the server say to each other
//! (`pmi/singleton`).

use std::ffi::OsString;
use wireup_os::process;
use wireup_wire::signal::SIGTERM;

const OPTION: &str = "-pmi_args";

/// A process that was started without a launcher and asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Singleton {
    port: u16,
    /// The process id in the option: that of the process or, from MPICH, of the child that it forked to start the
    /// launcher.
    pid: u32,
}

impl Singleton {
    /// Reads the request of a singleton from a command line; `None`: an ordinary command line.
    ///
    /// # Errors
    /// The words behind the option are not as the library writes them.
    pub fn requested(words: &[OsString]) -> Result<Option<Singleton>, String> {
        let Some((first, rest)) = words.split_first().filter(|(first, _)| *first == OPTION) else { return Ok(None) };
        let number = |at: usize| rest.get(at).and_then(|word: &OsString| word.to_str()?.parse::<u32>().ok());
        let read = || Some(Singleton { port: number(0)?.try_into().ok()?, pid: number(3)? });
        let wants = "the four words of a library that needs a launcher: PORT INTERFACE KEY PID";
        read().map(Some).ok_or_else(|| format!("{} needs {wants}", first.to_string_lossy()))
    }

    /// The command line of the job whose rank 0 the singleton becomes. The singleton keeps its own standard input.
    /// Ranks use process ids to read each other's memory, so the other ranks must be in its PID namespace.
    pub fn words(self, own_program: OsString) -> Vec<OsString> {
        let options = ["-n", "1", "-s", "none", "--pmi", "simple", "--contain", "none"].map(OsString::from);
        options.into_iter().chain([own_program, "singleton".into(), self.port.to_string().into()]).collect()
    }

    /// Ends the singleton after its job has failed: it would wait forever for ranks that have exited.
    pub fn end(self) {
        let Some(parent) = process::parent() else { return };
        if [parent, process::own_pid()].contains(&self.pid) {
            // The singleton may just have exited by itself.
            let _ = process::kill(parent, SIGTERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Option<Singleton>, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Singleton::requested(&words)
    }

    #[test]
    fn the_words_of_the_library_are_read() {
        let found = of("-pmi_args 4711 default_interface default_key 12").expect("as it writes them");
        assert_eq!(found, Some(Singleton { port: 4711, pid: 12 }));
        assert_eq!(of("-n 1 ./a -pmi_args"), Ok(None));
        for wrong in ["-pmi_args", "-pmi_args 70000 a b 12", "-pmi_args 4711 a b", "-pmi_args 4711 a b -1"] {
            assert!(of(wrong).expect_err(wrong).contains("PORT INTERFACE KEY PID"), "{wrong}");
        }
    }
}
