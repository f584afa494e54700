//! The `examples` and `test/simple` of OpenPMIx, in the release of Debian's library, as far as a launcher can start
//! them.
//!
//! Their launcher is in no package, so their verdicts follow from their sources. Programs that are PMIx servers
//! themselves, or parts of the suites' own server, are left out.

use super::entry::Entry;
use super::{libraries, source};
use crate::step::Result;
use crate::{debian, layout};
use std::path::Path;
use std::time::Duration;

const VERSION: &str = "4.2.2";
/// Time limit of an entry: the programs themselves wait up to a minute for a server that does not answer.
const LIMIT: Duration = Duration::from_secs(40);

const EXAMPLES: [&str; 21] = [
    "abi_no_init", "abi_with_init", "alloc", "asyncgroup", "bad_exit", "client", "client2", "debugger", "debuggerd",
    "dmodex", "dynamic", "fault", "group", "group_dmodex", "group_lcl_cid", "hello", "jctrl", "log", "nodeinfo", "pub",
    "pubi",
];

const SIMPLE: [&str; 20] = [
    "asyncio", "doubleget", "get_put_example", "gwclient", "hybrid", "quietclient", "simpclient", "simpcoord",
    "simpcycle", "simpdie", "simpdmodex", "simpdyn", "simpfabric", "simpft", "simpio", "simpjctrl", "simppub",
    "simpsched", "simptimeout", "simpvni",
];

pub(super) fn entries() -> Result<Vec<Entry>> {
    debian::ensure(&["gcc", "libc6-dev", "xz-utils", "libpmix-dev", "libevent-dev"])?;
    let folder = source::folder("openpmix", |folder| source::debian("pmix", VERSION, folder))?;
    let examples = EXAMPLES.iter().map(|name| entry(&folder, "examples", name));
    Ok(examples.chain(SIMPLE.iter().map(|name| entry(&folder, "test/simple", name))).collect())
}

fn entry(folder: &Path, group: &str, name: &str) -> Entry {
    let sources = folder.join(format!("pmix-{VERSION}"));
    let program = folder.join(name);
    let mut entry = Entry::new(format!("{group}/{name} 2"), 2, program.clone(), folder);
    entry.build = compile(&sources, &sources.join(group).join(name).with_extension("c"), &program);
    entry.limit = LIMIT;
    entry
}

/// Arguments that compile an example. Some include headers of the library's sources, which need the results of its
/// configure: what `dev/suites/openpmix` states.
fn compile(sources: &Path, source: &Path, program: &Path) -> Vec<String> {
    let pmix = libraries().join("pmix2");
    let stated = layout::root().join("dev/suites/openpmix");
    let folders = [
        stated,
        pmix.join("include"),
        sources.to_owned(),
        sources.join("src"),
        sources.join("examples"),
        sources.join("src/include"),
    ];
    let mut words = ["cc", "-w", "-O1", "-pthread", "-o"].map(str::to_owned).to_vec();
    words.push(program.display().to_string());
    words.extend(folders.iter().map(|folder| format!("-I{}", folder.display())));
    words.push(source.display().to_string());
    words.push(pmix.join("lib/libpmix.so.2").display().to_string());
    words.extend(["-levent_core", "-levent_pthreads"].map(str::to_owned));
    words.push(format!("-Wl,-rpath,{}", pmix.join("lib").display()));
    words
}
