//! The nodes' contributions to fences and groups, and their combination.

use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::ids::NodeId;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::modex::NodeContribution;
use wireup_wire::peer;

/// The tag of fences; groups have other tags.
pub const FENCE: i32 = 0;

/// The result of a round of a barrier.
pub enum Came {
    Fence(Vec<u8>),
    Group { context: u64, data: Vec<Bytes> },
    Gone,
}

/// Combines the contributions of the members' nodes; `name`: the group's name.
pub fn came(pairs: Bytes, name: Option<&str>) -> Result<Came, String> {
    let (mut fence, mut group, mut context, mut gone) = (Vec::new(), Vec::new(), u64::MAX, false);
    for block in block::blocks(pairs) {
        let block = block.map_err(|error| error.to_string())?;
        match peer::decode::<NodeContribution>(&block.bytes).map_err(|error| error.to_string())? {
            NodeContribution::Gone => gone = true,
            NodeContribution::Fence { data } if name.is_none() => fence.extend_from_slice(&data),
            NodeContribution::Group { name: other, context: its, data } if name == Some(other.as_str()) => {
                context = context.min(its);
                group.push((block.node, data));
            }
            NodeContribution::Fence { .. } | NodeContribution::Group { .. } => {
                return Err(format!("group {} has other members on node {}", name.unwrap_or("of a fence"), block.node));
            }
        }
    }
    if gone {
        return Ok(Came::Gone);
    }
    group.sort_unstable_by_key(|(node, _): &(NodeId, Bytes)| *node);
    let data = group.into_iter().map(|(_, data)| data).collect();
    Ok(if name.is_some() { Came::Group { context, data } } else { Came::Fence(fence) })
}

pub fn gone(node: NodeId) -> Bytes {
    let mut part = Vec::new();
    block::push(&mut part, node, false, &peer::encode(&NodeContribution::Gone));
    part.into()
}

/// A tag for a group's name that differs from that of fences; if two groups get the same tag, the names reveal it.
pub fn tag(name: &str) -> i32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash >> 1) as i32).max(1)
}

/// Why a fence's data cannot be sent.
pub fn too_much(bytes: usize) -> String {
    format!("its data is {bytes} bytes, more than the {FRAME_PAYLOAD_MAX} of a message; use --modex direct")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(node: u32, part: &NodeContribution) -> Vec<u8> {
        let mut out = Vec::new();
        block::push(&mut out, NodeId(node), false, &peer::encode(part));
        out
    }

    #[test]
    fn a_group_has_the_smallest_context_and_data_in_the_order_of_nodes() {
        let part = |context, data: &'static [u8]| NodeContribution::Group {
            name: "g".into(),
            context,
            data: Bytes::from_static(data),
        };
        let pairs = [block(2, &part(9, b"two")), block(0, &part(4, b"nought"))].concat();
        let Ok(Came::Group { context, data }) = came(pairs.clone().into(), Some("g")) else { panic!() };
        assert_eq!((context, data), (4, vec![Bytes::from_static(b"nought"), Bytes::from_static(b"two")]));
        assert!(came(pairs.clone().into(), Some("h")).is_err(), "two groups with one tag");
        let pairs = [pairs, block(1, &NodeContribution::Gone)].concat();
        assert!(matches!(came(pairs.into(), Some("g")), Ok(Came::Gone)));
    }

    #[test]
    fn the_data_of_a_fence_of_some_ranks_is_joined() {
        let pairs = [
            block(1, &NodeContribution::Fence { data: "ab".into() }),
            block(0, &NodeContribution::Fence { data: "c".into() }),
        ]
        .concat();
        assert!(matches!(came(pairs.into(), None), Ok(Came::Fence(data)) if data == b"abc"));
    }

    #[test]
    fn groups_and_fences_never_share_a_number() {
        for name in ["", "a", "mpi://world", "pmix-group-0"] {
            assert!(tag(name) > 0, "{name}");
        }
    }
}
