//! Compiles the test programs in `programs/` for embedding.
use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const PROGRAMS: [&str; 8] =
    ["true", "pmi_init", "pmi_bare", "pmi_exchange", "spawn_floor", "pmi_echo", "shells", LOADS_A_LIBRARY];
/// Loads a library when it runs, so it cannot be static.
const LOADS_A_LIBRARY: &str = "startup";
/// The compiler for that program, where `CC` makes static ones only.
const CC_SHARED: &str = "CC_SHARED";
/// Without a C library, nor what compilers expect of one.
const FREESTANDING: [&str; 4] = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for every build script"));
    let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let cc_shared = env::var_os(CC_SHARED).unwrap_or_else(|| cc.clone());
    for path in ["programs", "../../include"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in ["CC", CC_SHARED] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for program in PROGRAMS {
        let loads = program == LOADS_A_LIBRARY;
        let cc = if loads { &cc_shared } else { &cc };
        let status = Command::new(cc)
            .args(["-O2", "-Wall", "-Wextra", "-I", "../../include"])
            .args((!loads).then_some("-static"))
            .args(FREESTANDING.iter().filter(|_| program == "pmi_bare"))
            .arg("-o")
            .arg(out.join(program))
            .arg(format!("programs/{program}.c"))
            .args(loads.then_some("-ldl"))
            .status();
        let problem = match status {
            Ok(status) if status.success() => continue,
            Ok(status) => format!("{} programs/{program}.c: {status}", cc.to_string_lossy()),
            Err(e) => format!("{}: {e}", cc.to_string_lossy()),
        };
        println!("cargo::error=wireup-bench needs a C compiler and a static libc (Debian: gcc, libc6-dev): {problem}");
        exit(1);
    }
}
