//! The groups that one rank of our own client has defined, and its collectives in them that are under way.

use std::collections::{BTreeMap, VecDeque};
use wireup_wire::group::Group;
use wireup_wire::limits::GROUPS_PER_RANK_MAX;

#[derive(Default)]
pub struct OwnGroups {
    /// Groups by the number that the rank has given to each.
    defined: BTreeMap<u32, Group>,
    /// Numbers of the requests in progress in each group, oldest first: a group's collectives end in the order in which
    /// the rank has started them.
    under_way: BTreeMap<Group, VecDeque<u32>>,
}

impl OwnGroups {
    /// # Errors
    /// Why that is refused.
    pub fn define(&mut self, number: u32, group: Group) -> Result<(), &'static str> {
        if self.defined.len() == GROUPS_PER_RANK_MAX {
            return Err("too_many_groups");
        }
        self.defined.insert(number, group);
        Ok(())
    }

    /// Forgets a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free(&mut self, number: u32) -> Result<(), &'static str> {
        self.defined.remove(&number).map(drop).ok_or("there_is_no_such_group")
    }

    /// Starts a collective; `None`: there is no such group.
    pub fn start_collective(&mut self, number: u32, request: u32) -> Option<Group> {
        let group = self.defined.get(&number)?.clone();
        self.under_way.entry(group.clone()).or_default().push_back(request);
        Some(group)
    }

    pub fn is_under_way(&self, group: &Group) -> bool {
        self.under_way.contains_key(group)
    }

    /// Ends the group's oldest collective; returns the number of its request.
    pub fn end(&mut self, group: &Group) -> Option<u32> {
        let waiting = self.under_way.get_mut(group)?;
        let request = waiting.pop_front();
        if waiting.is_empty() {
            self.under_way.remove(group);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::group::{Members, Purpose};

    #[test]
    fn collectives_end_in_the_order_of_their_start() {
        let group = Group { members: Members::World, tag: 7, purpose: Purpose::Gather };
        let mut own = OwnGroups::default();
        assert_eq!(own.define(1, group.clone()), Ok(()));
        assert_eq!(
            (own.start_collective(1, 10), own.start_collective(1, 11), own.start_collective(2, 12)),
            (Some(group.clone()), Some(group.clone()), None)
        );
        assert!(own.free(1).is_ok() && own.free(1).is_err());
        assert_eq!([own.end(&group), own.end(&group), own.end(&group)], [Some(10), Some(11), None]);
        assert!(own.under_way.is_empty());
    }

    #[test]
    fn groups_are_limited() {
        let mut own = OwnGroups::default();
        let group = |tag| Group { members: Members::World, tag, purpose: Purpose::Gather };
        for number in 0..GROUPS_PER_RANK_MAX as u32 {
            assert_eq!(own.define(number, group(number.into())), Ok(()));
        }
        assert!(own.define(u32::MAX, group(-1)).is_err());
    }
}
