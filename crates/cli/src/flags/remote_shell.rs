//! How agents are started on other hosts: by ssh, by one step of a batch system, or as the user says.

use super::parsed::Start;
use crate::surroundings::Surroundings;
use wireup_node::agent::start_methods;
use wireup_wire::peer::{RemoteShell, StartMethod};

/// The remote shell when hosts are named. The user's configuration applies, except for what disturbs an unattended
/// command: X11 and port forwarding, a terminal, questions, a connection that stays open. A connection to a host that
/// does not answer fails after a quarter of the default start timeout, so that another agent still has time to try.
pub const SSH: [&str; 11] = [
    "ssh", "-x", "-T", "-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no", "-o",
    "ConnectTimeout=15",
];

/// How hosts are reached if the user has not chosen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// No hosts were chosen: all agents run on this machine.
    ThisMachine,
    Ssh,
    /// The hosts come from a batch system; one step of this program starts all agents, unless another way of starting
    /// is asked for.
    Allocation {
        program: &'static str,
        one_step: bool,
    },
}

impl Reach {
    /// `step` is the program that starts a step on all of the hosts.
    pub fn choose(hosts: bool, step: Option<&'static str>, start: Start) -> Reach {
        match (hosts, step) {
            (false, _) => Reach::ThisMachine,
            (true, None) => Reach::Ssh,
            (true, Some(program)) => Reach::Allocation { program, one_step: start == Start::Tree },
        }
    }
}

/// The remote shell; `command` if the user has named one.
pub fn remote_shell(command: Option<&str>, reach: Reach, surroundings: &Surroundings) -> Result<RemoteShell, String> {
    let mut words: Vec<String> = match (command, reach) {
        (Some(command), _) => command.split_whitespace().map(str::to_owned).collect(),
        (None, Reach::ThisMachine) => return Ok(RemoteShell::Local),
        (None, Reach::Allocation { program, one_step: true }) => vec![program.to_owned()],
        (None, Reach::Ssh | Reach::Allocation { one_step: false, .. }) => SSH.map(str::to_owned).to_vec(),
    };
    // Agents run in other directories than the launcher, so relative paths become absolute.
    if let Some(program) = words.first_mut().filter(|program| program.contains('/')) {
        *program = surroundings.absolute(program.trim_start_matches("./").to_owned());
    }
    for word in words.iter_mut().skip(1) {
        *word = with_absolute_file(word, surroundings);
    }
    let shell =
        RemoteShell::of_words(&words).ok_or("--remote-shell is empty; give a command such as ssh, or leave it out")?;
    let (Some(system), StartMethod { program: Some(own), batch: Some(batch), .. }) =
        (start_methods::batch_system(&shell), shell.start_method())
    else {
        return Ok(shell);
    };
    match reach {
        // The user's own options come last, so that they take precedence.
        Reach::Allocation { program, one_step: true } if program == *own => {
            words.splice(1..1, system.options().iter().map(|word| (*word).to_owned()));
            Ok(RemoteShell::of_words(&words).unwrap_or(shell))
        }
        Reach::Allocation { program, one_step: false } if program == *own => Err(format!(
            "--start cannot be combined with --remote-shell {own}, which starts all agents in one step; leave --start \
                 out"
        )),
        Reach::ThisMachine | Reach::Ssh | Reach::Allocation { .. } => {
            Err(format!("--remote-shell {own} works only inside {}, or leave the flag out", batch.allocation))
        }
    }
}

/// One word of a remote shell's command. If it is a file of the launcher's directory, or ends with one
/// (`-oIdentityFile=keys/id`, `-Fconfig`), the file is replaced by its absolute path.
fn with_absolute_file(word: &str, surroundings: &Surroundings) -> String {
    let is_file = |path: &str| surroundings.cwd.as_ref().is_ok_and(|cwd| !path.is_empty() && cwd.join(path).is_file());
    let path = match word.split_once('=') {
        _ if is_file(word) => word,
        Some((_, value)) => value,
        None => word.strip_prefix("-F").or_else(|| word.strip_prefix("-i")).unwrap_or(word),
    };
    match is_file(path) {
        // An absolute path is unchanged.
        true => {
            word[..word.len() - path.len()].to_owned()
                + &surroundings.absolute(path.trim_start_matches("./").to_owned())
        }
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_files_of_a_remote_shell_become_absolute() {
        let words = |command: &str| match remote_shell(Some(command), Reach::Ssh, &Surroundings::example()) {
            Ok(RemoteShell::Ssh(words) | RemoteShell::Command(words)) => words.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!(words("ssh -F etc/passwd -i ./etc/hosts"), "ssh -F /etc/passwd -i /etc/hosts");
        let expected = "ssh -F/etc/passwd -oUserKnownHostsFile=/etc/hosts";
        assert_eq!(words("ssh -Fetc/passwd -oUserKnownHostsFile=etc/hosts"), expected);
        // A user named like a directory, a missing file, and absolute paths are left alone.
        let same = "ssh -l etc -F no/such -F /etc/passwd -oIdentityFile=/etc/hosts -o BatchMode=yes";
        assert_eq!(words(same), same);
    }
}
