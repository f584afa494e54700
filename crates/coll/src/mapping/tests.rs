use super::*;
use alloc::string::String;
use proptest::prelude::*;

fn block(first_node: u32, nodes: u32, ppn: u32) -> Block {
    Block { first_node, nodes, ppn }
}

fn text(blocks: &[Block], job_size: u32, nodes: u32) -> String {
    let mapping = Mapping::new(blocks, job_size, nodes).expect("test blocks are valid");
    String::from_utf8(mapping.process_mapping().expect("the text fits into a value")).expect("ASCII")
}

fn triples(text: &str) -> Vec<Vec<u32>> {
    let body = text.strip_prefix("(vector,").and_then(|rest| rest.strip_suffix(')')).expect("a vector");
    let numbers = |triple: &str| -> Vec<u32> { triple.split(',').map(|word| word.parse().expect("number")).collect() };
    body.trim_matches(['(', ')']).split("),(").map(numbers).inspect(|triple| assert_eq!(triple.len(), 3)).collect()
}

/// Reads a mapping as MPICH does: triples in order, then again from the first one at node 0.
fn parse(text: &str, job_size: u32) -> Vec<u32> {
    let triples = triples(text);
    let mut nodes = Vec::new();
    let mut index = 0;
    while nodes.len() < job_size as usize {
        let (first, count, ppn) = (triples[index][0], triples[index][1], triples[index][2]);
        nodes.extend((first..first + count).flat_map(|node| (0..ppn).map(move |_| node)));
        index += 1;
        if index == triples.len() && nodes.len() < job_size as usize {
            index = triples.iter().position(|triple| triple[0] == 0).expect("a block to start over from");
        }
    }
    nodes.truncate(job_size as usize);
    nodes
}

#[test]
fn the_mapping_text_has_all_rounds() {
    assert_eq!(text(&evenly(2, 8), 8, 2), "(vector,(0,2,4))");
    assert_eq!(text(&evenly(3, 7), 7, 3), "(vector,(0,1,3),(1,2,2))");
    assert_eq!(text(&by_node(2, 4), 4, 2), "(vector,(0,2,1),(0,2,1))");
    assert_eq!(text(&by_node(2, 3), 3, 2), "(vector,(0,2,1),(0,1,1))");
    assert_eq!(text(&by_node(1, 500), 500, 1), "(vector,(0,1,500))");
    assert_eq!(text(&by_ppn(2, 4, 11), 11, 2), "(vector,(0,2,4),(0,1,3))");
    assert_eq!(text(&by_ppn(2, 2, 7), 7, 2), "(vector,(0,2,2),(0,1,2),(1,1,1))");
    assert_eq!(text(&[block(0, 2, 1), block(0, 2, 1)], 4, 2), "(vector,(0,2,1),(0,2,1))");
    assert_eq!(text(&[block(1, 1, 2), block(1, 1, 2)], 4, 2), "(vector,(1,1,4))");
    assert_eq!(text(&by_slot(&[2, 2, 0, 3], 7), 7, 4), "(vector,(0,2,2),(3,1,3))");
}

/// If all rounds do not fit into a PMI value, the text has one round, which MPICH's readers repeat.
#[test]
fn the_mapping_text_is_bounded() {
    assert_eq!(text(&by_node(2, 252), 252, 2).len(), 8 + 126 * 8);
    assert_eq!(text(&by_node(2, 254), 254, 2), "(vector,(0,2,1))");
    assert_eq!(text(&by_node(2, 100_000), 100_000, 2), "(vector,(0,2,1))");
    assert_eq!(text(&[block(0, 2, 1), block(0, 1, 3)].repeat(100), 500, 2), "(vector,(0,2,1),(0,1,3))");
    let slots: Vec<u32> = (0..400).map(|node| 1 + node % 2).collect();
    let mapping = Mapping::new(&by_slot(&slots, 600), 600, 400).expect("valid");
    assert_eq!(mapping.process_mapping(), None);
    let from_node_1 = Mapping::new(&[block(1, 1, 1), block(0, 1, 1)].repeat(200), 400, 2).expect("valid");
    assert_eq!(from_node_1.process_mapping(), None, "MPICH's readers would repeat it from node 0");
}

#[test]
fn placements_use_no_more_blocks_than_needed() {
    assert_eq!(evenly(4, 2), [block(0, 2, 1)]);
    assert_eq!(evenly(0, 2), []);
    assert_eq!(by_node(1000, 4), [block(0, 4, 1)]);
    assert_eq!(by_ppn(4, u32::MAX, u32::MAX), [block(0, 1, u32::MAX)]);
    assert_eq!(by_ppn(4, 0, 3), []);
    assert_eq!(by_slot(&[4; 1000], 9), [block(0, 3, 4)]);
}

#[test]
fn invalid_blocks_give_distinct_errors() {
    let new = |blocks: &[Block], job_size, nodes| Mapping::new(blocks, job_size, nodes).err();
    assert_eq!(new(&[], 1, 1), Some(MappingError::Empty { job_size: 1 }));
    assert_eq!(new(&[block(0, 1, 1), block(0, 0, 1)], 1, 1), Some(MappingError::EmptyBlock { block: 1 }));
    assert_eq!(new(&[block(0, 1, 0)], 1, 1), Some(MappingError::EmptyBlock { block: 0 }));
    let out = MappingError::NodeOutOfRange { block: 0, node: u64::from(u32::MAX) + 3, node_count: 8 };
    assert_eq!(new(&[block(u32::MAX, 4, 1)], 1, 8), Some(out));
    assert_eq!(new(&[block(1, 1, 2)], 3, 2), Some(MappingError::RanksRemain { placed: 2, job_size: 3 }));
    assert_eq!(new(&[block(0, 1, 70_000)], 65_536, 1), Some(MappingError::NodeTooFull { node: 0, ranks: 65_536 }));
    assert_eq!(new(&[block(0, 1, 70_000)], 65_535, 1), None);
    assert_eq!(new(&[block(0, 2, 1)], 131_071, 2), Some(MappingError::NodeTooFull { node: 0, ranks: 65_536 }));
    assert_eq!(new(&[block(0, 1, u32::MAX), block(0, 1, u32::MAX)], 5, 1), None);
    assert_eq!(new(&[], 0, 0), None);
}

fn any_mapping() -> impl Strategy<Value = (Vec<Block>, u32, u32)> {
    let blocks = proptest::collection::vec((0u32..12, 1u32..6, 1u32..5), 1..6);
    (blocks, 0u32..120, any::<bool>()).prop_map(|(raw, job_size, from_zero)| {
        let mut blocks: Vec<Block> = raw.into_iter().map(|(first, nodes, ppn)| block(first, nodes, ppn)).collect();
        if from_zero {
            blocks[0].first_node = 0;
        }
        let round: u32 = blocks.iter().map(|block| block.nodes * block.ppn).sum();
        let job_size = if blocks[0].first_node == 0 { job_size } else { job_size.min(round) };
        (blocks, job_size, 18)
    })
}

proptest! {
    #[test]
    fn place_and_ranks_of_are_inverse((blocks, job_size, nodes) in any_mapping()) {
        let mapping = Mapping::new(&blocks, job_size, nodes).expect("valid");
        let mut seen = 0;
        for node in (0..nodes).map(NodeId) {
            let mut count = 0;
            for (local, rank) in mapping.ranks_of(node).enumerate() {
                prop_assert_eq!(mapping.place(rank), Some((node, LocalRank(local as u16))));
                count += 1;
            }
            prop_assert_eq!(mapping.local_size(node), count);
            if let Some(run) = mapping.run_of(node) {
                prop_assert!(!run.is_empty() && run.map(Rank).eq(mapping.ranks_of(node)));
            } else {
                let slots = u64::from(blocks[0].nodes) * u64::from(blocks[0].ppn);
                prop_assert!(count == 0 || blocks.len() > 1 || u64::from(job_size) > slots);
            }
            seen += count;
        }
        prop_assert_eq!(seen, job_size);
        prop_assert_eq!(mapping.place(Rank(job_size)), None);
    }

    #[test]
    fn mapping_text_reads_back_to_the_same_placement((blocks, job_size, nodes) in any_mapping()) {
        prop_assume!(job_size > 0);
        let mapping = Mapping::new(&blocks, job_size, nodes).expect("valid");
        let written = text(&blocks, job_size, nodes);
        let placed: Vec<u32> =
            (0..job_size).map(|rank| mapping.place(Rank(rank)).expect("in the job").0.0).collect();
        prop_assert_eq!(parse(&written, job_size), placed, "{}", written);
        if text::all_rounds(&blocks, job_size, VALUE_LEN_MAX).is_some() {
            let ranks: u32 = triples(&written).iter().map(|triple| triple[1] * triple[2]).sum();
            prop_assert_eq!(ranks, job_size, "{}", written);
        }
    }

    #[test]
    fn every_placement_covers_all_ranks(
        slots in proptest::collection::vec(0u32..5, 1..20),
        job_size in 1u32..200,
        ppn in 1u32..9,
    ) {
        let nodes = slots.len() as u32;
        let even = Mapping::new(&evenly(nodes, job_size), job_size, nodes).expect("valid");
        let sizes: Vec<u32> = (0..nodes).map(|node| even.local_size(NodeId(node))).collect();
        prop_assert!(sizes.is_sorted_by(|left, right| left >= right) && sizes[0] - sizes[sizes.len() - 1] <= 1);
        prop_assert!(Mapping::new(&by_node(nodes, job_size), job_size, nodes).is_ok());
        let wrapped = Mapping::new(&by_ppn(nodes, ppn, job_size), job_size, nodes).expect("valid");
        prop_assert_eq!(wrapped.local_size(NodeId(0)) >= ppn.min(job_size), true);
        let total: u32 = slots.iter().sum();
        if job_size <= total {
            let filled = Mapping::new(&by_slot(&slots, job_size), job_size, nodes).expect("valid");
            let mut left = job_size;
            for (node, &slots) in slots.iter().enumerate() {
                prop_assert_eq!(filled.local_size(NodeId(node as u32)), slots.min(left));
                left -= slots.min(left);
            }
        }
    }
}
