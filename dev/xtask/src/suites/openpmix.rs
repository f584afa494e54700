//! The `examples` and `test/simple` of OpenPMIx, of the same release as Debian's library: those programs that a
//! launcher can start.
//!
//! OpenPMIx's own launcher is in no package, so the expected verdicts follow from the programs' sources. Programs that
//! are PMIx servers themselves, or parts of the suites' own server, are left out.

use super::entry::{Entry, words};
use super::{libraries, source};
use crate::step::Result;
use crate::{debian, layout};
use std::path::Path;
use std::time::Duration;

const VERSION: &str = "4.2.2";
/// Time limit of an entry. The programs themselves wait up to a minute for a server that does not answer.
const LIMIT: Duration = Duration::from_secs(40);

const EXAMPLES: &str = "abi_no_init abi_with_init alloc asyncgroup bad_exit client client2 debugger debuggerd dmodex \
    dynamic fault group group_dmodex group_lcl_cid hello jctrl log nodeinfo pub pubi";
const SIMPLE: &str = "asyncio doubleget get_put_example gwclient hybrid quietclient simpclient simpcoord simpcycle \
    simpdie simpdmodex simpdyn simpfabric simpft simpio simpjctrl simppub simpsched simptimeout simpvni";

pub(super) fn entries() -> Result<Vec<Entry>> {
    debian::ensure(&["gcc", "libc6-dev", "xz-utils", "libpmix-dev", "libevent-dev"])?;
    let folder = source::folder("openpmix", |folder| source::debian("pmix", VERSION, folder))?;
    let sources = folder.join(format!("pmix-{VERSION}"));
    let names = [("examples", EXAMPLES), ("test/simple", SIMPLE)].map(|(group, names)| (group, names.split(' ')));
    let names = names.into_iter().flat_map(|(group, names)| names.map(move |name| (group, name)));
    let entry = |(group, name): (&str, &str)| {
        let program = folder.join(name);
        let build = compile(&sources, &sources.join(group).join(name).with_extension("c"), &program);
        Entry { build, limit: LIMIT, ..Entry::new(format!("{group}/{name} 2"), 2, program, &folder) }
    };
    Ok(names.map(entry).collect())
}

/// Compiler arguments for an example. Some examples include headers of the library's sources, which need results of its
/// configure script: `dev/suites/openpmix` contains these.
fn compile(sources: &Path, source: &Path, program: &Path) -> Vec<String> {
    let pmix = libraries().join("pmix2");
    let folders = [layout::root().join("dev/suites/openpmix"), pmix.join("include")].into_iter();
    let folders = folders.chain(["", "src", "examples", "src/include"].map(|folder| sources.join(folder)));
    let mut build = words(["cc", "-w", "-O1", "-pthread", "-o", &program.display().to_string()]);
    build.extend(folders.map(|folder| format!("-I{}", folder.display())));
    build.extend([source, &pmix.join("lib/libpmix.so.2")].map(|path| path.display().to_string()));
    build.extend(words(["-levent_core", "-levent_pthreads", &format!("-Wl,-rpath,{}/lib", pmix.display())]));
    build
}
