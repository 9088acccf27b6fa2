//! Bounds of what the questions of all lanes take together. Pure.

/// Bytes of the bodies of all questions that wait or are on the way.
const MOST_BYTES: usize = 32 << 20;
/// Bytes of them that lanes may take which have questions already. The rest is for the others, so
/// that a webhook which does not answer leaves room.
const MOST_OF_MANY: usize = MOST_BYTES / 4 * 3;
/// Questions on the way at a time.
const MOST_RUNNING: usize = 128;
/// Questions to one webhook on the way at a time.
pub(super) const MOST_RUNNING_OF_ONE: usize = 32;

/// What is taken.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    running: usize,
}

impl Room {
    /// Returns whether a question of this size may wait. `is_first` says that its lane has none.
    /// One is taken where there is no other, whatever its size.
    pub(super) fn fits(&self, bytes: usize, is_first: bool) -> bool {
        let most = if is_first { MOST_BYTES } else { MOST_OF_MANY };
        self.bytes == 0 || self.bytes + bytes <= most
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub(super) fn give(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns whether another question may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.running < MOST_RUNNING
    }

    pub(super) fn sent(&mut self) {
        self.running += 1;
    }

    pub(super) fn ended(&mut self, bytes: usize) {
        self.running = self.running.saturating_sub(1);
        self.give(bytes);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lanes_share_the_room_and_some_of_it_is_for_those_that_have_nothing() {
        let mut room = Room::default();
        assert!(room.fits(2 * MOST_BYTES, false), "one is always taken");
        room.take(MOST_OF_MANY);
        assert!(!room.fits(1, false));
        assert!(room.fits(MOST_BYTES - MOST_OF_MANY, true));
        room.take(MOST_BYTES - MOST_OF_MANY);
        assert!(!room.fits(1, true));
        room.ended(MOST_OF_MANY);
        assert!(room.fits(1, false));
    }

    #[test]
    fn so_many_are_on_the_way_at_a_time() {
        let mut room = Room::default();
        (0..MOST_RUNNING).for_each(|_| room.sent());
        assert!(!room.may_send());
        room.ended(0);
        assert!(room.may_send());
    }
}
