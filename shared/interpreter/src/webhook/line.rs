//! Questions for which there is no room, in the order in which they came. Pure: time comes in.
//!
//! A question is no more here than a number and its size. Whoever asks it is called when its turn
//! comes, and finds the room kept for a while.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time for which the room of one that was called is kept.
const KEPT: Duration = Duration::from_secs(2);

/// Questions of one lane that wait for room.
#[derive(Default)]
pub(super) struct Line {
    order: VecDeque<(u64, u64)>,
    /// By the number of the object: size, and what wakes up whoever asks.
    waiting: HashMap<u64, (usize, watch::Sender<()>)>,
    /// Those that were called: the room that is kept, and until when.
    called: HashMap<u64, (usize, Instant)>,
}

impl Line {
    /// Has a question wait. `ticket` rises with each that comes to any line. Returns a receiver
    /// that closes when its turn has come.
    pub(super) fn join(&mut self, subject: u64, bytes: usize, ticket: u64) -> watch::Receiver<()> {
        if let Some((known, turn)) = self.waiting.get_mut(&subject) {
            *known = bytes;
            return turn.subscribe();
        }
        let (turn, receiver) = watch::channel(());
        self.order.push_back((ticket, subject));
        self.waiting.insert(subject, (bytes, turn));
        receiver
    }

    /// Returns the ticket and the size of the first question.
    pub(super) fn first(&self) -> Option<(u64, usize)> {
        let (ticket, subject) = self.order.front()?;
        Some((*ticket, self.waiting.get(subject)?.0))
    }

    /// Calls the first question, for which room has been taken.
    pub(super) fn call(&mut self, now: Instant) {
        if let Some((_, subject)) = self.order.pop_front()
            && let Some((bytes, _)) = self.waiting.remove(&subject)
        {
            self.called.insert(subject, (bytes, now + KEPT));
        }
    }

    /// Returns the room that is kept for a question, which is over with that.
    pub(super) fn enter(&mut self, subject: u64) -> Option<usize> {
        let (bytes, _) = self.called.remove(&subject)?;
        Some(bytes)
    }

    /// Returns the room of those who did not come in time.
    pub(super) fn overdue(&mut self, now: Instant) -> usize {
        let mut given = 0;
        self.called.retain(|_, (bytes, until)| {
            let is_over = *until <= now;
            given += if is_over { *bytes } else { 0 };
            !is_over
        });
        given
    }

    /// Calls everyone, without room. Returns the room that was kept.
    pub(super) fn dissolve(&mut self) -> usize {
        let line = std::mem::take(self);
        line.called.values().map(|(bytes, _)| bytes).sum()
    }

    /// Returns the number of questions that have room and have not come yet.
    pub(super) fn expected(&self) -> usize {
        self.called.len()
    }

    /// Returns whether a question that comes has to wait behind others.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns whether nobody waits and nothing is kept.
    pub(super) fn is_idle(&self) -> bool {
        self.order.is_empty() && self.called.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_called_first_once_and_finds_room() {
        let (mut line, now) = (Line::default(), Instant::now());
        let mut turns: Vec<_> = (0..3).map(|one| line.join(one, 10, one)).collect();
        let again = line.join(1, 20, 9);
        assert_eq!(line.first(), Some((0, 10)));
        line.call(now);
        assert!(turns[0].changed().await.is_err(), "its turn has come");
        assert!(turns[1].has_changed().is_ok() && again.has_changed().is_ok());
        assert_eq!(line.first(), Some((1, 20)), "it waits once");
        assert_eq!(line.enter(0), Some(10));
        assert_eq!(line.enter(0), None);
        assert_eq!(line.enter(1), None, "it was not called");
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_of_who_does_not_come_goes_to_the_next() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.join(0, 10, 0);
        line.join(1, 20, 1);
        line.call(now);
        assert_eq!(line.overdue(now), 0);
        assert_eq!(line.overdue(now + KEPT), 10);
        assert_eq!(line.enter(0), None);
        line.call(now);
        assert_eq!(line.dissolve(), 20);
        assert!(line.is_idle());
    }
}
