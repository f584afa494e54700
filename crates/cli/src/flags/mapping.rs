//! How ranks are mapped to nodes and processors, as typed: the values of `--map-by`, `--rank-by`, `--bind-to`,
//! `--rank-map`.

use wireup_flags::{Error, Value};
use wireup_os::bind::CpuSet;
use wireup_wire::job::{BindTo, Object};

/// Which ranks share a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MapBy {
    #[default]
    Slot,
    Node,
    /// Each node gets at most this many ranks.
    Ppr(u32),
    /// The ranks of a node are chosen as with `Slot`, and go to the node's objects of this kind in turn.
    Objects(Object),
    /// Each object of this kind gets at most this many ranks.
    PprObject(u32, Object),
    /// One rank for each entry of the host list, in the order of the list.
    Seq,
    RankFile,
}

/// The properties that follow the word of `--map-by` after colons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapProperties {
    /// Cores, or hardware threads, for each rank.
    pub cores: Option<u32>,
    /// Only every `step`-th object gets ranks; 0: not given.
    pub step: u32,
    /// Whether hardware threads count as cores.
    pub threads: bool,
    pub oversubscribe: bool,
    pub no_oversubscribe: bool,
    pub no_local: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Map {
    /// The mapping as typed, if `by` was later converted to ranks per node for the objects of this machine.
    pub typed: Option<MapBy>,
    pub by: Option<MapBy>,
    pub properties: MapProperties,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RankBy {
    #[default]
    Slot,
    Node,
    Fill,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bind {
    pub to: Option<BindTo>,
    /// Whether ranks may share processors without a warning.
    pub overload: bool,
}

/// Names of hardware objects, including those that other launchers use.
const OBJECTS: &[(&str, Object)] = &[
    ("thread", Object::Thread),
    ("hwthread", Object::Thread),
    ("core", Object::Core),
    ("l1cache", Object::L1),
    ("l1", Object::L1),
    ("l2cache", Object::L2),
    ("l2", Object::L2),
    ("l3cache", Object::L3),
    ("l3", Object::L3),
    ("numa", Object::Numa),
    ("socket", Object::Socket),
    ("package", Object::Socket),
    ("board", Object::Machine),
    ("machine", Object::Machine),
];

const OBJECT_ADVICE: &str = "choose thread, core, l1cache, l2cache, l3cache, numa or socket";

pub fn is_object(word: &str) -> bool {
    OBJECTS.iter().any(|(name, _)| *name == word)
}

pub fn name_of(object: Object) -> &'static str {
    OBJECTS.iter().find(|(_, known)| *known == object).map_or("", |(name, _)| name)
}

pub fn map_by(value: &Value) -> Result<Map, Error> {
    let text = value.text()?;
    let mut words = text.split(':');
    let first = words.next().unwrap_or_default();
    let mut map = Map { by: by(value, first, &mut words)?, ..Map::default() };
    for word in words {
        property(value, word, &mut map.properties)?;
    }
    let properties = &map.properties;
    match () {
        () if properties.oversubscribe && properties.no_oversubscribe => {
            Err(value.refused("oversubscribe and nooversubscribe contradict each other; leave one of them out"))
        }
        () if properties.step > 0 && !matches!(map.by, Some(MapBy::Objects(_))) => {
            Err(value.refused("step needs an object to count, such as core:step=2"))
        }
        () => Ok(map),
    }
}

fn by<'t>(value: &Value, first: &str, words: &mut impl Iterator<Item = &'t str>) -> Result<Option<MapBy>, Error> {
    let plain = [("slot", MapBy::Slot), ("node", MapBy::Node), ("seq", MapBy::Seq), ("rankfile", MapBy::RankFile)];
    if first.is_empty() {
        return Ok(None);
    }
    if first == "ppr" {
        let (Some(number), Some(object)) = (words.next(), words.next()) else {
            return Err(value.refused("write ppr:N:node, or ppr:N: with another object"));
        };
        let number = value.part(number).at_least_one()?;
        return match object {
            "node" => Ok(Some(MapBy::Ppr(number))),
            object => {
                let object = value.part(object).choice_or(OBJECTS, OBJECT_ADVICE)?;
                Ok(Some(MapBy::PprObject(number, object)))
            }
        };
    }
    let objects = OBJECTS.iter().map(|&(name, object)| (name, MapBy::Objects(object)));
    let all: Vec<(&'static str, MapBy)> = plain.into_iter().chain(objects).collect();
    value
        .part(first)
        .choice_or(&all, "choose slot, node, ppr:N:node, seq, rankfile, or an object such as core or numa")
        .map(Some)
}

fn property(value: &Value, word: &str, properties: &mut MapProperties) -> Result<(), Error> {
    let (name, number) = word.split_once('=').unwrap_or((word, ""));
    match name.to_ascii_lowercase().as_str() {
        "pe" => properties.cores = Some(value.part(number).at_least_one()?),
        "step" => properties.step = value.part(number).at_least_one()?,
        "hwtcpus" => properties.threads = true,
        "corecpus" => properties.threads = false,
        "oversubscribe" => properties.oversubscribe = true,
        "nooversubscribe" => properties.no_oversubscribe = true,
        "nolocal" => properties.no_local = true,
        // Properties that ask for what wireup always does: it maps spawned jobs and several nodes alike.
        "span" | "inherit" | "noinherit" | "ordered" => {}
        _ => {
            let advice = "after the colon write pe=K, step=K, hwtcpus, oversubscribe, nooversubscribe or nolocal";
            return Err(value.part(word).refused(advice));
        }
    }
    Ok(())
}

pub fn rank_by(value: &Value) -> Result<RankBy, Error> {
    value.choice(&[("slot", RankBy::Slot), ("node", RankBy::Node), ("fill", RankBy::Fill)])
}

pub fn bind_to(value: &Value) -> Result<Bind, Error> {
    let text = value.text()?;
    if let Some(lists) = text.strip_prefix("user:") {
        return Ok(Bind { to: Some(BindTo::Lists(cpu_lists(value, lists)?)), overload: false });
    }
    let mut words = text.split(':');
    let first = words.next().unwrap_or_default();
    let mut count = 1;
    let mut bind = Bind::default();
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "overload-allowed" => bind.overload = true,
            // Properties that ask for what wireup always does: unknown processors leave ranks unbound, and ranks are
            // bound in order.
            "if-supported" | "ordered" | "no-overload" => {}
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => count = value.part(number).at_least_one()?,
            _ => {
                return Err(value.part(word).refused("after the colon write a number of objects, or overload-allowed"));
            }
        }
    }
    bind.to = match first {
        "" => None,
        "even" => Some(BindTo::Even),
        "none" => Some(BindTo::None),
        object => {
            let object = value.part(object).choice_or(OBJECTS, BIND_ADVICE)?;
            Some(BindTo::To { object, count })
        }
    };
    Ok(bind)
}

const BIND_ADVICE: &str = "choose even, none, core, thread, socket, numa, l1cache, l2cache, l3cache or user:LIST";

/// `0+2,1,4-5`: the cpus of local rank 0, 1, 2.
fn cpu_lists(value: &Value, lists: &str) -> Result<Vec<String>, Error> {
    let list = |list: &str| {
        let set = CpuSet::parse(&list.replace('+', ",")).filter(|set| !set.is_empty());
        set.map(|set| set.to_string()).ok_or_else(|| value.part(list).refused("write cpus such as 0, 0+2 or 4-5"))
    };
    lists.split(',').map(list).collect()
}

/// A list of cpus in Linux's format.
pub fn cpu_set(value: &Value) -> Result<String, Error> {
    let set = CpuSet::parse(&value.text()?).filter(|set| !set.is_empty());
    set.map(|set| set.to_string()).ok_or_else(|| value.refused("write cpus such as 0-7,16-23"))
}

/// The node of each rank: `0,0,1`, or `(vector,(first,nodes,ranks),...)`.
pub fn rank_map(value: &Value) -> Result<Vec<u32>, Error> {
    let text = value.text()?;
    let Some(vector) = text.strip_prefix("(vector,").and_then(|rest| rest.strip_suffix(')')) else {
        return value.list(Value::number);
    };
    let mut nodes = Vec::new();
    for triple in vector.trim_matches(['(', ')']).split("),(") {
        let numbers: Vec<u32> = value.part(triple).list(Value::number)?;
        let [first, count, ranks] = numbers[..] else {
            return Err(value.part(triple).refused("write three numbers: first node, nodes, ranks of each"));
        };
        if u64::from(count) * u64::from(ranks) > u64::from(wireup_wire::limits::JOB_SIZE_MAX) {
            return Err(value.part(triple).refused("too many ranks"));
        }
        nodes.extend((first..first.saturating_add(count)).flat_map(|node| std::iter::repeat_n(node, ranks as usize)));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(word: &str) -> Value {
        Value { flag: "--map-by".into(), word: word.into() }
    }

    fn mapped(word: &str) -> Map {
        map_by(&value(word)).expect(word)
    }

    #[test]
    fn a_mapping_has_a_word_and_properties() {
        assert_eq!(mapped("ppr:2:node").by, Some(MapBy::Ppr(2)));
        assert_eq!(mapped("ppr:2:package:pe=3").by, Some(MapBy::PprObject(2, Object::Socket)));
        assert_eq!(mapped("ppr:2:package:pe=3").properties.cores, Some(3));
        assert_eq!(mapped("l3cache").by, Some(MapBy::Objects(Object::L3)));
        let properties = mapped(":OVERSUBSCRIBE:PE=2").properties;
        assert!(properties.oversubscribe && properties.cores == Some(2));
        assert_eq!(mapped("core:step=2").properties.step, 2);
        let refused = |word: &str| map_by(&value(word)).expect_err(word).to_string();
        assert_eq!(refused("numaa"), "--map-by numaa: did you mean numa?");
        assert!(refused("slot:peg=2").contains("after the colon write pe=K"));
        assert!(refused("ppr:2").contains("ppr:N:node"));
        assert!(refused("node:oversubscribe:nooversubscribe").contains("contradict"));
        assert!(refused("node:step=2").contains("needs an object"));
    }

    #[test]
    fn a_binding_is_an_object_a_number_of_them_or_lists() {
        let bound = |word: &str| bind_to(&value(word)).expect(word);
        assert_eq!(bound("core:2").to, Some(BindTo::To { object: Object::Core, count: 2 }));
        let expected = Bind { to: Some(BindTo::To { object: Object::Thread, count: 1 }), overload: true };
        assert_eq!(bound("hwthread:overload-allowed"), expected);
        assert_eq!(bound(":overload-allowed"), Bind { to: None, overload: true });
        assert_eq!(bound("user:0+2,1,4-5").to, Some(BindTo::Lists(vec!["0,2".into(), "1".into(), "4-5".into()])));
        for wrong in ["cores", "core:x", "user:a", "user:", "core:0"] {
            assert!(bind_to(&value(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rank_maps_are_lists_or_vectors() {
        assert_eq!(rank_map(&value("0,0,1")), Ok(vec![0, 0, 1]));
        assert_eq!(rank_map(&value("(vector,(0,2,2),(1,1,1))")), Ok(vec![0, 0, 1, 1, 1]));
        assert!(rank_map(&value("(vector,(0,2))")).is_err() && rank_map(&value("a")).is_err());
        assert!(rank_map(&value("(vector,(0,4000000000,4000000000))")).is_err());
    }
}
