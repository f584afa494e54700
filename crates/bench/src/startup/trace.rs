//! The bytes that agents have moved, from the trace that `wireup run --profile FILE` writes.
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::cases::Place;
use crate::metric::{Metric, Sample};

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("trace: {0}")]
    Unreadable(#[from] io::Error),
    #[error("trace: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("trace: exchange {epoch} was seen by {found} of {expected} nodes")]
    Missing { epoch: u32, found: usize, expected: u32 },
}

/// One exchange on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    bytes_up: u64,
    bytes_down: u64,
}

/// All exchanges of a job, by epoch, of every node.
#[derive(Debug, Default, PartialEq)]
pub struct Trace {
    exchanges: BTreeMap<u32, Vec<Moved>>,
}

/// # Errors
/// The file is not there or is no trace.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    parse(&fs::read_to_string(path)?)
}

fn parse(text: &str) -> Result<Trace, TraceError> {
    let value: Value = serde_json::from_str(text)?;
    let mut trace = Trace::default();
    for event in value["traceEvents"].as_array().into_iter().flatten() {
        let epoch = event["name"].as_str().and_then(|name| name.strip_prefix("fence ")?.parse().ok());
        let Some(epoch) = epoch else { continue };
        let args = &event["args"];
        let number = |name: &str| args[name].as_u64().unwrap_or(0);
        trace
            .exchanges
            .entry(epoch)
            .or_default()
            .push(Moved { bytes_up: number("bytes_up"), bytes_down: number("bytes_down") });
    }
    Ok(trace)
}

impl Trace {
    /// Bytes for each value of the job: from the mean node upward, and into the mean node.
    pub fn bytes(&self, epoch: u32, place: Place) -> Result<Sample, TraceError> {
        let moved = self.exchanges.get(&epoch).map_or(&[][..], |moved| moved);
        if moved.len() != place.node_count as usize {
            return Err(TraceError::Missing { epoch, found: moved.len(), expected: place.node_count });
        }
        let nodes = f64::from(place.node_count);
        let mean = |of: fn(&Moved) -> u64| moved.iter().map(of).sum::<u64>() as f64 / nodes;
        Ok(Sample(vec![
            (Metric::UpPerValue, mean(|moved| moved.bytes_up) / f64::from(place.ppn)),
            (Metric::DownPerValue, mean(|moved| moved.bytes_down) / f64::from(place.job_size())),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"displayTimeUnit":"ms","traceEvents":[
        {"name":"fence 0","ph":"X","pid":1,"tid":0,"ts":10.0,"dur":30.0,"args":{"bytes_up":40,"bytes_down":80}},
        {"name":"fence 0","ph":"X","pid":2,"tid":0,"ts":20.0,"dur":40.0,"args":{"bytes_up":44,"bytes_down":84}},
        {"name":"fence 1","ph":"X","pid":1,"tid":0,"ts":90.0,"dur":5.0,"args":{"bytes_up":0,"bytes_down":0}},
        {"name":"exec","ph":"X","pid":1,"tid":1,"ts":0.0,"dur":1.0}]}"#;

    #[test]
    fn bytes_are_counted_for_each_value() {
        let trace = parse(TEXT).unwrap();
        let place = Place { node_count: 2, ppn: 2 };
        let sample = trace.bytes(0, place).unwrap();
        assert_eq!((sample.get(Metric::UpPerValue), sample.get(Metric::DownPerValue)), (Some(21.0), Some(20.5)));
        assert!(matches!(trace.bytes(1, place), Err(TraceError::Missing { found: 1, .. })));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(parse("{").is_err());
        assert_eq!(parse("{}").unwrap(), Trace::default());
    }
}
