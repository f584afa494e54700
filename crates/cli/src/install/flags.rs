//! The command line of `wireup install`.

use wireup_flags::{Command, Flag, Section, Words};

pub const PREFIX: Flag = Flag::value(&["--prefix"], "DIR", "Where to; required.");
pub const FRONT: Flag = Flag::switch(
    &["--front"],
    "Also create links mpiexec, mpirun, mpiexec.hydra, orterun and prterun to the program; existing files are not \
     replaced.",
);

pub const COMMAND: Command = Command {
    name: "install",
    purpose: "install the program, its C libraries and their headers",
    intro: "
  wireup install --prefix /opt/wireup

  /opt/wireup/bin/wireup                         and wireup-bench, wireup-simulate if they are next to this program
  /opt/wireup/lib/libpmi.so.0, libpmi2.so.0      what MPI libraries and other programs load
  /opt/wireup/lib/libwireup.so.0                 groups and messages for communication libraries
  /opt/wireup/lib/libwireup-staged.so.0          shows staged files to ranks where nothing can be mounted
  /opt/wireup/include/pmi.h, pmi2.h, pmix_ext.h, wireup.h; wireup_ucc.h, for UCC
  /opt/wireup/share/wireup/nvshmem_bootstrap_wireup.c    a plugin for NVSHMEM, to be compiled
  /opt/wireup/share/man/man1/wireup.1, wireup-run.1 and so on; man3/wireup.3
  /opt/wireup/share                              completions for bash, zsh and fish
  /opt/wireup/lib/pkgconfig/wireup-pmi.pc, wireup-pmi2.pc, wireup.pc

With --front also, in /opt/wireup/bin: mpiexec, mpirun, mpiexec.hydra, orterun, prterun, which take the options of
these launchers.

The libraries are copied from the folder of this program, or from ../lib next to it; a line names those that are not
there. After pip install, choose another prefix than pip's: pip removes only what it installed itself.
",
    words: Words::Named(&[]),
    sections: &[Section { title: "Flags", flags: &[PREFIX, FRONT] }],
    end: "",
};
