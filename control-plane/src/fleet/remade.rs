//! Pauses before an object of ours is made again that went.
//!
//! The garbage collector removes what belongs to an owner that is gone, while a cache may show that
//! owner for a while. Whoever makes the object again at once writes as fast as the API answers.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use muster_shared::queue::again;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after which an object that went is the first one again.
const QUIET: Duration = Duration::from_mins(1);

/// Objects that went lately, by what they are made for. May be lost.
#[derive(Debug)]
pub struct Remade<K>(Mutex<State<K>>);

#[derive(Debug)]
struct State<K> {
    /// Time at which each key was deleted last, and how often it was.
    gone: HashMap<K, (Instant, u32)>,
    /// When those were forgotten last that went long ago: very many may go at once.
    pruned: Instant,
}

impl<K> Default for Remade<K> {
    fn default() -> Self {
        Self(Mutex::new(State {
            gone: HashMap::new(),
            pruned: Instant::now(),
        }))
    }
}

impl<K: Eq + Hash> Remade<K> {
    /// Returns the pause before an object is made again that has just gone: 50 ms, doubled up to
    /// 6.4 s while it goes more than once a minute.
    pub fn pause(&self, key: K) -> Duration {
        let now = Instant::now();
        let mut state = self.0.lock();
        if now.duration_since(state.pruned) >= QUIET {
            state
                .gone
                .retain(|_, (went, _)| now.duration_since(*went) < QUIET);
            state.gone.shrink_to_fit();
            state.pruned = now;
        }
        let (went, times) = state.gone.entry(key).or_insert((now, 0));
        if now.duration_since(*went) >= QUIET {
            *times = 0;
        }
        let pause = again(*times);
        (*went, *times) = (now, times.saturating_add(1));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_again_and_again_is_made_ever_more_slowly() {
        let remade = Remade::default();
        let pauses = [0, 0, 0].map(|_| remade.pause("a").as_millis());
        assert_eq!(pauses, [50, 100, 200]);
        assert_eq!(remade.pause("b").as_millis(), 50);
        tokio::time::sleep(QUIET).await;
        assert_eq!(remade.pause("a").as_millis(), 50);
        assert_eq!(remade.0.lock().gone.len(), 1, "what is old is forgotten");
    }
}
