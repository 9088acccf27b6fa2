//! A work queue: keys are worked on once at a time, failures wait, and what is added while it is
//! worked on is worked on again. Run it with `cargo run -p muster-shared --example queue`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use muster_shared::queue::{Next, Queue};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let queue = Queue::<String>::new("example");
    let shutdown = CancellationToken::new();
    for name in ["web", "db", "web"] {
        // The second "web" changes nothing: the key waits already.
        queue.add(name.to_owned());
    }
    let attempts = Arc::new(AtomicU32::new(0));
    let stop = shutdown.clone();
    let work = move |name: String| {
        let (attempts, stop) = (Arc::clone(&attempts), stop.clone());
        async move {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
            println!("attempt {attempt}: {name}");
            match (name.as_str(), attempt) {
                // A failure is tried again after a pause that grows with each failure.
                ("db", ..=2) => Err("the database is not there yet"),
                ("db", _) => {
                    stop.cancel();
                    Ok(Next::Done)
                }
                _ => Ok(Next::After(Duration::from_mins(10))),
            }
        }
    };
    queue.run(2, shutdown, work).await;
}
