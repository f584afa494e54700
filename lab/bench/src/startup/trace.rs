//! The bytes that agents have moved, from the trace written by `wireup run --profile FILE`.
use serde_json::Value;

use crate::command::{Failure, wrong};
use crate::layout::Layout;
use crate::samples::{Measures, bytes, count};

/// The event in which a node's agent reports what its links have carried for the job's exchanges.
const TRAFFIC: &str = "exchange traffic";

/// Bytes and frames into one node: from children, from the parent, over direct links.
type Traffic = ([u64; 3], [u64; 3]);

/// What one exchange of the whole job has brought into its nodes: payload per value of the job. Over all links: the
/// worst node and the mean; then the worst node for each kind of link: from children, from the parent, direct.
///
/// # Errors
/// The text is not a trace, or lacks a node.
pub fn evaluate(text: &str, layout: Layout) -> Result<Measures, Failure> {
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("trace: {error}")))?;
    let events = value["traceEvents"].as_array().into_iter().flatten().filter(|event| event["name"] == TRAFFIC);
    let ways =
        |event: &Value, name: &str| ["up", "down", "direct"].map(|way| event["args"][way][name].as_u64().unwrap_or(0));
    let nodes: Vec<Traffic> = events.map(|event| (ways(event, "bytes_in"), ways(event, "frames_in"))).collect();
    if nodes.len() != layout.node_count as usize {
        return Err(wrong(format!("trace: {} of {} nodes told their traffic", nodes.len(), layout.node_count)));
    }
    let values = f64::from(layout.job_size());
    let most = |of: &dyn Fn(&Traffic) -> u64| nodes.iter().map(of).max().unwrap_or(0) as f64;
    let all = nodes.iter().flat_map(|(bytes, _)| bytes).sum::<u64>() as f64;
    Ok(vec![
        bytes("in-per-value", most(&|(bytes, _)| bytes.iter().sum()) / values),
        bytes("in-per-value-mean", all / f64::from(layout.node_count) / values),
        bytes("up-in-per-value", most(&|(bytes, _)| bytes[0]) / values),
        bytes("down-in-per-value", most(&|(bytes, _)| bytes[1]) / values),
        bytes("direct-in-per-value", most(&|(bytes, _)| bytes[2]) / values),
        count("frames-in", most(&|(_, frames)| frames.iter().sum())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"traceEvents":[
        {"name":"exchange traffic","args":{"up":{"frames_in":1,"bytes_in":40},"down":{"frames_in":0,"bytes_in":0}}},
        {"name":"exchange traffic","args":{"up":{"frames_in":0,"bytes_in":0},"down":{"frames_in":1,"bytes_in":80},
            "direct":{"frames_in":2,"bytes_in":12}}},
        {"name":"exec","ts":0.0,"dur":1.0}]}"#;

    #[test]
    fn bytes_are_counted_per_value() {
        let measures = evaluate(TEXT, Layout { node_count: 2, ppn: 2 }).unwrap();
        let values: Vec<f64> = measures.iter().map(|measure| measure.value).collect();
        assert_eq!(values, [23.0, 16.5, 10.0, 20.0, 3.0, 3.0]);
        let three = Layout { node_count: 3, ppn: 1 };
        assert!(evaluate("{", three).is_err() && evaluate(TEXT, three).is_err());
    }
}
