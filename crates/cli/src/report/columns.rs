//! The data of a page: the spans of a trace by name, in columns.

use serde::Serialize;
use std::collections::BTreeMap;
use wireup_node::trace::{About, Args, Event, LAUNCHER, Trace};
use wireup_wire::peer::Traffic;

/// One trace. Times are microseconds since the start of the launcher.
#[derive(Serialize)]
pub struct Run<'a> {
    file: &'a str,
    about: &'a About,
    nodes: Vec<Node<'a>>,
    /// The root of the tree, if it is on no node of the job.
    root: Option<Node<'a>>,
    spans: BTreeMap<&'a str, Spans>,
    collectives: BTreeMap<&'a str, Collective>,
}

#[derive(Serialize)]
pub struct Node<'a> {
    name: &'a str,
    level: u32,
    clock_error: Option<f64>,
    up: Traffic,
    down: Traffic,
    direct: Traffic,
}

/// Spans with the same name, one per row: index of the node in `Run::nodes` (-1: the launcher), rank (-1: the agent or
/// the launcher), begin and duration (µs).
#[derive(Serialize, Default)]
struct Spans {
    node: Vec<i64>,
    rank: Vec<i64>,
    from: Vec<f64>,
    took: Vec<f64>,
}

/// One collective, one row per node: when the node's first and last rank entered and when its ranks left (µs), which
/// rank entered last, and the payload bytes of the node (up) and of the whole job (down).
#[derive(Serialize, Default)]
struct Collective {
    node: Vec<i64>,
    first_in: Vec<f64>,
    last_in: Vec<f64>,
    left: Vec<f64>,
    last_rank: Vec<u32>,
    bytes_up: Vec<u64>,
    bytes_down: Vec<u64>,
}

/// The names of the nodes, by their process ids in the trace.
pub fn nodes(trace: &Trace) -> BTreeMap<u32, &str> {
    let names = trace.events.iter().filter_map(|event| match event.args.as_deref() {
        Some(Args::Name { name }) if event.name == "process_name" && event.pid != LAUNCHER => {
            Some((event.pid, name.as_str()))
        }
        _ => None,
    });
    names.collect()
}

impl<'a> Node<'a> {
    fn new(name: &'a str) -> Node<'a> {
        let name = name.splitn(3, ' ').last().unwrap_or(name);
        let none = Traffic::default();
        Node { name, level: 0, clock_error: None, up: none, down: none, direct: none }
    }
}

impl<'a> Run<'a> {
    pub fn of(file: &'a str, trace: &'a Trace) -> Run<'a> {
        let names = nodes(trace);
        let places: BTreeMap<u32, i64> = names.keys().copied().zip(0..).collect();
        let nodes = names.into_values().map(Node::new).collect();
        let mut run =
            Run { file, about: &trace.about, nodes, root: None, spans: BTreeMap::new(), collectives: BTreeMap::new() };
        for event in &trace.events {
            // An event of a process that the trace does not name is not from wireup.
            if let Some(node) = places.get(&event.pid).copied().or((event.pid == LAUNCHER).then_some(-1)) {
                run.add(event, node);
            }
        }
        run
    }

    fn add(&mut self, event: &'a Event, node: i64) {
        match (event.args.as_deref(), event.dur) {
            (Some(&Args::Node { level, clock_error, up, down, direct }), _) => {
                let of = match usize::try_from(node) {
                    Ok(node) => &mut self.nodes[node],
                    Err(_) => self.root.insert(Node::new("launcher")),
                };
                *of = Node { name: of.name, level, clock_error, up, down, direct };
            }
            // The root's own fences and requests are left out: they are part of the launcher's work.
            (Some(Args::Fence { .. }), _) if node < 0 => {}
            (_, Some(_)) if node < 0 && event.tid > 0 => {}
            (Some(&Args::Fence { last_in, last_rank, bytes_up, bytes_down, .. }), Some(dur)) => {
                let all = self.collectives.entry(&event.name).or_default();
                all.node.push(node);
                all.first_in.push(event.ts);
                all.last_in.push(last_in);
                all.left.push(event.ts + dur);
                all.last_rank.push(last_rank);
                all.bytes_up.push(bytes_up);
                all.bytes_down.push(bytes_down);
            }
            (_, Some(dur)) => {
                let all = self.spans.entry(&event.name).or_default();
                all.node.push(node);
                all.rank.push(i64::from(event.tid) - 1);
                all.from.push(event.ts);
                all.took.push(dur);
            }
            (_, None) => {}
        }
    }
}
