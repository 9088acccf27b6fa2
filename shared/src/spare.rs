//! Gives memory back after a rush.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// As many entries as there is room for all the time.
const ROOM: usize = 64;

/// Gives the room of a map back that a rush has left: a map keeps the room of its largest size. To
/// be called after each removal; it costs as much as the removals at most.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    let (length, room) = (map.len(), map.capacity());
    if room > 2 * ROOM && length < room / 8 {
        map.shrink_to(ROOM.max(2 * length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_a_rush_has_left_keeps_little_room_and_what_is_in_it() {
        let rush = 100 * ROOM;
        let mut map: HashMap<_, _> = (0..rush).map(|it| (it, it)).collect();
        let full = map.capacity();
        for key in 0..rush - 3 {
            map.remove(&key);
            give_back(&mut map);
        }
        assert!(map.capacity() <= 2 * ROOM, "{} of {full}", map.capacity());
        assert_eq!(map.len(), 3);
    }
}
