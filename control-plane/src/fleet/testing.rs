//! A fleet API in memory, for tests of what controllers ask, write and report.
//!
//! It keeps objects by plural, namespace and name, and answers reads, lists and watches from them.
//! What is written changes them, and is written down; a test says what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::DATE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Config;
use kube::client::Body;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::{Gateway, Network, ResponseBody};
use muster_shared::clock::calendar;
use muster_shared::k8s::Taint;
use muster_shared::lease::Leadership;
use muster_shared::merge;
use muster_shared::names::execution_namespace;
use muster_shared::tasks::Tasks;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::Fleet;
use super::binding::BindingKey;
use super::template::{Kind, TemplateKey};
use crate::settings::Settings;

/// Plural, namespace and name of an object.
type Place = (String, String, String);

/// Code and body of an answer.
type Answer = (u16, Value);

/// An API in memory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FakeApi(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// The number of changes so far.
    version: watch::Sender<u64>,
    /// The server's date at a moment.
    begun: (Timestamp, Instant),
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            version: watch::Sender::default(),
            begun: (calendar(), Instant::now()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Place, Value>,
    /// Objects that lists and watches lack.
    hidden: BTreeSet<Place>,
    /// What watches send: version, plural, kind of event, object.
    log: Vec<(u64, String, &'static str, Value)>,
    /// Watches from versions below this one end because their version is too old.
    oldest: u64,
    /// What is answered in place of the truth, by method and end of the path; `None`: nothing, the
    /// connection breaks.
    answers: Vec<(Method, String, Option<Answer>)>,
    /// Time that the answers to requests take, by method and end of the path.
    delays: Vec<(Method, String, Duration)>,
    asked: Vec<Asked>,
}

/// A request that is no watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// Its query.
    pub query: String,
    /// Its body; null where there is none.
    pub body: Value,
}

/// A fleet over such an API.
pub struct Bench {
    /// The API.
    pub api: FakeApi,
    /// The fleet.
    pub fleet: Arc<Fleet>,
    /// Its tasks: they end with the bench.
    pub tasks: Tasks,
}

impl Bench {
    /// Returns the binding of a name in the namespace `shop` as the cache has it.
    pub fn binding(&self, name: &str) -> Option<Arc<AnyBinding>> {
        let namespace = Some("shop".to_owned());
        let name = name.to_owned();
        self.fleet.bindings.get(&BindingKey { namespace, name })
    }

    /// Makes a fleet whose caches nobody fills yet, over an API that has these objects, each with
    /// its plural.
    pub fn new<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::with(Settings::default(), objects)
    }

    /// Makes a fleet with settings of its own whose caches nobody fills yet, over an API that has
    /// these objects.
    ///
    /// # Panics
    /// If no client can be made.
    pub fn with<'a>(
        settings: Settings,
        objects: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Self {
        let api = FakeApi::default();
        for (plural, object) in objects {
            api.put(plural, object);
        }
        let config = Config::new("http://fleet".parse().unwrap());
        let gateway = Gateway::over(Arc::new(api.clone()), "fleet", config);
        let mut tasks = Tasks::new(CancellationToken::new());
        let fleet = Fleet::new(&gateway, settings, Leadership::always(), &mut tasks).unwrap();
        Self { api, fleet, tasks }
    }

    /// Fills the caches and keeps them up to date. Listeners have to be there before.
    pub async fn follow(&mut self) {
        self.fleet.follow(&mut self.tasks);
        self.fleet.synced().await;
    }

    /// Follows, and lets time pass.
    pub async fn follow_for(&mut self, seconds: u64) {
        self.follow().await;
        pass(seconds).await;
    }

    /// Starts a controller, follows, and lets time pass.
    pub async fn run(&mut self, start: impl FnOnce(&Arc<Fleet>, &mut Tasks), seconds: u64) {
        start(&self.fleet, &mut self.tasks);
        self.follow_for(seconds).await;
    }

    /// Makes a fleet whose caches are filled.
    pub async fn followed<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut bench = Self::new(objects);
        bench.follow().await;
        bench
    }
}

/// Returns the key of a binding of the namespace `shop`.
pub fn key(name: &str) -> BindingKey {
    BindingKey {
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
    }
}

/// Returns the key of a template of the namespace `shop`.
pub fn template_key(api_version: &str, kind: &str, name: &str) -> TemplateKey {
    TemplateKey {
        kind: Arc::new(Kind::new(api_version, kind)),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
    }
}

/// Returns the time so many seconds after the beginning of 1970.
pub fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// Returns a taint of no known age.
pub fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

/// Lets time pass, in which everything that is to happen does.
pub async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Returns the status with which a Kubernetes API refuses a request about an object.
pub fn refusal(code: u16, reason: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": reason, "message": reason, "details": {"name": name},
    })
}

/// Codes of refusals of a write, with whether one that is to be reconciled again anyway.
pub const REFUSALS: [(u16, bool); 3] = [(409, true), (404, true), (403, false)];

/// Returns a cluster that is ready, takes Deployments, and has room.
pub fn cluster(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull"},
        "status": {
            "conditions": only_condition("Ready", "True"),
            "apiEnablements": [{
                "groupVersion": "apps/v1",
                "resources": [{"name": "deployments", "kind": "Deployment"}],
            }],
            "resourceSummary": {
                "allocatable": {"cpu": "100", "memory": "100Gi", "pods": "100"},
            },
        },
    })
}

/// Returns the binding `shop/web-deployment` of a Deployment with two replicas in `m1`, which may
/// be in `m1` or in `m2`.
pub fn binding() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web-deployment"},
        "spec": {
            "resource": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web",
            },
            "replicas": 2,
            "replicaRequirements": {},
            "clusters": [{"name": "m1", "replicas": 2}],
            "placement": {
                "clusterAffinity": {"clusterNames": ["m1", "m2"]},
                "spreadConstraints": [{
                    "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1,
                }],
            },
        },
    })
}

/// Returns the policy `shop/web` of all Deployments, with the id `p`.
pub fn policy() -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "p",
            "labels": {"propagationpolicy.karmada.io/permanent-id": "p"},
        },
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]},
    })
}

/// Returns the conditions of an object that has one.
pub fn only_condition(kind: &str, status: &str) -> Value {
    json!([{
        "type": kind, "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }])
}

/// Returns an object as it is while somebody deletes it and finalizers hold it.
pub fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

/// Returns a cluster out of which movement is paused.
pub fn paused(mut cluster: Value) -> Value {
    cluster["metadata"]["annotations"] = json!({"failover.muster.io/paused": "freeze"});
    cluster
}

/// Returns the Deployment `shop/web`.
pub fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"replicas": replicas},
    })
}

/// Gives a template or a binding the claim of the policy [`policy`].
pub fn claimed(mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    metadata["labels"]["propagationpolicy.karmada.io/permanent-id"] = json!("p");
    metadata["annotations"]["propagationpolicy.karmada.io/namespace"] = json!("shop");
    metadata["annotations"]["propagationpolicy.karmada.io/name"] = json!("web");
    object
}

/// Returns the Work of the binding [`binding`] in a cluster, whose agent reports some health, and
/// two ready replicas.
pub fn work(cluster: &str, health: &str) -> Value {
    json!({
        "metadata": {
            "namespace": execution_namespace(cluster), "name": "web",
            "annotations": {
                "resourcebinding.karmada.io/namespace": "shop",
                "resourcebinding.karmada.io/name": "web-deployment",
            },
        },
        "status": {
            "conditions": only_condition("Applied", "True"),
            "manifestStatuses": [{
                "identifier": {
                    "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                    "resource": "", "namespace": "shop", "name": "web",
                },
                "health": health,
                "status": {"replicas": 2, "readyReplicas": 2},
            }],
        },
    })
}

impl FakeApi {
    /// Adds an object, or replaces it; watches report it.
    pub fn put(&self, plural: &str, object: Value) {
        self.store(plural, object);
    }

    /// Stores an object, or replaces it, sends it to the watches, and returns the object as it is
    /// stored.
    fn store(&self, plural: &str, mut object: Value) -> Value {
        let mut state = self.0.state.lock();
        let version = *self.0.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let place = place(plural, &object);
        let is_known = state.objects.insert(place, object.clone()).is_some();
        let kind = if is_known { "MODIFIED" } else { "ADDED" };
        let stored = object.clone();
        state.log.push((version, plural.to_owned(), kind, object));
        drop(state);
        self.0.version.send_replace(version);
        stored
    }

    /// Returns the date by the server's clock, which moves with the time of the test.
    fn date(&self) -> Timestamp {
        self.0.begun.0 + self.0.begun.1.elapsed()
    }

    /// Returns an object as it is stored.
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.0.state.lock().objects.get(&place).cloned()
    }

    /// Returns the binding of a name in the namespace `shop` as it is stored.
    ///
    /// # Panics
    /// If there is none.
    pub fn binding(&self, name: &str) -> Value {
        let binding = self.object("resourcebindings", "shop", name);
        binding.expect("the binding is stored")
    }

    /// Returns the Deployment `shop/web` as it is stored.
    ///
    /// # Panics
    /// If there is none.
    pub fn deployment(&self) -> Value {
        let deployment = self.object("deployments", "shop", "web");
        deployment.expect("the Deployment is stored")
    }

    /// Returns a condition of an object of the namespace `shop` as it is stored, null where it has
    /// none of the type.
    pub fn condition(&self, plural: &str, name: &str, kind: &str) -> Value {
        let object = self.object(plural, "shop", name).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == kind);
        found.cloned().unwrap_or_default()
    }

    /// Returns all objects of a plural as they are stored.
    pub fn all(&self, plural: &str) -> Vec<Value> {
        let state = self.0.state.lock();
        let places = state.objects.iter().filter(|(place, _)| place.0 == plural);
        places.map(|(_, object)| object.clone()).collect()
    }

    /// Removes an object; watches report it.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let mut state = self.0.state.lock();
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let Some(mut object) = state.objects.remove(&place) else {
            return;
        };
        let version = *self.0.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state
            .log
            .push((version, plural.to_owned(), "DELETED", object));
        drop(state);
        self.0.version.send_replace(version);
    }

    /// Replaces an object so that no watch reports it, as those that are cut off do not: the next
    /// lists and reads have it.
    pub fn put_unreported(&self, plural: &str, mut object: Value) {
        let mut state = self.0.state.lock();
        let version = *self.0.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.objects.insert(place(plural, &object), object);
        drop(state);
        self.0.version.send_replace(version);
    }

    /// Removes an object so that no watch reports it: the next lists lack it.
    pub fn lose(&self, plural: &str, namespace: &str, name: &str) {
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.expire(|state| _ = state.objects.remove(&place));
    }

    /// Changes what there is and forgets the history: watches end, and everything is listed anew.
    fn expire(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        let version = *self.0.version.borrow() + 1;
        state.oldest = version;
        drop(state);
        self.0.version.send_replace(version);
    }

    /// Ends what [`hide`](Self::hide) began.
    pub fn reveal(&self, plural: &str, namespace: &str, name: &str) {
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.expire(|state| _ = state.hidden.remove(&place));
    }

    /// Ends what [`hide`](Self::hide) began without an event of any watch: the list was short once.
    pub fn show_again(&self, plural: &str, namespace: &str, name: &str) {
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.0.state.lock().hidden.remove(&place);
    }

    /// Hides an object from lists and watches from now on, as a broken cache does; single reads
    /// still find it.
    pub fn hide(&self, plural: &str, namespace: &str, name: &str) {
        let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.expire(|state| _ = state.hidden.insert(place));
    }

    /// Answers requests of a method whose path ends like this with this code and body from now on.
    pub fn answer(&self, method: Method, path: &str, code: u16, body: Value) {
        self.answer_with(method, path, Some((code, body)));
    }

    /// Refuses requests of a method whose path ends like this from now on, with the reason that
    /// Kubernetes gives with the code, and a status about the object of a name.
    ///
    /// # Panics
    /// If the code is none of those that tests refuse with.
    pub fn refuse(&self, method: Method, path: &str, code: u16, name: &str) {
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            _ => panic!("no reason is known for {code}"),
        };
        self.answer(method, path, code, refusal(code, reason, name));
    }

    /// Breaks the connection of requests of a method whose path ends like this from now on; the
    /// requests have no effect.
    pub fn cut(&self, method: Method, path: &str) {
        self.answer_with(method, path, None);
    }

    /// Has the answers to requests of a method whose path ends like this take so long from now on:
    /// they report the time at which they were asked for.
    pub fn delay(&self, method: Method, path: &str, time: Duration) {
        let delays = &mut self.0.state.lock().delays;
        delays.push((method, path.to_owned(), time));
    }

    fn answer_with(&self, method: Method, path: &str, answer: Option<Answer>) {
        let mut state = self.0.state.lock();
        state
            .answers
            .retain(|it| (&it.0, &*it.1) != (&method, path));
        state.answers.push((method, path.to_owned(), answer));
    }

    /// Deployments are found among the kinds that there are.
    pub fn serve_deployments(&self) {
        self.serve("/apis/apps/v1", "apps/v1", "deployments", "Deployment");
    }

    /// Serves a kind, alone of its group, so that it is found among the kinds that there are. Only
    /// namespaces lie in no namespace.
    pub fn serve(&self, path: &str, group_version: &str, plural: &str, kind: &str) {
        let resource = json!({
            "name": plural, "singularName": "", "kind": kind, "namespaced": kind != "Namespace",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        });
        let resources = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": [resource],
        });
        self.answer(Method::GET, path, 200, resources);
    }

    /// Answers every request by the objects that there are from now on.
    pub fn answer_truly(&self) {
        self.0.state.lock().answers.clear();
    }

    /// Forgets what was asked and written before.
    pub fn forget(&self) {
        self.0.state.lock().asked.clear();
    }

    /// Returns all requests except watches.
    pub fn asked(&self) -> Vec<Asked> {
        self.0.state.lock().asked.clone()
    }

    /// Returns what was written except events, each as method, path and body.
    pub fn writes(&self) -> Vec<(Method, String, Value)> {
        let asked = self.asked().into_iter();
        let writes = asked.filter(|it| it.method != Method::GET && !it.path.contains("/events"));
        writes.map(|it| (it.method, it.path, it.body)).collect()
    }

    /// Returns the events that were published: the name of the object, the reason, and the message.
    pub async fn events(&self) -> Vec<(String, String, String)> {
        pass(1).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let asked = self.asked().into_iter();
        let events = asked.filter(|it| it.method == Method::POST && it.path.contains("/events"));
        let reported = events.map(|it| {
            let (about, event) = (text(&it.body["involvedObject"]["name"]), &it.body);
            (about, text(&event["reason"]), text(&event["message"]))
        });
        reported.collect()
    }

    /// Returns the names of the objects with their events' reasons.
    pub async fn reported(&self) -> Vec<(String, String)> {
        let events = self.events().await.into_iter();
        events.map(|(about, reason, _)| (about, reason)).collect()
    }

    async fn respond(self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let path = head.uri.path().to_owned();
        let asked = Asked {
            method: head.method,
            path,
            query,
            body,
        };
        let is_watch = asked.query.split('&').any(|it| it == "watch=true");
        if is_watch && !self.refuses(&asked) {
            return Ok(self.watch(&asked.path, &asked.query));
        }
        self.0.state.lock().asked.push(asked.clone());
        let answer = self.answer_to(&asked);
        tokio::time::sleep(self.delay_of(&asked)).await;
        let Some((code, answer)) = answer else {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        };
        let body = Full::from(answer.to_string()).map_err(BoxError::from);
        let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&self.date())?;
        let response = Response::builder().status(code).header(DATE, date);
        Ok(response.body(body.boxed_unsync())?)
    }

    /// Returns the time that the answer to a request takes.
    fn delay_of(&self, asked: &Asked) -> Duration {
        let state = self.0.state.lock();
        let is_meant =
            |it: &&(Method, String, Duration)| it.0 == asked.method && asked.path.ends_with(&it.1);
        state
            .delays
            .iter()
            .find(is_meant)
            .map_or(Duration::ZERO, |it| it.2)
    }

    /// Returns the answer to a request; `None` where the connection breaks.
    fn answer_to(&self, asked: &Asked) -> Option<Answer> {
        let state = self.0.state.lock();
        let mut answers = state.answers.iter();
        let is_meant = |it: &&(Method, String, Option<Answer>)| {
            it.0 == asked.method && asked.path.ends_with(&it.1)
        };
        if let Some((.., answer)) = answers.find(is_meant) {
            return answer.clone();
        }
        drop(state);
        Some(self.truth(asked))
    }

    /// Returns whether a test has ordered that such a request is refused.
    fn refuses(&self, asked: &Asked) -> bool {
        let state = self.0.state.lock();
        state.answers.iter().any(|(method, path, answer)| {
            let is_refusal = matches!(answer, Some((400.., _)));
            *method == asked.method && asked.path.ends_with(path) && is_refusal
        })
    }

    /// Returns the answer to a request by the objects that there are.
    fn truth(&self, asked: &Asked) -> Answer {
        let Some((plural, namespace, name)) = addressed(&asked.path) else {
            return (404, refusal(404, "NotFound", ""));
        };
        let Some(name) = name else {
            return match asked.method {
                Method::GET => (200, self.list(&plural, &namespace, &asked.query)),
                _ => self.create(&plural, &asked.body),
            };
        };
        let place = (plural, namespace, name);
        let Some(held) = self.0.state.lock().objects.get(&place).cloned() else {
            return (404, refusal(404, "NotFound", &place.2));
        };
        let conflicts = |wanted: &Value| {
            let differs =
                |field| !wanted[field].is_null() && wanted[field] != held["metadata"][field];
            ["resourceVersion", "uid"].into_iter().any(differs)
        };
        match asked.method {
            Method::GET => (200, held),
            Method::DELETE if conflicts(&asked.body["preconditions"]) => {
                (409, refusal(409, "Conflict", &place.2))
            }
            Method::DELETE => (200, self.remove(&place, held)),
            _ if conflicts(&asked.body["metadata"]) => (409, refusal(409, "Conflict", &place.2)),
            _ => (200, self.change(&place, &held, asked)),
        }
    }

    /// Objects in the order of their names, in pages where a limit is given.
    fn list(&self, plural: &str, namespace: &str, query: &str) -> Value {
        let parameter = |name: &str| {
            let mut parts = query.split('&');
            let value = parts.find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|it| it.parse::<usize>().ok())
        };
        let state = self.0.state.lock();
        let is_in = |it: &&Place| {
            it.0 == plural
                && (namespace.is_empty() || it.1 == namespace)
                && !state.hidden.contains(*it)
        };
        let places: Vec<&Place> = state.objects.keys().filter(is_in).collect();
        let from = parameter("continue").unwrap_or(0);
        let limit = parameter("limit").unwrap_or(usize::MAX);
        let page = places.iter().skip(from).take(limit);
        let items: Vec<&Value> = page.filter_map(|it| state.objects.get(*it)).collect();
        let rest = places.len() > from + items.len();
        let version = self.0.version.borrow().to_string();
        let more = rest.then(|| (from + items.len()).to_string());
        let metadata = json!({ "resourceVersion": version, "continue": more });
        json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items})
    }

    fn create(&self, plural: &str, object: &Value) -> Answer {
        let (place, mut object) = (place(plural, object), object.clone());
        if self.0.state.lock().objects.contains_key(&place) {
            return (409, refusal(409, "AlreadyExists", &place.2));
        }
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("uid-{}", *self.0.version.borrow()));
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(self.date());
        (201, self.store(plural, object))
    }

    /// Applies a merge patch to the status, or to everything else, and returns the object.
    fn change(&self, place: &Place, held: &Value, asked: &Asked) -> Value {
        let mut patch = asked.body.clone();
        let is_status = asked.path.ends_with("/status");
        if is_status {
            patch = json!({ "status": patch["status"] });
        } else if let Some(fields) = patch.as_object_mut() {
            fields.remove("status");
        }
        let mut object = held.clone();
        merge::apply(&mut object, &patch);
        if object["spec"] != held["spec"] {
            let generation = held["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let metadata = &object["metadata"];
        if !metadata["deletionTimestamp"].is_null() && !has_finalizers(metadata) {
            return self.remove(place, object);
        }
        self.store(&place.0, object)
    }

    /// Removes an object, or marks it where finalizers hold it.
    fn remove(&self, place: &Place, mut object: Value) -> Value {
        if !has_finalizers(&object["metadata"]) {
            self.delete(&place.0, &place.1, &place.2);
            return object;
        }
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return object;
        }
        object["metadata"]["deletionTimestamp"] = json!(self.date());
        self.store(&place.0, object)
    }

    /// Answers a watch: it says what has happened, and ends when there is more to send.
    fn watch(&self, path: &str, query: &str) -> Response<ResponseBody> {
        let (plural, namespace, _) = addressed(path).unwrap_or_default();
        let is_in = move |object: &Value| {
            namespace.is_empty() || object["metadata"]["namespace"] == json!(namespace)
        };
        let now = *self.0.version.borrow();
        let from = query
            .split('&')
            .find_map(|it| it.strip_prefix("resourceVersion="));
        let from: Option<u64> = from.and_then(|it| it.parse().ok());
        let line =
            |kind: &str, object: &Value| format!("{}\n", json!({ "type": kind, "object": object }));
        let state = self.0.state.lock();
        let mut text = String::new();
        match from {
            Some(from) if from < state.oldest => {
                text.push_str(&line("ERROR", &refusal(410, "Expired", "")));
            }
            Some(from) => {
                let events = state.log.iter();
                let events = events.filter(|it| it.0 > from && it.1 == plural && is_in(&it.3));
                let events = events.filter(|it| !state.hidden.contains(&place(&it.1, &it.3)));
                text.extend(events.map(|(_, _, kind, object)| line(kind, object)));
            }
            None => {
                let is_shown = |it: &Place| it.0 == plural && !state.hidden.contains(it);
                let there = state.objects.iter().filter(|(it, _)| is_shown(it));
                let there = there.filter(|(_, object)| is_in(object));
                text.extend(there.map(|(_, object)| line("ADDED", object)));
                let end = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": now.to_string(), "annotations": end});
                text.push_str(&line("BOOKMARK", &json!({ "metadata": metadata })));
            }
        }
        drop(state);
        let (api, mut version) = (self.clone(), self.0.version.subscribe());
        let more = async move {
            let is_update = |_: &u64| {
                let state = api.0.state.lock();
                let mut log = state.log.iter();
                state.oldest > now || log.any(|it| it.0 > now && it.1 == plural)
            };
            _ = version.wait_for(is_update).await;
            None
        };
        let body = Full::new(Bytes::from(text)).map_err(BoxError::from);
        Response::new(body.with_trailers(more).boxed_unsync())
    }
}

impl Network for FakeApi {
    fn send(
        &self,
        _: &Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> {
        Box::pin(self.clone().respond(request))
    }

    fn host(&self) -> String {
        "pod".to_owned()
    }
}

fn has_finalizers(metadata: &Value) -> bool {
    metadata["finalizers"]
        .as_array()
        .is_some_and(|it| !it.is_empty())
}

fn place(plural: &str, object: &Value) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (
        plural.to_owned(),
        text("namespace").to_owned(),
        text("name").to_owned(),
    )
}

/// Returns the plural, namespace, and name of what a path is about; `None` for discovery, which is
/// not answered.
fn addressed(path: &str) -> Option<(String, String, Option<String>)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = parts.get(if parts[0] == "api" { 2 } else { 3 }..)?;
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", rest),
    };
    let name = rest.get(1).map(|it| (*it).to_owned());
    Some(((*rest.first()?).to_owned(), namespace.to_owned(), name))
}
