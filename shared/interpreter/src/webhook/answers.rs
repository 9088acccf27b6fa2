//! Answers that are remembered, so that an object that has not changed is not asked about again.
//! Pure: time comes in.
//!
//! Answers are kept as the bytes that came, because a parsed tree takes many times as much memory.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::request::Key;

/// Most answers that are remembered.
const MOST: usize = 16_384;
/// Most bytes of the answers that are remembered.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of an answer beside its text.
const OVERHEAD: usize = 256;
/// Time for which an answer counts: a webhook may say something else later about the same object.
pub const VALID: Duration = Duration::from_mins(10);

/// Answer of a webhook that can be read.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) answer: Bytes,
    /// Body of the question, where the answer is a patch and the object has changed meanwhile.
    pub(super) question: Option<Bytes>,
}

impl Known {
    fn bytes(&self) -> usize {
        OVERHEAD + self.answer.len() + self.question.as_ref().map_or(0, Bytes::len)
    }
}

struct Entry {
    webhook: u64,
    known: Known,
    until: Instant,
}

/// Cache of answers by the digest of their question. The oldest are forgotten first.
#[derive(Default)]
pub(super) struct Answers {
    entries: HashMap<Key, Entry>,
    /// Order in which the answers came. Some may have been replaced since.
    order: VecDeque<(Instant, Key)>,
    bytes: usize,
}

impl Answers {
    /// Returns the answer to a question, while it counts.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<&Known> {
        let entry = self.entries.get(key)?;
        (entry.until > now).then_some(&entry.known)
    }

    /// Remembers the answer of a webhook.
    pub(super) fn put(&mut self, key: Key, webhook: u64, known: Known, now: Instant) {
        self.forget(&key);
        let until = now + VALID;
        self.bytes += known.bytes();
        self.order.push_back((until, key));
        let entry = Entry {
            webhook,
            known,
            until,
        };
        self.entries.insert(key, entry);
        while let Some((until, oldest)) = self.order.front().copied()
            && (until <= now || self.order.len() > MOST || self.bytes > MOST_BYTES)
        {
            self.order.pop_front();
            if self
                .entries
                .get(&oldest)
                .is_some_and(|it| it.until == until)
            {
                self.forget(&oldest);
            }
        }
    }

    /// Forgets an answer. Returns whether it was known.
    pub(super) fn forget(&mut self, key: &Key) -> bool {
        let forgotten = self.entries.remove(key);
        if let Some(entry) = &forgotten {
            self.bytes -= entry.known.bytes();
        }
        forgotten.is_some()
    }

    /// Forgets the answers of webhooks that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.entries.retain(|_, entry| is_there(entry.webhook));
        self.order.retain(|(_, key)| self.entries.contains_key(key));
        self.bytes = self.entries.values().map(|it| it.known.bytes()).sum();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Operation, Question};

    fn key(number: usize) -> Key {
        let object = json!({ "number": number });
        let question = Question::new(Operation::InterpretHealth, &object);
        question.digest(1, false).0
    }

    fn known(bytes: usize) -> Known {
        Known {
            answer: vec![b'x'; bytes].into(),
            question: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while_and_as_long_as_its_webhook_is_there() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        assert!(answers.get(&key(1), now).is_none());
        answers.put(key(1), 1, known(10), now);
        answers.put(key(2), 2, known(10), now);
        assert!(answers.get(&key(1), now).is_some());
        assert!(answers.get(&key(1), now + VALID).is_none());
        answers.retain(|webhook| webhook != 1);
        assert!(answers.get(&key(1), now).is_none());
        assert!(answers.get(&key(2), now).is_some());
        assert_eq!((answers.order.len(), answers.bytes), (1, OVERHEAD + 10));
        answers.put(key(3), 2, known(20), now + VALID);
        assert_eq!((answers.order.len(), answers.bytes), (1, OVERHEAD + 20));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_answers_are_forgotten_first_by_number_and_by_bytes() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        for number in 0..=MOST {
            answers.put(key(number), 1, known(1), now);
        }
        assert_eq!((answers.order.len(), answers.entries.len()), (MOST, MOST));
        assert!(answers.get(&key(0), now).is_none());
        assert!(answers.get(&key(1), now).is_some());
        answers.put(key(MOST), 1, known(MOST_BYTES - 3 * OVERHEAD), now);
        assert!(answers.bytes <= MOST_BYTES && answers.entries.len() <= 3);
        assert!(answers.get(&key(MOST), now).is_some());
        for _ in 0..2 * MOST {
            answers.put(key(0), 1, known(1), now);
        }
        assert!(answers.order.len() <= MOST, "{}", answers.order.len());
    }
}
