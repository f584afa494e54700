//! Real ssh on the testbed's nodes.
use std::path::Path;

use wireup_testbed::Testbed;

use super::{on_hub, output, spec, text};

#[test]
fn ssh_works_from_node_to_node_with_the_same_path() {
    let mut spec = spec(3);
    spec.sshd_options = vec![(Some(2), "AllowUsers=nobody".into()), (None, "LogLevel=ERROR".into())];
    let Some(testbed) = Testbed::start_or_skip(&spec) else { return };
    let onward = "hostname; ssh n1 'hostname; command -v ssh; ssh n0-v6 hostname'";
    let words = text(&mut on_hub(&testbed, "ssh", &["-o", "BatchMode=yes", "n0", onward]));
    assert_eq!(words.lines().collect::<Vec<_>>(), ["n0", "n1", "/run/wireup-testbed/bin/ssh", "n0"]);
    let refused = output(&mut on_hub(&testbed, "ssh", &["-o", "BatchMode=yes", "n2", "true"]));
    assert_eq!(refused.status.code(), Some(255), "an option of one node");
    assert_eq!(testbed.daemons(0).len(), 1);
    assert!(Path::new(&testbed.path_in_node(0, "/run/sshd.log")).exists());
}
