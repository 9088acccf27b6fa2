//! The network of a simulation: carries requests between programs and API servers in memory, does
//! to them what the faults say, and records what was asked.

mod call;
mod hosts;
mod line;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use muster_shared::client::ResponseBody;
use muster_test_apiserver::{Running, User};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tower::BoxError;

pub use self::call::{Call, Kind};
use self::hosts::Hosts;
pub use self::line::{Line, Users, config};
use crate::faults::{Faults, Moment, Way};
use crate::history::{Actor, Api, Outcome};
use crate::random::Random;
use crate::recorder::{Author, Recorder};

/// The network that all lines of a simulation belong to.
#[derive(Debug)]
pub struct Network {
    servers: Mutex<BTreeMap<Api, Arc<Running>>>,
    hosts: Arc<Mutex<Hosts>>,
    recorder: Arc<Recorder>,
    faults: Arc<Faults>,
    latency: Mutex<Random>,
    /// Watches that were ever opened.
    watches: Mutex<BTreeSet<Watch>>,
    /// Lists that faults have made others than they are, until a watch follows them.
    distorted: Mutex<BTreeSet<Watch>>,
    /// Grows with every change of faults and processes, for those that wait for one.
    changes: watch::Sender<u64>,
}

/// Who watches, the server, and the plural of the kind.
pub type Watch = (Actor, Api, String);

/// The network lost a request or its answer.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by the simulated network")]
struct Reset;

impl Network {
    /// Returns a network without servers.
    pub fn new(seed: u64, recorder: Arc<Recorder>, faults: Arc<Faults>) -> Arc<Self> {
        Arc::new(Self {
            servers: Mutex::default(),
            hosts: Arc::default(),
            recorder,
            faults,
            watches: Mutex::default(),
            distorted: Mutex::default(),
            latency: Mutex::new(Random::new(seed, "latency")),
            changes: watch::Sender::new(0),
        })
    }

    /// Adds the server at an address, and records what it commits.
    pub fn serve(&self, address: &Api, server: Arc<Running>) {
        let (recorder, of) = (Arc::clone(&self.recorder), address.clone());
        let hosts = Arc::clone(&self.hosts);
        server.store().on_write(move |write| {
            let role = lock(&hosts).role(&of);
            recorder.committed(&role, write);
            if lock(&hosts).promotes(&of, write) {
                recorder.exchange();
            }
        });
        lock(&self.servers).insert(address.clone(), server);
    }

    /// Returns the server at an address.
    pub fn server(&self, address: &Api) -> Option<Arc<Running>> {
        lock(&self.servers).get(address).cloned()
    }

    /// Returns what the server at an address is now.
    fn role(&self, address: &Api) -> Api {
        lock(&self.hosts).role(address)
    }

    /// Returns whether the host of a connection has come back since, and knows it no more.
    fn is_reset(&self, (address, connection): &(Api, u64)) -> bool {
        lock(&self.hosts).way(address, *connection) == Way::Reset
    }

    /// Lets the host at an address die. Requests to it wait, or fail at once.
    pub fn lose(&self, address: Api, is_silent: bool) {
        let way = if is_silent { Way::Silent } else { Way::Reset };
        lock(&self.hosts).go(address, way);
        self.changed();
    }

    /// Lets the host at an address come back as it was.
    pub fn bring_back(&self, address: &Api) {
        lock(&self.hosts).come(address);
        self.changed();
    }

    /// Returns who has watched which kinds of which servers.
    pub fn watches(&self) -> Vec<Watch> {
        lock(&self.watches).iter().cloned().collect()
    }

    /// Returns the faults.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Returns the recorder of the history.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Notifies of changes of the network.
    fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns whether a fault made the last list before a watch another than it is, and forgets
    /// that.
    fn was_distorted(&self, watch: &Watch) -> bool {
        lock(&self.distorted).remove(watch)
    }

    /// Notes that what a client knows of a kind may be other than it is.
    fn distort(&self, watch: Watch) {
        lock(&self.distorted).insert(watch);
    }

    /// Has all that wait for a change of the network check again.
    pub fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn latency(&self) -> Duration {
        Duration::from_millis(1 + lock(&self.latency).below(4))
    }

    /// Waits until a line can carry something between its ends.
    async fn passable(&self, line: &Line, (address, connection): (&Api, u64)) -> Result<(), Reset> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if line.is_alive() {
                let own = lock(&self.hosts).way(address, connection);
                let way = match own {
                    Way::Open => self.faults.way(line.actor(), &self.role(address)),
                    closed => closed,
                };
                match way {
                    Way::Open => return Ok(()),
                    Way::Reset => return Err(Reset),
                    Way::Silent => {}
                }
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Reaches a member, or says what an agent says that lies.
    async fn reach(&self, line: &Line, member: &Api) -> Result<(), Reset> {
        match self.faults.lie(line.actor()) {
            Some(true) => return Ok(()),
            Some(false) => return Err(Reset),
            None => {}
        }
        self.passable(line, (member, 0)).await?;
        tokio::time::sleep(self.latency()).await;
        Ok(())
    }

    /// Carries a request to the server of an API and its response back.
    async fn carry(
        self: Arc<Self>,
        line: Line,
        address: Api,
        user: User,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let api = self.role(&address);
        let connection = lock(&self.hosts).connection(&address);
        let end = (&address, connection);
        let call = Call::read(&api, request.method(), request.uri());
        let verdict = self.faults.judge(line.actor(), &call);
        let author = Author {
            actor: line.actor().clone(),
            verb: call.verb,
            subresource: call.resource.subresource.clone(),
            answered: !verdict.loses_answer && verdict.crash != Some(Moment::AfterCommit),
            committed: Arc::default(),
        };
        if verdict.crash == Some(Moment::BeforeSending) {
            self.recorder.failed(&author, &call, Outcome::Lost);
            line.crash();
        }
        self.passable(&line, end).await?;
        tokio::time::sleep(self.latency() + verdict.delay).await;
        self.passable(&line, end).await?;
        if verdict.loses_request {
            self.recorder.failed(&author, &call, Outcome::Lost);
            return Err(Reset.into());
        }
        if let Some(refusal) = verdict.refusal {
            self.recorder
                .failed(&author, &call, Outcome::Refused(refusal.code));
            return Ok(refusal.response());
        }
        let Some(server) = self.server(&address) else {
            return Err(Reset.into());
        };
        if verdict.is_stale {
            call::make_stale(&mut request, server.store().version());
        }
        let kind = call.kind;
        let is_listing = request
            .uri()
            .query()
            .is_some_and(|it| it.contains("sendInitialEvents=true"));
        let watched = call.resource.plural.clone();
        if kind == Kind::Watch {
            let watch = (line.actor().clone(), api.clone(), watched.clone());
            lock(&self.watches).insert(watch);
        }
        let network = Arc::clone(&self);
        let work = async move {
            let answer = crate::recorder::author(author.clone(), server.answer(user, request));
            let answer = answer.await.map_err(|_| Reset)?;
            network.note(&author, &call, answer.status());
            Ok::<_, Reset>(answer)
        };
        // What reached the server is done there, whatever becomes of the caller.
        let answer = if kind == Kind::Write {
            tokio::spawn(work).await??
        } else {
            work.await?
        };
        if verdict.crash == Some(Moment::AfterCommit) {
            line.crash();
        }
        tokio::time::sleep(self.latency()).await;
        self.passable(&line, end).await?;
        if verdict.loses_answer {
            return Err(Reset.into());
        }
        let is_stream = kind == Kind::Watch && answer.status() == StatusCode::OK;
        Ok(if is_stream {
            let from = (address, connection);
            answer.map(|body| stream::carried(self, line, from, (watched, is_listing), body))
        } else {
            let listed = if kind == Kind::List {
                watched.as_str()
            } else {
                ""
            };
            self.whole(&line, &api, listed, answer).await
        })
    }

    /// Returns an answer that is no watch, with what the faults do to a list.
    async fn whole(
        &self,
        line: &Line,
        api: &Api,
        kind: &str,
        answer: Response<muster_test_apiserver::Body>,
    ) -> Response<ResponseBody> {
        let (head, body) = answer.into_parts();
        let mut seen = Vec::new();
        let is_list = head.status == StatusCode::OK && !kind.is_empty();
        let body = if is_list && self.faults.distorts(line.actor(), api, kind) {
            let list = (line.actor().clone(), api.clone(), kind.to_owned());
            self.distort(list);
            let effects = self.faults.piece(line.actor(), api, kind, &mut seen);
            let whole = body.collect().await.unwrap_or_else(|never| match never {});
            let whole = stream::shortened(&whole.to_bytes(), || {
                self.faults.leaves_out(line.actor(), api, kind)
            });
            let whole = stream::distorted(whole, effects);
            Full::from(whole).map_err(BoxError::from).boxed_unsync()
        } else {
            body.map_err(BoxError::from).boxed_unsync()
        };
        Response::from_parts(head, body)
    }

    /// Records a write that changed nothing.
    fn note(&self, author: &Author, call: &Call, status: StatusCode) {
        if !status.is_success() {
            let refused = Outcome::Refused(status.as_u16());
            self.recorder.failed(author, call, refused);
        } else if call.is_stored() && !author.committed.load(Ordering::Relaxed) {
            self.recorder.failed(author, call, Outcome::Unchanged);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
