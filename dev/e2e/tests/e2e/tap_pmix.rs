//! `wireup tap` and the PMIx library: which library's functions are called, and what is counted.

use crate::tap::{json, number};
use wireup_e2e::Run;
use wireup_e2e::peers::program;
use xtask::programs::Flavour;

/// Runs `wireup run WORDS`, by a shell in the test's folder, then prints the profile.
fn profiled(words: &str) -> Run {
    let end = "code=$?; cat profile; rm -f profile; exit $code";
    Run::shell(&format!("cd \"$TMPDIR\" && \"$WIREUP\" run --pmi pmix {words}; {end}"))
}

/// Not counted: the library itself calls `PMIx_Fence_nb` for `PMIx_Fence`, and gets values in `PMIx_Init`.
#[test]
fn calls_of_the_program_are_counted_and_those_of_the_library_are_not() {
    for flavour in [Flavour::Pmix, Flavour::Pmix5] {
        let Some(fences) = program(flavour, "fences") else { return };
        // One of the program's ten fences is a fence of only some ranks.
        let run = profiled("-n 3 \"$WIREUP\" tap --json=profile \"$0\" 10 16").arg(fences);
        let outcome = run.succeed();
        let profile = json(&outcome);
        let counted = ["init", "put", "commit", "fence", "other", "finalize"].map(|kind| number(&profile, kind));
        assert_eq!(counted, [3, 30, 30, 27, 3, 3], "{outcome}");
        assert!(profile["ranks"][0]["until_first_request"].is_null(), "{outcome}");
    }
}

/// A rank may be a program, a script around it, or a program that starts others: the first process that calls
/// `PMIx_Init` is counted.
#[test]
fn one_process_of_a_rank_counts() {
    let Some(fences) = program(Flavour::Pmix, "fences") else { return };
    for script in ["\"$0\" 10 16; exit $?", "exec \"$0\" 10 16", "\"$0\" 10 16 && \"$0\" 10 16"] {
        let outcome =
            profiled(&format!("-n 2 \"$WIREUP\" tap --json=profile sh -c '{script}' \"$0\"")).arg(&fences).finish();
        let profile = json(&outcome);
        assert_eq!((number(&profile, "init"), number(&profile, "fence")), (2, 18), "{outcome}");
    }
    let nested = profiled("-n 2 \"$WIREUP\" tap \"$WIREUP\" tap --json=profile \"$0\" 10 16").arg(&fences).finish();
    assert_eq!(number(&json(&nested), "fence"), 18, "{nested}");
}

/// A plugin like those of packages that rename the libraries that they contain, and load them privately.
const PLUGIN: &str = "#include <pmix.h>
    int rank(void) {
        pmix_proc_t me;
        return PMIx_Init(&me, 0, 0) || PMIx_Fence(0, 0, 0, 0) || PMIx_Finalize(0, 0);
    }";
const MAIN: &str = "#include <dlfcn.h>
    #include <stdlib.h>
    int main(void) {
        void *plugin = dlopen(\"./plugin.so\", RTLD_NOW | RTLD_LOCAL);
        if (!plugin || ((int (*)(void))dlsym(plugin, \"rank\"))())
            return 1;
        return system(\"echo \\\"[$LD_PRELOAD$WIREUP_TAP_PAGE]\\\"\");
    }";

#[test]
fn a_pmix_library_under_another_name_is_found_and_its_programs_are_not_tapped() {
    if program(Flavour::Pmix, "fences").is_none() {
        return;
    }
    let script = r#"at=$(dirname $(find /usr/lib -path '*/pmix2/lib/libpmix.so.2' | head -1)) && dir=$TMPDIR/renamed &&
        mkdir "$dir" && cd "$dir" && sed 's/libpmix\.so\.2\x00/libpmix.so.x\x00/' "$at/libpmix.so.2" >libpmix.so.x &&
        printf %s "$0" >plugin.c && printf %s "$1" >main.c &&
        cc -shared -fPIC -o plugin.so plugin.c -I"$at/../include" ./libpmix.so.x -Wl,-rpath,"$dir" &&
        cc -o main main.c -ldl &&
        "$WIREUP" run --pmi pmix -n 2 "$WIREUP" tap ./main; code=$?; rm -rf "$dir"; exit $code"#;
    let outcome = Run::shell(script).arg(PLUGIN).arg(MAIN).succeed();
    assert_eq!(outcome.out(), "[]\n[]\n", "{outcome}");
    outcome.expect_err_line(&["fence ", " 2 "]);
    outcome.expect_err_line(&["wireup: tap: 2 ranks on 1 node", "PMIx"]);
}

/// The run-time library of a sanitizer ends a program in which another library is loaded before it.
#[test]
fn a_program_with_a_sanitizer_runs_without_the_preload() {
    let script = r#"dir=$TMPDIR/sanitized && mkdir "$dir" && cd "$dir" && echo 'int main(void) { return 0; }' >main.c &&
        gcc -fsanitize=address -o main main.c && "$WIREUP" run --pmi pmix -n 2 "$WIREUP" tap ./main
        code=$?; rm -rf "$dir"; exit $code"#;
    let outcome = Run::shell(script).succeed();
    outcome.expect_err_line(&["PMIx calls are not seen: the program needs libasan.so"]);
}
