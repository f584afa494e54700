//! Compiles the test programs in `programs/` for embedding.
use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const PROGRAMS: [&str; 7] = ["true", "pmi_init", "pmi_bare", "pmi_exchange", "spawn_floor", "pmi_echo", "shells"];
/// Without a C library, nor what compilers expect of one.
const FREESTANDING: [&str; 4] = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for every build script"));
    let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-env-changed=CC");
    for program in PROGRAMS {
        let status = Command::new(&cc)
            .args(["-O2", "-static", "-Wall", "-Wextra"])
            .args(FREESTANDING.iter().filter(|_| program == "pmi_bare"))
            .arg("-o")
            .arg(out.join(program))
            .arg(format!("programs/{program}.c"))
            .status();
        let problem = match status {
            Ok(status) if status.success() => continue,
            Ok(status) => format!("{} -O2 -static programs/{program}.c: {status}", cc.to_string_lossy()),
            Err(e) => format!("{}: {e}", cc.to_string_lossy()),
        };
        println!("cargo::error=wireup-bench needs a C compiler and a static libc (Debian: gcc, libc6-dev): {problem}");
        exit(1);
    }
}
