//! The value of `--agent-bench`, as `wireup bench p2p` and `coll` pass it: what agents measure before the ranks start.
//!
//! `A,B:BYTESxTIMES,…` between the agents of nodes A and B, or `all:BYTESxTIMES,…` among the agents of all nodes.

use wireup_flags::{Error, Value};
use wireup_wire::ids::NodeId;
use wireup_wire::job::{AgentBench, BenchStep, BenchTask};
use wireup_wire::limits::{ALLGATHER_LEN_MAX, FRAME_PAYLOAD_MAX};

pub fn parse(value: &Value) -> Result<AgentBench, Error> {
    read(&value.text()?).ok_or_else(|| value.refused("write A,B:BYTESxTIMES,.. or all:BYTESxTIMES,.."))
}

fn read(value: &str) -> Option<AgentBench> {
    let (who, sizes) = value.split_once(':')?;
    let task = match who.split_once(',') {
        None if who == "all" => BenchTask::Allgather,
        None => return None,
        Some((first, second)) => {
            let node = |text: &str| text.parse().ok().map(NodeId);
            BenchTask::PingPong { first: node(first)?, second: node(second)? }
        }
    };
    if matches!(task, BenchTask::PingPong { first, second } if first == second) {
        return None;
    }
    let bytes_max = if task == BenchTask::Allgather { ALLGATHER_LEN_MAX as u32 } else { FRAME_PAYLOAD_MAX as u32 };
    let step = |text: &str| {
        let (bytes, iterations) = text.split_once('x')?;
        let bytes = bytes.parse().ok().filter(|bytes| *bytes <= bytes_max)?;
        Some(BenchStep { bytes, iterations: iterations.parse().ok().filter(|n| *n > 0)? })
    };
    Some(AgentBench { task, steps: sizes.split(',').map(step).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_nonsense_is_refused() {
        let steps = vec![BenchStep { bytes: 8, iterations: 100 }, BenchStep { bytes: 4096, iterations: 20 }];
        let task = BenchTask::PingPong { first: NodeId(1), second: NodeId(2) };
        assert_eq!(read("1,2:8x100,4096x20"), Some(AgentBench { task, steps: steps.clone() }));
        assert_eq!(read("all:8x100,4096x20"), Some(AgentBench { task: BenchTask::Allgather, steps }));
        for nonsense in [
            "",
            "all",
            "all:",
            "1:8x1",
            "1,1:8x1",
            "1,2:8",
            "1,2:8x0",
            "1,2:x1",
            "1,2:8x1,",
            "all:65537x1",
            "1,2:268435457x1",
        ] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
