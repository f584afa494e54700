//! How the flags bind the ranks of each node.

use super::mapping::{MapBy, RankBy, name_of};
use super::parsed::Parsed;
use wireup_node::binding;
use wireup_os::bind::Machine;
use wireup_wire::job::{BindTo, Binding, Object, Over};

/// Ranks per object become ranks per node: the objects of this machine are counted, as if all nodes were like it.
pub fn counted(parsed: &Parsed, machine: &Machine) -> Result<Option<MapBy>, String> {
    let Some(MapBy::PprObject(ranks, object)) = parsed.map.by else { return Ok(parsed.map.by) };
    let objects = binding::objects(machine, object)
        .map_err(|error| format!("--map-by cannot be applied on this machine: {error}"))?;
    Ok(Some(MapBy::Ppr(ranks.saturating_mul(objects.len() as u32))))
}

pub fn binding(parsed: &Parsed) -> Result<Binding, String> {
    let over = over(parsed);
    let unit = if parsed.map.properties.threads { Object::Thread } else { Object::Core };
    let to = match (&parsed.bind.to, parsed.map.properties.cores, over) {
        (None, Some(count), _) => BindTo::To { object: unit, count },
        (Some(BindTo::To { object, count: 1 }), Some(count), _) if *object == unit => {
            BindTo::To { object: unit, count }
        }
        (Some(BindTo::None), _, _) => BindTo::None,
        (Some(BindTo::Even | BindTo::To { .. } | BindTo::Lists(_)), Some(count), _) => {
            let first = format!("--map-by pe={count} (bind to {})", name_of(unit));
            return Err(format!("{first} contradicts --bind-to; leave one of them out"));
        }
        (Some(to), None, _) => to.clone(),
        (None, None, Some(over)) => BindTo::To { object: over.object, count: 1 },
        (None, None, None) => BindTo::Even,
    };
    let slots = if to == BindTo::None { Vec::new() } else { parsed.rank_slots.clone() };
    Ok(Binding { to, over, cpus: parsed.options.binding.cpus.clone(), slots })
}

/// The hardware objects over which the ranks of a node are distributed.
fn over(parsed: &Parsed) -> Option<Over> {
    let fills = parsed.rank_by == Some(RankBy::Fill);
    match parsed.map.by? {
        MapBy::Objects(object) => {
            let step = parsed.map.properties.step.max(1);
            Some(Over { object, step, ranks: if fills { 0 } else { 1 } })
        }
        MapBy::PprObject(ranks, object) => Some(Over { object, step: 1, ranks }),
        MapBy::Slot | MapBy::Node | MapBy::Ppr(_) | MapBy::Seq | MapBy::RankFile => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;

    fn bound(line: &str) -> Result<Binding, String> {
        binding(&parsed_words(line.split(' ')))
    }

    #[test]
    fn the_binding_follows_from_mapping_and_flag() {
        let to = |line: &str| bound(line).expect(line).to;
        let object = |object, count| BindTo::To { object, count };
        assert_eq!(to("./a"), BindTo::Even);
        assert_eq!(to("--map-by numa ./a"), object(Object::Numa, 1));
        assert_eq!(to("--map-by numa --bind-to core ./a"), object(Object::Core, 1));
        assert_eq!(to("--map-by slot:pe=3 ./a"), object(Object::Core, 3));
        assert_eq!(to("--map-by slot:pe=3:hwtcpus ./a"), object(Object::Thread, 3));
        assert_eq!(to("--map-by :pe=3 --bind-to core ./a"), object(Object::Core, 3));
        assert_eq!(to("--map-by :pe=3 --bind-to none ./a"), BindTo::None);
        assert!(bound("--map-by :pe=3 --bind-to numa ./a").expect_err("two").contains("contradicts --bind-to"));
        let over = bound("--map-by ppr:2:numa ./a").expect("valid").over;
        assert_eq!(over, Some(Over { object: Object::Numa, step: 1, ranks: 2 }));
        let filled = bound("--map-by numa --rank-by fill ./a").expect("valid").over;
        assert_eq!(filled.map(|over| over.ranks), Some(0));
    }

    #[test]
    fn ranks_per_object_are_counted_on_this_machine() {
        let parsed = parsed_words(["--map-by", "ppr:2:numa", "./a"]);
        assert_eq!(counted(&parsed, &Machine::described("counted", 8, false, 2)), Ok(Some(MapBy::Ppr(4))));
    }
}
