//! Compares layouts and constants with the real headers, by means of a C compiler.

use super::constants::{group, key, kind, persist, range, rank, state, status};
use super::types::*;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;

/// Sizes and offsets of all structures: the C expression and our number.
fn layouts() -> Vec<(String, usize)> {
    let mut all = Vec::new();
    macro_rules! layout {
        ($ours:ident = $c:literal { $($field:ident = $member:literal),* $(,)? }) => {
            all.push((format!("sizeof({})", $c), size_of::<$ours>()));
            $(all.push((format!("offsetof({}, {})", $c, $member), offset_of!($ours, $field)));)*
        };
    }
    layout!(PmixProc = "pmix_proc_t" { nspace = "nspace", rank = "rank" });
    layout!(PmixByteObject = "pmix_byte_object_t" { bytes = "bytes", size = "size" });
    layout!(PmixDataArray = "pmix_data_array_t" { kind = "type", size = "size", array = "array" });
    layout!(PmixEnvar = "pmix_envar_t" { name = "envar", value = "value", separator = "separator" });
    layout!(PmixValue = "pmix_value_t" { kind = "type", data = "data" });
    layout!(PmixInfo = "pmix_info_t" { key = "key", flags = "flags", value = "value" });
    layout!(PmixPdata = "pmix_pdata_t" { proc = "proc", key = "key", value = "value" });
    layout!(PmixQuery = "pmix_query_t" { keys = "keys", qualifiers = "qualifiers", qualifier_count = "nqual" });
    layout!(PmixProcInfo = "pmix_proc_info_t" {
        proc = "proc", hostname = "hostname", executable = "executable_name", pid = "pid", exit_code = "exit_code",
        state = "state",
    });
    layout!(PmixApp = "pmix_app_t" {
        cmd = "cmd", argv = "argv", env = "env", cwd = "cwd", maxprocs = "maxprocs", info = "info",
        info_count = "ninfo",
    });
    layout!(PmixCpuset = "pmix_cpuset_t" { source = "source", bitmap = "bitmap" });
    layout!(PmixDataBuffer = "pmix_data_buffer_t" {
        base = "base_ptr", pack = "pack_ptr", unpack = "unpack_ptr", bytes_allocated = "bytes_allocated",
        bytes_used = "bytes_used",
    });
    // The offsets of our module are compared, but not its size: it may be longer than the module of a version.
    macro_rules! module {
        ($($field:ident)*) => {
            $(all.push((
                format!("offsetof(pmix_server_module_t, {})", stringify!($field)),
                offset_of!(ServerModule, $field),
            ));)*
        };
    }
    module!(client_finalized abort fence_nb direct_modex publish lookup unpublish spawn connect disconnect
        register_events deregister_events notify_event query log job_control group client_connected2);
    all
}

fn numbers() -> Vec<(&'static str, i64)> {
    [status::TABLE, kind::TABLE, rank::TABLE, range::TABLE, persist::TABLE, state::TABLE, group::TABLE].concat()
}

/// Keys internal to the library, which are in none of its public headers.
const PRIVATE: [&str; 1] = ["SERVER_INTERNAL_NOTIFY"];

#[test]
fn layouts_and_constants_match_the_headers() {
    let headers = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let Some(include) =
        headers.map(|entry| entry.path().join("pmix2/include")).find(|include| include.join("pmix_server.h").exists())
    else {
        eprintln!("skipped: the headers of libpmix-dev are not installed");
        return;
    };
    let mut program = String::from(
        "#include <pmix_server.h>\n#include <pmix.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for (expression, _) in layouts() {
        writeln!(program, "printf(\"%zu\\n\", (size_t) {expression});").unwrap();
    }
    for (name, _) in numbers() {
        writeln!(program, "printf(\"%lld\\n\", (long long) {name});").unwrap();
    }
    let keys = || key::TABLE.iter().filter(|(name, _)| !PRIVATE.contains(name));
    for (name, _) in keys() {
        writeln!(program, "printf(\"%s\\n\", PMIX_{name});").unwrap();
    }
    program.push_str("printf(\"%zu\\n\", sizeof(pmix_server_module_t));\nreturn 0;\n}\n");
    let said = compiled_and_run(&program, &include);
    let mut lines = said.lines();
    for (expression, ours) in layouts() {
        assert_eq!(lines.next(), Some(ours.to_string().as_str()), "{expression}");
    }
    for (name, ours) in numbers() {
        assert_eq!(lines.next(), Some(ours.to_string().as_str()), "{name}");
    }
    for (name, ours) in keys() {
        assert_eq!(lines.next(), ours.to_str().ok(), "PMIX_{name}");
    }
    let module: usize = lines.next().and_then(|line| line.parse().ok()).unwrap();
    assert!(module <= size_of::<ServerModule>(), "the library copies {module} bytes");
}

fn compiled_and_run(program: &str, include: &PathBuf) -> String {
    let base = std::env::temp_dir().join(format!("wireup-pmix-abi-{}", std::process::id()));
    let (source, binary) = (base.with_extension("c"), base.with_extension("out"));
    std::fs::write(&source, program).unwrap();
    let status = Command::new("cc").arg("-o").args([&binary, &source]).arg("-I").arg(include).status().unwrap();
    assert!(status.success());
    let output = Command::new(&binary).output().unwrap();
    // Errors are ignored, because the files may already have been removed.
    let _ = (std::fs::remove_file(source), std::fs::remove_file(binary));
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
