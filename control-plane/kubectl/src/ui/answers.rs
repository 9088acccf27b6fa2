//! What the commands say, read at most once in a while, whoever and how many ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser as _;
use muster_shared::k8s::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::{CommandLine, Reply, read_fleet};

/// Time for which an answer is given again.
const FRESH: Duration = Duration::from_secs(2);
/// An answer is given again for so many times the time that reading it took, so that a large fleet
/// is not read all the time.
const SHARE: u32 = 4;
/// Answers that are kept; the oldest makes room.
const KEPT: usize = 16;

/// What a page asks: the words of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Status,
    Clusters,
    Workloads,
    History,
    /// With the flags that name the clusters.
    Simulate(Vec<String>),
}

impl Ask {
    /// Returns the command line that asks the same.
    pub(super) fn words(&self, flags: &[String]) -> Vec<String> {
        let (own, takes_flags): (&[&str], bool) = match self {
            Self::Status => (&["status"], true),
            Self::Clusters => (&["get", "clusters"], false),
            Self::Workloads => (&["get", "workloads", "-A"], false),
            Self::History => (&["history"], false),
            Self::Simulate(_) => (&["simulate"], true),
        };
        let mut words = vec!["kubectl-muster".to_owned()];
        words.extend(own.iter().map(|it| (*it).to_owned()));
        if let Self::Simulate(disaster) = self {
            words.extend(disaster.iter().cloned());
        }
        words.extend(["-o".to_owned(), "json".to_owned()]);
        if takes_flags && !flags.is_empty() {
            words.push("--".to_owned());
            words.extend(flags.iter().cloned());
        }
        words
    }
}

/// What a command prints, and its exit code.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub text: Bytes,
    pub code: u8,
}

impl From<Reply> for Said {
    fn from(Reply { text, code }: Reply) -> Self {
        let text = text.into();
        Self { text, code }
    }
}

/// What a command said, or why it could not.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub said: Result<Said, String>,
    /// When it was begun to be read.
    pub read: Instant,
    /// Until when it is given again.
    fresh: Instant,
}

/// The answers about one fleet.
pub(super) struct Answers {
    client: Client,
    flags: Vec<String>,
    /// What the fleet is like.
    kept: Mutex<Kept>,
    /// Forecasts. They may take long, and hold nobody up who looks at the fleet.
    forecasts: Mutex<Kept>,
}

/// Held while one is read, so that one of them is read at a time.
type Kept = BTreeMap<Ask, Arc<Answer>>;

impl Answers {
    pub(super) fn new(client: Client, flags: Vec<String>) -> Self {
        Self {
            client,
            flags,
            kept: Mutex::default(),
            forecasts: Mutex::default(),
        }
    }

    /// Returns the answer, of the last seconds or newly read.
    pub(super) async fn get(&self, ask: &Ask) -> Arc<Answer> {
        let kept = match ask {
            Ask::Simulate(_) => &self.forecasts,
            _ => &self.kept,
        };
        let mut kept = kept.lock().await;
        let read = Instant::now();
        if let Some(answer) = kept.get(ask).filter(|it| read < it.fresh) {
            return Arc::clone(answer);
        }
        let said = Box::pin(self.read(ask)).await;
        let now = Instant::now();
        let answer = Arc::new(Answer {
            said: said.map(Said::from).map_err(|error| format!("{error:#}")),
            read,
            fresh: now + FRESH.max((now - read) * SHARE),
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
        let line = CommandLine::try_parse_from(ask.words(&self.flags))?;
        read_fleet(&self.client, line.question).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Request, Response};
    use muster_shared::k8s::Client;
    use tower::service_fn;

    use super::*;

    /// Returns a fleet API that counts what it is asked, and refuses it.
    fn fleet() -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = service_fn(move |_: Request<kube::client::Body>| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async {
                let body = r#"{"kind":"Status","code":403,"message":"no","reason":"Forbidden"}"#;
                let refused = Response::builder().status(403);
                refused.body(kube::client::Body::from(body.as_bytes().to_vec()))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn ten_tabs_cost_one_read_and_the_next_is_read_when_it_is_old() {
        let (client, asked) = fleet();
        let answers = Answers::new(client, Vec::new());
        let count = || asked.load(std::sync::atomic::Ordering::SeqCst);
        let ten = (0..10).map(|_| answers.get(&Ask::History));
        for answer in futures::future::join_all(ten).await {
            assert!(answer.said.as_ref().unwrap_err().contains("list failovers"));
        }
        assert_eq!(count(), 1);
        tokio::time::advance(FRESH.saturating_sub(Duration::from_millis(1))).await;
        answers.get(&Ask::History).await;
        assert_eq!(count(), 1);
        tokio::time::advance(Duration::from_millis(2)).await;
        answers.get(&Ask::History).await;
        assert_eq!(count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_away_blocks_no_other_one() {
        let service = service_fn(|_: Request<kube::client::Body>| {
            pending::<Result<Response<kube::client::Body>, std::io::Error>>()
        });
        let answers = Answers::new(Client::new(service, "default"), Vec::new());
        for _ in 0..2 {
            let asked = tokio::time::timeout(FRESH, answers.get(&Ask::History));
            asked.await.unwrap_err();
        }
        assert!(answers.kept.try_lock().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_forecast_that_takes_long_holds_nobody_up_who_looks_at_the_fleet() {
        let service = service_fn(|request: Request<kube::client::Body>| async move {
            if request.uri().path().ends_with("/clusters") {
                pending::<()>().await;
            }
            let refused = Response::builder().status(403);
            refused.body(kube::client::Body::from(b"{}".to_vec()))
        });
        let answers = Answers::new(Client::new(service, "default"), Vec::new());
        let forecast = Ask::Simulate(vec!["--lost=m1".to_owned()]);
        let both = async {
            tokio::select! {
                _ = answers.get(&forecast) => panic!("it never ends"),
                history = answers.get(&Ask::History) => history,
            }
        };
        let history = tokio::time::timeout(FRESH, both).await.unwrap();
        assert!(history.said.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded() {
        let answers = Answers::new(fleet().0, Vec::new());
        for number in 0..KEPT + 5 {
            let lost = format!("--lost=m{number}");
            answers.get(&Ask::Simulate(vec![lost])).await;
        }
        assert_eq!(answers.forecasts.lock().await.len(), KEPT);
    }

    #[test]
    fn every_question_is_a_command() {
        let flags = ["--resource-eviction-rate=5".to_owned()];
        for ask in [
            Ask::Status,
            Ask::Clusters,
            Ask::Workloads,
            Ask::History,
            Ask::Simulate(vec!["--lost=m1,m2".to_owned(), "--drain=m3".to_owned()]),
        ] {
            CommandLine::try_parse_from(ask.words(&flags)).unwrap();
        }
    }
}
