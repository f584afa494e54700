//! Compiles the test programs in `programs/` for embedding.
use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const STATIC: &[&str] = &["-static"];
/// Compiler flags of programs that load a library at run time.
const LOADS: &[&str] = &["-ldl", "-pthread", "-lm"];
/// Compiler flags of libraries that other programs load.
const LOADED: &[&str] = &["-shared", "-fPIC", "-ldl"];
/// Compiler flags of programs that use no C library and nothing else that compilers expect a C library to provide.
const BARE: &[&str] = &["-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin"];
const PROGRAMS: [(&str, &[&str]); 16] = [
    ("true", STATIC),
    ("pmi_bare", BARE),
    ("pmi_exchange", STATIC),
    ("pmi_echo", STATIC),
    ("spawn_baseline", STATIC),
    ("polling", STATIC),
    ("beside_polling", STATIC),
    ("from_exec", BARE),
    ("startup", LOADS),
    ("groups", LOADS),
    ("first_use", LOADS),
    ("applications", LOADS),
    ("pmix_exchange", LOADS),
    ("ucx_init", LOADS),
    ("mpi_shim", LOADED),
    ("prun_shim", LOADED),
];
/// Environment variable that names the compiler for programs that are not static, if `CC` can make only static ones.
const CC_SHARED: &str = "CC_SHARED";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for every build script"));
    let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let cc_shared = env::var_os(CC_SHARED).unwrap_or_else(|| cc.clone());
    println!("cargo::rerun-if-changed=programs\ncargo::rerun-if-changed=../../include");
    println!("cargo::rerun-if-env-changed=CC\ncargo::rerun-if-env-changed={CC_SHARED}");
    let mut list = format!("pub const PROGRAMS: [(&str, &[u8]); {}] = [\n", PROGRAMS.len());
    for (program, kind) in PROGRAMS {
        let cc = if kind.contains(&"-static") { &cc } else { &cc_shared };
        let file = out.join(program);
        let status = Command::new(cc)
            .args(["-O2", "-Wall", "-Wextra", "-I", "../../include", "-o"])
            .arg(&file)
            .arg(format!("programs/{program}.c"))
            .args(kind)
            .status();
        if !status.as_ref().is_ok_and(|status| status.success()) {
            let problem = format!("{} programs/{program}.c: {status:?}", cc.to_string_lossy());
            println!(
                "cargo::error=wireup-bench needs a C compiler and a static libc (Debian: gcc, libc6-dev): {problem}"
            );
            exit(1);
        }
        list += &format!("    ({program:?}, include_bytes!({file:?})),\n");
    }
    std::fs::write(out.join("programs.rs"), list + "];\n").expect("cargo's folder can be written");
}
