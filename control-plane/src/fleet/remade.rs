//! Pauses before an object of ours is made again that went.
//!
//! The garbage collector removes what belongs to an owner that is gone, while a cache may show that
//! owner for a while. Whoever makes the object again at once writes as fast as the API answers.

use std::hash::Hash;
use std::time::Duration;

use muster_shared::queue::again;

use super::memory::Recent;

/// Time after which an object that went is the first one again.
const QUIET: Duration = Duration::from_mins(1);

/// Objects that went lately, by what they are made for, with how often they did. May be lost.
#[derive(Debug)]
pub struct Remade<K>(Recent<K, u32>);

impl<K: Eq + Hash> Default for Remade<K> {
    fn default() -> Self {
        Self(Recent::lasting(QUIET))
    }
}

impl<K: Eq + Hash> Remade<K> {
    /// Returns the pause before an object is made again that has just gone: 50 ms, doubled up to
    /// 6.4 s while it goes more than once a minute.
    pub fn pause(&self, key: K) -> Duration {
        let times = self.0.get(&key).unwrap_or(0);
        self.0.note(key, times.saturating_add(1));
        again(times)
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
    }
}
