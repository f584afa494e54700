//! The bytes that agents have moved, from the trace written by `wireup run --profile FILE`.
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::cases::Place;
use crate::metric::{Metric, Sample};

/// The event in which a node's agent reports what its links have carried for the job's exchanges.
const TRAFFIC: &str = "exchange traffic";

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("trace: {0}")]
    Unreadable(#[from] io::Error),
    #[error("trace: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("trace: {found} of {expected} nodes told their traffic")]
    Missing { found: usize, expected: u32 },
}

/// Traffic into one node: from children, from the parent, over direct links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    bytes: [u64; 3],
    frames: [u64; 3],
}

/// # Errors
/// The file does not exist, is not a trace, or lacks a node.
pub fn read(path: &Path, place: Place) -> Result<Sample, TraceError> {
    evaluate(&parse(&fs::read_to_string(path)?)?, place)
}

fn parse(text: &str) -> Result<Vec<Traffic>, TraceError> {
    let value: Value = serde_json::from_str(text)?;
    let events = value["traceEvents"].as_array().into_iter().flatten().filter(|event| event["name"] == TRAFFIC);
    let ways =
        |event: &Value, name: &str| ["up", "down", "direct"].map(|way| event["args"][way][name].as_u64().unwrap_or(0));
    Ok(events.map(|event| Traffic { bytes: ways(event, "bytes_in"), frames: ways(event, "frames_in") }).collect())
}

/// What one exchange of the whole job has brought into its nodes, per value.
fn evaluate(nodes: &[Traffic], place: Place) -> Result<Sample, TraceError> {
    if nodes.len() != place.node_count as usize {
        return Err(TraceError::Missing { found: nodes.len(), expected: place.node_count });
    }
    let values = f64::from(place.job_size());
    let most = |of: &dyn Fn(&Traffic) -> u64| nodes.iter().map(of).max().unwrap_or(0) as f64;
    let all = nodes.iter().flat_map(|node| node.bytes).sum::<u64>() as f64;
    Ok(Sample(vec![
        (Metric::InPerValue, most(&|node| node.bytes.iter().sum()) / values),
        (Metric::InPerValueMean, all / f64::from(place.node_count) / values),
        (Metric::UpInPerValue, most(&|node| node.bytes[0]) / values),
        (Metric::DownInPerValue, most(&|node| node.bytes[1]) / values),
        (Metric::DirectInPerValue, most(&|node| node.bytes[2]) / values),
        (Metric::FramesIn, most(&|node| node.frames.iter().sum())),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"displayTimeUnit":"ms","traceEvents":[
        {"name":"exchange traffic","ph":"M","pid":1,"tid":0,"ts":0.0,"args":{
            "up":{"frames_in":1,"bytes_in":40,"frames_out":0,"bytes_out":0},
            "down":{"frames_in":0,"bytes_in":0,"frames_out":1,"bytes_out":80},
            "direct":{"frames_in":0,"bytes_in":0,"frames_out":0,"bytes_out":0}}},
        {"name":"exchange traffic","ph":"M","pid":2,"tid":0,"ts":0.0,"args":{
            "up":{"frames_in":0,"bytes_in":0,"frames_out":1,"bytes_out":40},
            "down":{"frames_in":1,"bytes_in":80,"frames_out":0,"bytes_out":0},
            "direct":{"frames_in":2,"bytes_in":12,"frames_out":0,"bytes_out":0}}},
        {"name":"exec","ph":"X","pid":1,"tid":1,"ts":0.0,"dur":1.0}]}"#;

    #[test]
    fn bytes_are_counted_per_value() {
        let nodes = parse(TEXT).unwrap();
        let sample = evaluate(&nodes, Place { node_count: 2, ppn: 2 }).unwrap();
        let per_value = |metric| sample.get(metric).unwrap();
        assert_eq!((per_value(Metric::InPerValue), per_value(Metric::InPerValueMean)), (23.0, 16.5));
        assert_eq!((per_value(Metric::UpInPerValue), per_value(Metric::DownInPerValue)), (10.0, 20.0));
        assert_eq!((per_value(Metric::DirectInPerValue), per_value(Metric::FramesIn)), (3.0, 3.0));
    }

    #[test]
    fn malformed_or_incomplete_traces_are_refused() {
        assert!(parse("{").is_err());
        let place = Place { node_count: 3, ppn: 1 };
        assert!(matches!(evaluate(&parse(TEXT).unwrap(), place), Err(TraceError::Missing { found: 2, expected: 3 })));
        assert_eq!(parse("{}").unwrap(), []);
    }
}
