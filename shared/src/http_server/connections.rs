//! Connections of a server: their number, and deadlines for idle and old ones.
//!
//! Any client that reaches a port can open connections and stay silent. A connection is closed if
//! it has sent no complete request by a deadline or is idle for too long. If there are too many,
//! the least important one is closed for a new one, so that new clients are always served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Time from accepting a connection until its first request is complete.
    pub first: Duration,
    /// Time between the end of a response and the next request.
    pub idle: Duration,
    /// Maximum age of a connection.
    pub age: Duration,
}

/// Connections of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    limits: Limits,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// By number, so that the oldest is the first.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    cut: CancellationToken,
    since: Instant,
    asked: bool,
    busy: usize,
}

/// Reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is silent, or makes room for another: it is closed at once.
    Cut,
    /// The connection has reached its maximum age: requests in flight are still answered.
    Old,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: Arc::default(),
        }
    }

    /// Registers a new connection. Where there are as many as may be, one of them is cut: the
    /// oldest without a request so far, otherwise the one that is idle for the longest time,
    /// otherwise the oldest.
    pub(crate) fn enter(&self) -> Connection {
        let mut open = self.open.lock();
        while open.entries.len() >= self.limits.connections.max(1) {
            let Some(number) = open.least() else { break };
            if let Some(entry) = open.entries.remove(&number) {
                entry.cut.cancel();
                metrics::counter!("muster_server_connections_cut_total").increment(1);
            }
        }
        let (number, now) = (open.next, Instant::now());
        let entry = Entry {
            cut: CancellationToken::new(),
            since: now,
            asked: false,
            busy: 0,
        };
        let cut = entry.cut.clone();
        open.next += 1;
        open.entries.insert(number, entry);
        drop(open);
        Connection {
            all: self.clone(),
            number,
            begun: now,
            cut,
        }
    }
}

impl Open {
    /// Returns the connection that matters least.
    fn least(&self) -> Option<u64> {
        let order = |entry: &Entry| (entry.asked, entry.busy > 0, entry.since);
        let least = self.entries.iter().min_by_key(|(_, entry)| order(entry));
        least.map(|(number, _)| *number)
    }
}

/// One connection; leaves the list when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Connections,
    number: u64,
    begun: Instant,
    cut: CancellationToken,
}

impl Connection {
    /// Notes that a request has come; dropping the answer's guard notes that it is answered.
    pub(crate) fn request(self: &Arc<Self>) -> Request {
        self.change(|entry| {
            entry.asked = true;
            entry.busy += 1;
        });
        Request(Arc::clone(self))
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.all.open.lock().entries.get_mut(&self.number) {
            change(entry);
            entry.since = Instant::now();
        }
    }

    /// Waits until the connection has to end.
    pub(crate) async fn ended(&self) -> End {
        let limits = self.all.limits;
        let old = self.begun + limits.age;
        loop {
            // A connection that has given way is not in the list.
            let deadline = self.all.open.lock().entries.get(&self.number).map(|entry| {
                match (entry.asked, entry.busy) {
                    (false, _) => entry.since + limits.first,
                    (true, 0) => entry.since + limits.idle,
                    (true, _) => old,
                }
            });
            let Some(deadline) = deadline else {
                return End::Cut;
            };
            let now = Instant::now();
            if now >= old {
                return End::Old;
            }
            if now >= deadline {
                return End::Cut;
            }
            tokio::select! {
                () = self.cut.cancelled() => return End::Cut,
                () = sleep_until(deadline.min(old)) => {}
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open.lock().entries.remove(&self.number);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Request(Arc<Connection>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0
            .change(|entry| entry.busy = entry.busy.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 3,
        first: Duration::from_secs(5),
        idle: Duration::from_mins(1),
        age: Duration::from_mins(10),
    };

    async fn ends_after(connection: &Connection) -> (End, Duration) {
        let begun = Instant::now();
        (connection.ended().await, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_cut_and_an_old_one_is_asked_to_go() {
        let all = Connections::new(LIMITS);
        let silent = all.enter();
        assert_eq!(ends_after(&silent).await, (End::Cut, LIMITS.first));
        let idle = Arc::new(all.enter());
        drop(idle.request());
        assert_eq!(ends_after(&idle).await, (End::Cut, LIMITS.idle));
        let busy = Arc::new(all.enter());
        let _request = busy.request();
        assert_eq!(ends_after(&busy).await, (End::Old, LIMITS.age));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_matters_least_gives_way() {
        let all = Connections::new(LIMITS);
        let (busy, idle) = (Arc::new(all.enter()), Arc::new(all.enter()));
        let request = busy.request();
        drop(idle.request());
        let silent = all.enter();
        let newest = Arc::new(all.enter());
        assert!(silent.cut.is_cancelled() && !idle.cut.is_cancelled());
        let _question = newest.request();
        let another = Arc::new(all.enter());
        assert!(idle.cut.is_cancelled() && !busy.cut.is_cancelled());
        assert_eq!(ends_after(&idle).await, (End::Cut, Duration::ZERO));
        drop(request);
        let count = all.open.lock().entries.len();
        assert_eq!(count, 3);
        drop((busy, newest, another));
        assert!(
            all.open.lock().entries.len() <= 1,
            "those that left are forgotten"
        );
    }
}
