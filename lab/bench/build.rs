//! Compiles the test programs in `programs/` for embedding.
use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const PROGRAMS: [&str; 23] = [
    "true", "pmi_init", "pmi_bare", "pmi_exchange", "spawn_baseline", "pmi_echo", "shells", "tcp_pingpong", "relay",
    "startup", "groups", "from_exec", "first_use", "spinning", "pmix_exchange", "pmi2_allgather", "ucx_init",
    "spawn_jobs", "misbehave", "polling", "beside_polling", ARE_LOADED[0], ARE_LOADED[1],
];
/// These load a library at run time, so they cannot be static.
const LOAD_A_LIBRARY: [&str; 7] =
    ["startup", "groups", "first_use", "spinning", "pmix_exchange", "pmi2_allgather", "ucx_init"];
/// These are loaded into other programs.
const ARE_LOADED: [&str; 2] = ["mpi_shim", "prun_shim"];
/// The compiler for both kinds, if `CC` can only make static programs.
const CC_SHARED: &str = "CC_SHARED";
/// Without a C library and without what compilers expect of one.
const FREESTANDING: [&str; 5] = ["-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin"];

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
        let (cc, kind): (_, &[&str]) = match program {
            _ if LOAD_A_LIBRARY.contains(&program) => (&cc_shared, &["-ldl", "-pthread"]),
            _ if ARE_LOADED.contains(&program) => (&cc_shared, &["-shared", "-fPIC", "-ldl"]),
            "pmi_bare" | "from_exec" => (&cc, &FREESTANDING),
            _ => (&cc, &["-static"]),
        };
        let status = Command::new(cc)
            .args(["-O2", "-Wall", "-Wextra", "-I", "../../include"])
            .arg("-o")
            .arg(out.join(program))
            .arg(format!("programs/{program}.c"))
            .args(kind)
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
