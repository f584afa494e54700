//! Open MPI's rankfiles: the host and the processors of each rank.
//!
//! ```text
//!   # comment
//!   rank 0=n1 slot=0-1        cores 0 and 1
//!   rank 1=n1 slot=1:0,1      cores 0 and 1 of socket 1
//!   rank 2=+n0 slot=*         all, on the first host of --hosts or --hostfile
//! ```
//!
//! The job then has its ranks in the order of this list of hosts, as with `--map-by seq`.

use super::mapping::MapBy;
use super::parsed::Parsed;
use crate::bounded_file;
use crate::hosts::{self, Entry};
use std::collections::BTreeMap;

/// Longest rankfile. Chosen: as long as host files.
const BYTES_MAX: u64 = 32 << 20;

const SYNTAX: &str = "write rank N=HOST slot=CORES, such as rank 0=n1 slot=0-1";

#[derive(Clone, PartialEq, Eq, Debug)]
struct RankPlace {
    host: String,
    slot: String,
}

/// Replaces hosts and mapping with the contents of `--rankfile`.
pub fn apply(parsed: Parsed) -> Result<Parsed, String> {
    let Some(path) = &parsed.rankfile else { return Ok(parsed) };
    let file = path.display().to_string();
    let whole = |problem: String| format!("rankfile {file}: {problem}");
    let unreadable = |problem| whole(format!("{problem}; name a file that can be read"));
    let text = bounded_file::read(path, BYTES_MAX).map_err(unreadable)?;
    let places = parse(&file, &String::from_utf8_lossy(&text))?;
    let named = match places.iter().any(|place| place.host.starts_with('+')) {
        true => named(&parsed).map_err(whole)?,
        false => Vec::new(),
    };
    let hosts: Vec<String> = places.iter().map(|place| host(place, &named)).collect::<Result<_, _>>().map_err(whole)?;
    if parsed.virtual_nodes.is_some() {
        return Err(whole("it names hosts and cannot be combined with --virtual-nodes; leave one of them out".into()));
    }
    let mut parsed = parsed;
    let ranks: Option<u64> = parsed.programs.iter().map(|program| program.flags.ranks.map(u64::from)).sum();
    match ranks {
        Some(ranks) if ranks > places.len() as u64 => {
            return Err(whole(format!(
                "it places {} ranks, but the job has {ranks}; add lines, or lower -n",
                places.len()
            )));
        }
        Some(_) => {}
        None if parsed.programs.len() == 1 => parsed.programs[0].flags.ranks = Some(places.len() as u32),
        None => {}
    }
    parsed.map.by = Some(MapBy::RankFile);
    parsed.rank_slots = places.into_iter().map(|place| place.slot).collect();
    parsed.hosts = hosts;
    parsed.host_files = Vec::new();
    Ok(parsed)
}

/// The hosts that the flags name.
fn named(parsed: &Parsed) -> Result<Vec<Entry>, String> {
    let mut entries = hosts::list(&parsed.hosts.join(",")).map_err(|problem| problem.to_string())?;
    for file in &parsed.host_files {
        entries.extend(hosts::read_file(file)?);
    }
    Ok(entries)
}

/// `+n3`: the fourth of the hosts that were named.
fn host(place: &RankPlace, named: &[Entry]) -> Result<String, String> {
    let Some(index) = place.host.strip_prefix("+n") else { return Ok(place.host.clone()) };
    let entry = index.parse().ok().and_then(|index: usize| named.get(index));
    entry.map(|entry| entry.name.clone()).ok_or_else(|| {
        format!(
            "{} is not among the {} hosts of --hosts and --hostfile; name more, or write the host",
            place.host,
            named.len()
        )
    })
}

fn parse(file: &str, text: &str) -> Result<Vec<RankPlace>, String> {
    let mut places: BTreeMap<u32, RankPlace> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let at = |problem: String| format!("rankfile {file}, line {}: {problem}", index + 1);
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (rank, place) = parse_line(line).ok_or_else(|| at(format!("{line}: {SYNTAX}")))?;
        if places.insert(rank, place).is_some() {
            return Err(at(format!("rank {rank} was placed before; leave one of the lines out")));
        }
    }
    let whole = |problem: String| format!("rankfile {file}: {problem}");
    match places.keys().zip(0u32..).find(|(rank, expected)| *rank != expected) {
        Some((_, missing)) => Err(whole(format!("rank {missing} is missing; add a line for it"))),
        None if places.is_empty() => Err(whole(format!("it places no rank; {SYNTAX}"))),
        None => Ok(places.into_values().collect()),
    }
}

fn parse_line(line: &str) -> Option<(u32, RankPlace)> {
    let (rank, rest) = line.strip_prefix("rank")?.split_once('=')?;
    let (host, slot) = rest.trim().split_once(char::is_whitespace)?;
    let (word, slot) = slot.trim().split_once('=')?;
    let slot = slot.trim().trim_matches('"');
    let known = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-' | ':' | ';' | '*');
    let is_valid = matches!(word.trim(), "slot" | "slots") && !slot.is_empty() && slot.chars().all(known);
    (is_valid && !host.is_empty()).then_some(())?;
    Some((rank.trim().parse().ok()?, RankPlace { host: host.to_owned(), slot: slot.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        let places = parse("rf", text)?;
        Ok(places.into_iter().map(|place| (place.host, place.slot)).collect())
    }

    #[test]
    fn lines_are_ordered_by_rank() {
        let text = "# two\nrank 1=n1 slot=1:0,1\n\nrank 0 = n0   slot = 0-1;2 # first\n";
        assert_eq!(parsed(text), Ok(vec![("n0".into(), "0-1;2".into()), ("n1".into(), "1:0,1".into())]));
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let refused = |text: &str| parsed(text).expect_err(text);
        let expected = format!("rankfile rf, line 2: rank one=n1 slot=0: {SYNTAX}");
        assert_eq!(refused("rank 0=n0 slot=0\nrank one=n1 slot=0"), expected);
        assert!(refused("rank 0=n0 slots").contains("line 1: "));
        assert!(refused("rank 0=n0 slot=a").contains("line 1: "));
        assert!(refused("rank 0=n0 slot=0\nrank 0=n1 slot=0").contains("line 2: rank 0 was placed before"));
        assert!(refused("rank 1=n0 slot=0").contains("rank 0 is missing"));
        assert!(refused("").contains("places no rank"));
    }
}
