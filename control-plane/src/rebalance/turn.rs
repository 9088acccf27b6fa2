//! Waiting for a turn of the rate that all evictions share.

use std::time::Duration;

use muster_shared::queue::Next;
use tokio::time::{Instant, sleep_until};

/// Longest time for which a worker waits: the end of the process waits as long.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits for a turn; the key is looked at again behind those that wait already.
///
/// The one worker of a queue waits itself, since to look at a workload costs a placement in
/// thought. If each workload came again at the next turn, which only one of them gets, a return of
/// n workloads would cost n² of them.
pub(super) async fn wait(when: Instant) -> Next {
    sleep_until(when.min(Instant::now() + LONGEST)).await;
    Next::After(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use muster_shared::queue::Queue;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Turns taken, the instant of the next, and looks.
    struct Turns {
        taken: usize,
        next: Instant,
        looks: usize,
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_wait_for_the_rate_cost_two_looks_each_and_all_get_their_turn() {
        const MANY: usize = 1_000;
        for (what, pause, most) in [
            ("ten a second", Duration::from_millis(100), 2 * MANY + 1),
            // One look a second besides.
            ("one in ten seconds", Duration::from_secs(10), 12 * MANY),
        ] {
            let turns = Turns {
                taken: 0,
                next: Instant::now(),
                looks: 0,
            };
            let (turns, over) = (Arc::new(Mutex::new(turns)), CancellationToken::new());
            let queue = Queue::new("returns");
            for key in 0..MANY {
                queue.add(key);
            }
            let look = |_| {
                let (turns, over) = (Arc::clone(&turns), over.clone());
                async move {
                    let refused = {
                        let mut turns = turns.lock().unwrap();
                        turns.looks += 1;
                        let now = Instant::now();
                        if now < turns.next {
                            Some(turns.next)
                        } else {
                            turns.next = now + pause;
                            turns.taken += 1;
                            if turns.taken == MANY {
                                over.cancel();
                            }
                            None
                        }
                    };
                    Ok::<_, Infallible>(match refused {
                        Some(when) => wait(when).await,
                        None => Next::Done,
                    })
                }
            };
            queue.run(1, over.clone(), look).await;
            let turns = turns.lock().unwrap();
            assert_eq!(turns.taken, MANY, "{what}");
            assert!(turns.looks <= most, "{what}: {} looks", turns.looks);
        }
    }
}
