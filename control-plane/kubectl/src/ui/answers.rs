//! What the commands say, read at most once in a while, whoever and how many ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_shared::k8s::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::output::UNREAD;
use crate::{Reply, line, read_fleet};

/// Time for which an answer is given again.
const FRESH: Duration = Duration::from_secs(2);
/// An answer is given again for so many times the time that reading it took, so that a large fleet
/// is not read all the time.
const SHARE: u32 = 4;
/// Entries of a list of the state of the fleet: a page shows no more, and 100,000 workloads may
/// wait.
pub(super) const MOST: usize = 200;
/// Answers that are kept; the oldest makes room.
const KEPT: usize = 16;

/// Subject of the answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// Fleet as it is.
    Fleet,
    /// Questions about one cluster or workload.
    Detail,
    /// Fleet as it would be after a loss or a drain.
    Forecast,
}

/// Command line that a page asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask {
    about: About,
    pub line: Vec<String>,
}

impl Ask {
    /// Makes a question of a command, whose words blanks part, and of further words as they are.
    pub(super) fn new(about: About, command: &str, more: impl IntoIterator<Item = String>) -> Self {
        let words = ["kubectl-muster"].into_iter().chain(command.split(' '));
        let format = ["-o", "json"].map(str::to_owned);
        let line = words.map(str::to_owned).chain(more).chain(format);
        Self {
            about,
            line: line.collect(),
        }
    }
}

/// Output of a command, or the reason why it failed.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub said: Result<Reply, String>,
    /// Time at which the command was started.
    pub read: Instant,
    /// Number that no other answer has.
    pub number: u64,
    /// Time from its reading until the next one is there.
    pub lasts: Duration,
    /// Until when it is given again.
    fresh: Instant,
}

/// The answers about one fleet.
pub(super) struct Answers {
    client: Client,
    /// Address of the fleet API.
    server: String,
    /// Flags of a control plane, for commands that take them.
    flags: Vec<String>,
    /// Answers by what they are about: a forecast, which may take long, delays nobody who asks
    /// at the fleet.
    kept: [Mutex<Kept>; 3],
    /// Number of the next answer.
    next: AtomicU64,
}

/// Held while one is read, so that one of them is read at a time.
type Kept = BTreeMap<Ask, Arc<Answer>>;

impl Answers {
    pub(super) fn new(client: Client, server: &str, flags: Vec<String>) -> Self {
        Self {
            client,
            server: server.to_owned(),
            flags,
            kept: <[Mutex<Kept>; 3]>::default(),
            next: AtomicU64::default(),
        }
    }

    /// Returns the answer, of the last seconds or newly read.
    pub(super) async fn get(&self, ask: &Ask) -> Arc<Answer> {
        let mut kept = self.kept[ask.about as usize].lock().await;
        let read = Instant::now();
        if let Some(answer) = kept.get(ask).filter(|it| read < it.fresh) {
            return Arc::clone(answer);
        }
        let said = Box::pin(self.read(ask)).await;
        let now = Instant::now();
        // What could not be read is asked again soon, whether it took long or not.
        let is_read = said.as_ref().is_ok_and(|it| it.code != UNREAD);
        let pause = if is_read { (now - read) * SHARE } else { FRESH };
        let fresh = now + FRESH.max(pause);
        let answer = Arc::new(Answer {
            said: said.map_err(|error| format!("{error:#}")),
            read,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            fresh,
            // Whoever asks as soon as it is not given again waits as long as this one took.
            lasts: (fresh - read) + (now - read),
        });
        kept.insert(ask.clone(), Arc::clone(&answer));
        while kept.len() > KEPT {
            let oldest = kept.iter().min_by_key(|(_, it)| it.read);
            let Some(oldest) = oldest.map(|(ask, _)| ask.clone()) else {
                break;
            };
            kept.remove(&oldest);
        }
        answer
    }

    async fn read(&self, ask: &Ask) -> anyhow::Result<Reply> {
        let mut line = ask.line.clone();
        if ["status", "simulate"].contains(&line[1].as_str()) && !self.flags.is_empty() {
            line.push("--".to_owned());
            line.extend_from_slice(&self.flags);
        }
        let line = line::parse(line)?;
        let namespace = line.connection.namespace;
        let namespace = namespace.as_deref().unwrap_or("default");
        read_fleet(&self.client, &self.server, namespace, line.question).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;

    use http::{Request, Response};
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::fixtures;

    /// Returns a fleet API that counts what it is asked, and refuses it.
    fn fleet() -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let client = fixtures::api(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let status =
                json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"});
            (403, status)
        });
        (client, asked)
    }

    fn history() -> Ask {
        Ask::new(About::Fleet, "history", [])
    }

    #[tokio::test(start_paused = true)]
    async fn ten_tabs_cost_one_read_and_the_next_is_read_when_it_is_old() {
        let (client, asked) = fleet();
        let answers = Answers::new(client, "", Vec::new());
        let count = || asked.load(Ordering::SeqCst);
        let history = history();
        let ten = (0..10).map(|_| answers.get(&history));
        for answer in futures::future::join_all(ten).await {
            assert!(answer.said.as_ref().unwrap_err().contains("list failovers"));
        }
        assert_eq!(count(), 1);
        tokio::time::advance(FRESH.saturating_sub(Duration::from_millis(1))).await;
        answers.get(&history).await;
        assert_eq!(count(), 1);
        tokio::time::advance(Duration::from_millis(2)).await;
        answers.get(&history).await;
        assert_eq!(count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn flags_of_a_control_plane_reach_the_commands_that_take_them() {
        let answers = Answers::new(fleet().0, "", vec!["--no-such-flag".to_owned()]);
        for (command, reported) in [
            ("status", "no-such-flag"),
            ("simulate --lost=m1", "no-such-flag"),
            ("history", "list failovers"),
        ] {
            let answer = answers.get(&Ask::new(About::Fleet, command, [])).await;
            let error = answer.said.as_ref().unwrap_err();
            assert!(error.contains(reported), "{command}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_read_is_asked_again_soon_however_long_it_took() {
        let (refusing, asked) = fleet();
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let refusing = refusing.clone();
            async move {
                tokio::time::advance(Duration::from_secs(30)).await;
                refusing.send(request).await
            }
        });
        let answers = Answers::new(Client::new(service, "default"), "", Vec::new());
        for expected in [1, 2] {
            answers.get(&history()).await.said.as_ref().unwrap_err();
            assert_eq!(asked.load(Ordering::SeqCst), expected);
            tokio::time::advance(FRESH + Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_away_blocks_no_other_one() {
        let service = service_fn(|_: Request<kube::client::Body>| {
            pending::<Result<Response<kube::client::Body>, std::io::Error>>()
        });
        let answers = Answers::new(Client::new(service, "default"), "", Vec::new());
        let history = history();
        for _ in 0..2 {
            let asked = tokio::time::timeout(FRESH, answers.get(&history));
            asked.await.unwrap_err();
        }
        assert!(answers.kept[About::Fleet as usize].try_lock().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_forecast_that_takes_long_delays_nobody_who_asks_about_the_fleet() {
        let service = service_fn(|request: Request<kube::client::Body>| async move {
            if request.uri().path().ends_with("/clusters") {
                pending::<()>().await;
            }
            let refused = Response::builder().status(403);
            refused.body(kube::client::Body::from(b"{}".to_vec()))
        });
        let answers = Answers::new(Client::new(service, "default"), "", Vec::new());
        let (forecast, history) = (
            Ask::new(About::Forecast, "simulate --lost=m1", []),
            history(),
        );
        let both = async {
            tokio::select! {
                _ = answers.get(&forecast) => panic!("it never ends"),
                history = answers.get(&history) => history,
            }
        };
        let history = tokio::time::timeout(FRESH, both).await.unwrap();
        assert!(history.said.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded() {
        let answers = Answers::new(fleet().0, "", Vec::new());
        for number in 0..KEPT + 5 {
            let command = format!("simulate --lost=m{number}");
            let forecast = Ask::new(About::Forecast, &command, []);
            answers.get(&forecast).await;
        }
        assert_eq!(
            answers.kept[About::Forecast as usize].lock().await.len(),
            KEPT
        );
    }
}
