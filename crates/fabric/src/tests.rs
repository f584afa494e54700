//! Tests of endpoints in one process, where libfabric is installed, and of the declarations, where a C compiler and
//! libfabric's headers are installed.

use super::*;
use crate::sys::*;
use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use std::io::Write;
use std::process::{Command, Stdio};
use std::string::String;
use std::vec::Vec;
use std::{eprintln, format, vec};

/// Opens an endpoint; `None`: the library is not installed, and the tests may be skipped.
fn open() -> Option<Endpoint> {
    match Endpoint::open() {
        Ok(endpoint) => Some(endpoint),
        Err(error) => {
            assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "{error:?}");
            eprintln!("skipped: {error:?}");
            None
        }
    }
}

/// Whether the descriptor is or becomes readable within `ms` milliseconds.
fn is_readable(endpoint: &Endpoint, ms: c_int) -> bool {
    let mut one = libc::pollfd { fd: endpoint.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut one, 1, ms) == 1 }
}

/// Calls both endpoints until `until` returns something; each makes progress only when it is called.
fn exchange<T>(ends: &mut [Endpoint; 2], mut until: impl FnMut(&mut [Endpoint; 2], &[Vec<u8>]) -> Option<T>) -> T {
    let mut got = Vec::new();
    let mut buffer = vec![0; ends[1].message_len() + 1];
    for _ in 0..30_000 {
        for end in ends.iter_mut() {
            while let Some(event) = end.poll(&mut buffer) {
                match event {
                    Event::Received(len) => got.push(buffer[..len].to_vec()),
                    Event::NotSent(owner) => panic!("{owner}"),
                    Event::Other => {}
                }
            }
        }
        if let Some(result) = until(ends, &got) {
            return result;
        }
        if ends[0].may_wait() && ends[1].may_wait() {
            is_readable(&ends[1], 1);
        }
    }
    panic!("nothing has arrived: {}", got.len());
}

#[test]
fn messages_of_every_length_arrive_whole_and_in_order() {
    let (Some(mut one), Some(other)) = (open(), open()) else { return };
    assert_ne!(one.address(), other.address());
    assert!(one.understands(other.address()));
    let to = one.peer(other.address()).unwrap();
    let longest = one.message_len();
    // More messages than there are slots.
    let lens = [1, 2, 100, longest / 2, longest - 1, longest];
    let messages: Vec<Vec<u8>> = (0..1_000).map(|nth| vec![nth as u8; lens[nth % lens.len()]]).collect();
    let (mut ends, mut sent) = ([one, other], 0);
    exchange(&mut ends, |ends, got| {
        while sent < messages.len() && ends[0].send(to, &messages[sent], 7) == Posted::Yes {
            assert!(ends[0].is_sending());
            sent += 1;
        }
        (got.len() == messages.len() && !ends[0].is_sending()).then(|| assert!(got == messages))
    });
}

#[test]
fn the_descriptor_tells_when_to_read() {
    let (Some(mut one), Some(other)) = (open(), open()) else { return };
    let to = one.peer(other.address()).unwrap();
    let mut ends = [one, other];
    for nth in 0..200_u64 {
        exchange(&mut ends, |ends, _| (ends[0].send(to, &nth.to_le_bytes(), 7) == Posted::Yes).then_some(()));
        let is_woken = is_readable(&ends[1], 30_000);
        assert!(is_woken, "message {nth} is under way");
        exchange(&mut ends, |ends, got| {
            let is_over = got == [nth.to_le_bytes()] && !ends[0].is_sending() && ends[1].may_wait();
            (is_over && !is_readable(&ends[1], 0)).then_some(())
        });
    }
}

#[test]
fn addresses_of_other_kinds_are_refused() {
    let Some(mut endpoint) = open() else { return };
    let own = endpoint.address().to_vec();
    assert!(own.len() <= ADDRESS_LEN_MAX && endpoint.understands(&own));
    let mut other = own.clone();
    other[0] ^= 1;
    for address in [&other[..], &own[..own.len() - 1], &[]] {
        assert!(!endpoint.understands(address));
        assert_eq!(endpoint.peer(address), None);
    }
}

#[test]
fn nothing_is_left_open() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // The first endpoint initialises the library, which keeps descriptors open.
    let Some(first) = open() else { return };
    let with_one = descriptors();
    let many: Vec<_> = (0..5).filter_map(|_| open()).collect();
    assert!(many.len() == 5 && descriptors() > with_one);
    drop(many);
    // Tests that run at the same time open descriptors too: wait until they have closed them.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while descriptors() > with_one {
        assert!(std::time::Instant::now() < until, "{} instead of {with_one}", descriptors());
        std::thread::yield_now();
    }
    drop(first);
}

/// Compares sizes, offsets and constants with a C compiler's.
#[test]
fn declarations_match_the_c_headers() {
    macro_rules! offsets {
        ($($c:literal $rust:ident: $($field:literal $name:ident),*;)*) => {
            vec![$($((format!("offsetof({}, {})", $c, $field), offset_of!($rust, $name) as u64)),*),*]
        };
    }
    let mut checks: Vec<(String, u64)> = offsets! {
        "struct fi_info" Info: "next" next, "caps" caps, "mode" mode, "addr_format" addr_format,
            "src_addrlen" src_addrlen, "src_addr" src_addr, "tx_attr" tx_attr, "rx_attr" rx_attr, "ep_attr" ep_attr,
            "domain_attr" domain_attr, "fabric_attr" fabric_attr;
        "struct fi_tx_attr" TxAttr: "msg_order" msg_order, "size" size;
        "struct fi_rx_attr" RxAttr: "msg_order" msg_order, "size" size;
        "struct fi_ep_attr" EpAttr: "type" kind, "protocol" protocol, "max_msg_size" max_msg_size;
        "struct fi_domain_attr" DomainAttr: "threading" threading, "resource_mgmt" resource_mgmt, "av_type" av_type,
            "mr_mode" mr_mode;
        "struct fi_fabric_attr" FabricAttr: "prov_name" prov_name;
        "struct fi_av_attr" AvAttr: "type" kind, "count" count, "flags" flags;
        "struct fi_cq_attr" CqAttr: "size" size, "format" format, "wait_obj" wait_obj, "wait_set" wait_set;
        "struct fi_cq_msg_entry" CqEntry: "op_context" op_context, "len" len;
        "struct fi_cq_err_entry" CqErrEntry: "op_context" op_context, "err" err, "err_data_size" err_data_size;
        "struct fid" Fid: "ops" ops;
        "struct fi_ops" Ops: "close" close, "bind" bind, "control" control;
        "struct fid_fabric" Fabric: "ops" ops;
        "struct fi_ops_fabric" FabricOps: "domain" domain, "trywait" trywait;
        "struct fid_domain" Domain: "ops" ops, "mr" mr;
        "struct fi_ops_domain" DomainOps: "av_open" av_open, "cq_open" cq_open, "endpoint" endpoint;
        "struct fi_ops_mr" MrOps: "reg" reg;
        "struct fid_mr" Mr: "mem_desc" mem_desc;
        "struct fid_av" Av: "ops" ops;
        "struct fi_ops_av" AvOps: "insert" insert;
        "struct fid_cq" Cq: "ops" ops;
        "struct fi_ops_cq" CqOps: "read" read, "readerr" readerr;
        "struct fid_ep" Ep: "cm" cm, "msg" msg;
        "struct fi_ops_cm" CmOps: "getname" getname;
        "struct fi_ops_msg" MsgOps: "recv" recv, "send" send;
    };
    checks.extend(
        [
            ("sizeof(struct fi_av_attr)", size_of::<AvAttr>() as u64),
            ("sizeof(struct fi_cq_attr)", size_of::<CqAttr>() as u64),
            ("sizeof(struct fi_cq_msg_entry)", size_of::<CqEntry>() as u64),
            ("sizeof(struct fi_context2)", CONTEXT_LEN as u64),
            ("sizeof(enum fi_ep_type)", size_of::<c_int>() as u64),
            ("FI_VERSION(1, 5)", VERSION.into()),
            ("FI_MSG", MSG),
            ("FI_RECV", RECV),
            ("FI_SEND", SEND),
            ("FI_EP_RDM", EP_RDM as u64),
            ("FI_ORDER_SAS", ORDER_SAS),
            ("FI_RM_ENABLED", RM_ENABLED as u64),
            ("FI_MR_LOCAL", MR_LOCAL as u64),
            ("FI_MR_VIRT_ADDR", MR_VIRT_ADDR as u64),
            ("FI_MR_ALLOCATED", MR_ALLOCATED as u64),
            ("FI_MR_PROV_KEY", MR_PROV_KEY as u64),
            ("FI_CONTEXT", MODE_CONTEXT),
            ("FI_CONTEXT2", MODE_CONTEXT2),
            ("FI_THREAD_DOMAIN", THREAD_DOMAIN as u64),
            ("FI_CQ_FORMAT_MSG", CQ_FORMAT_MSG as u64),
            ("FI_WAIT_FD", WAIT_FD as u64),
            ("FI_GETWAIT", GETWAIT as u64),
            ("FI_ENABLE", ENABLE as u64),
            ("FI_ADDR_UNSPEC", ADDR_UNSPEC),
            ("FI_SOCKADDR_IN6", SOCKADDR_IN6.into()),
            ("FI_EAGAIN", EAGAIN as u64),
            ("FI_EAVAIL", EAVAIL as u64),
        ]
        .map(|(expression, value)| (expression.into(), value)),
    );
    let headers = "#include <stddef.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_errno.h>\n";
    let mut source = String::from(headers);
    for (expression, value) in &checks {
        source +=
            &format!("_Static_assert((unsigned long long)({expression}) == {value}ULL, \"{expression}: {value}\");\n");
    }
    source += &format!("_Static_assert(sizeof(struct fi_cq_err_entry) <= {}, \"room\");\n", size_of::<CqErrEntry>());
    if !compiles(headers) {
        assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "no compiler, or no header of libfabric");
        eprintln!("skipped: no compiler, or no header of libfabric");
        return;
    }
    assert!(compiles(&source));
}

fn compiles(source: &str) -> bool {
    let mut cc = Command::new("cc");
    let Ok(mut child) = cc.args(["-x", "c", "-fsyntax-only", "-"]).stdin(Stdio::piped()).spawn() else { return false };
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    child.wait().unwrap().success()
}
