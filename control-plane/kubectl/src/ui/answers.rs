//! What the commands say, read at most once in a while, whoever and how many ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
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

/// What a page asks: the words of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Status,
    Clusters,
    Workloads,
    /// Those of a cluster.
    WorkloadsOf(String),
    History,
    Top,
    Explain {
        namespace: Option<String>,
        kind: String,
        name: String,
    },
    /// With the flags that name the clusters.
    Simulate(Vec<String>),
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

impl Ask {
    /// Returns the command line that asks the same.
    pub(super) fn words(&self, flags: &[String]) -> Vec<String> {
        let most = format!("--most={MOST}");
        let (own, takes_flags) = match self {
            Self::Status => (
                vec!["status".to_owned(), "--clusters".to_owned(), most],
                true,
            ),
            Self::Clusters => (words("get clusters"), false),
            Self::Workloads => (words("get workloads -A"), false),
            Self::WorkloadsOf(cluster) => {
                let mut own = words("get workloads -A");
                own.push(format!("--cluster={cluster}"));
                (own, false)
            }
            Self::History => (words("history"), false),
            Self::Top => (words("top"), false),
            Self::Explain {
                namespace,
                kind,
                name,
            } => {
                let mut own = words("explain");
                let namespace = namespace.iter().map(|it| format!("--namespace={it}"));
                own.extend(namespace.chain([format!("{kind}/{name}")]));
                (own, false)
            }
            Self::Simulate(disaster) => {
                let mut own = words("simulate");
                own.extend(disaster.iter().cloned());
                (own, true)
            }
        };
        let mut words = words("kubectl-muster");
        words.extend(own);
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
    flags: Vec<String>,
    /// What the fleet is like.
    kept: Mutex<Kept>,
    /// What is asked about one cluster or workload.
    details: Mutex<Kept>,
    /// Forecasts. They may take long, and hold nobody up who looks at the fleet.
    forecasts: Mutex<Kept>,
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
            kept: Mutex::default(),
            details: Mutex::default(),
            next: AtomicU64::default(),
            forecasts: Mutex::default(),
        }
    }

    /// Returns the answer, of the last seconds or newly read.
    pub(super) async fn get(&self, ask: &Ask) -> Arc<Answer> {
        let kept = match ask {
            Ask::Simulate(_) => &self.forecasts,
            Ask::WorkloadsOf(_) | Ask::Explain { .. } => &self.details,
            _ => &self.kept,
        };
        let mut kept = kept.lock().await;
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
            said: said.map(Said::from).map_err(|error| format!("{error:#}")),
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
        let line = line::parse(ask.words(&self.flags))?;
        let namespace = line.connection.namespace;
        let namespace = namespace.as_deref().unwrap_or("default");
        read_fleet(&self.client, &self.server, namespace, line.question).await
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
        let answers = Answers::new(client, "", Vec::new());
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
            answers.get(&Ask::History).await.said.as_ref().unwrap_err();
            let count = asked.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!(count, expected);
            tokio::time::advance(FRESH + Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_away_blocks_no_other_one() {
        let service = service_fn(|_: Request<kube::client::Body>| {
            pending::<Result<Response<kube::client::Body>, std::io::Error>>()
        });
        let answers = Answers::new(Client::new(service, "default"), "", Vec::new());
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
        let answers = Answers::new(Client::new(service, "default"), "", Vec::new());
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
        let answers = Answers::new(fleet().0, "", Vec::new());
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
            Ask::WorkloadsOf("m1".to_owned()),
            Ask::Top,
            Ask::Explain {
                namespace: Some("shop".to_owned()),
                kind: "Deployment".to_owned(),
                name: "web".to_owned(),
            },
            Ask::Simulate(vec!["--lost=m1,m2".to_owned(), "--drain=m3".to_owned()]),
        ] {
            line::parse(ask.words(&flags)).unwrap();
        }
    }
}
