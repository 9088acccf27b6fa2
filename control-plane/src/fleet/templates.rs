//! Caches of templates: one watch per kind, for as long as something names the kind.
//!
//! Karmada watches every kind that the API server serves. Policies, bindings and dependencies name
//! the kinds that they refer to, so watching these covers the same templates without the cost of
//! the others. A kind that nothing names any more is dropped after a while. Reserved kinds are
//! never watched.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind, verbs};
use muster_shared::queue::{Next, Queue, doubled};
use muster_shared::watch::outline::Outline;
use muster_shared::watch::{Change, Informer, Selection};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

use super::scope::is_reserved;
use super::template::{Kind, Template, TemplateKey, codec};
use super::template_event::{KindState, Lookup, TemplateChange, event};

/// First and longest time after which a kind that the API server does not have is asked for again.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Share of each missing kind in the time between two requests: 20 requests a second for all of
/// them together.
const RETRY_SHARE: Duration = Duration::from_millis(50);
/// Time for which a kind is still watched after nothing names it any more: a policy that is
/// replaced is gone for a moment.
const LINGER: Duration = Duration::from_mins(1);
/// Objects a page where lists are not streamed: templates of unknown kinds may be big.
const PAGE: u32 = 100;

type Listener = Box<dyn Fn(&TemplateChange) + Send + Sync>;
type KindListener = Box<dyn Fn(&Kind) + Send + Sync>;

/// All watched templates. Cheap to clone.
#[derive(Clone)]
pub struct Templates {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    watch_client: Client,
    kinds: RwLock<HashMap<Arc<Kind>, Entry>>,
    listeners: RwLock<Vec<Listener>>,
    kind_listeners: RwLock<Vec<KindListener>>,
    wanted: Queue<Arc<Kind>>,
    shutdown: CancellationToken,
}

struct Entry {
    /// Number of policies, bindings and dependencies that name the kind.
    names: usize,
    watched: Watched,
}

enum Watched {
    /// Whether the API server has the kind is being found out.
    Sought,
    /// The API server did not have the kind when it was asked, so many times in a row.
    Missing { asked: u32 },
    /// The kind exists and cannot be listed, watched and deleted, which templates must be.
    Unfit,
    Following {
        resource: ApiResource,
        /// Whether the object that was seen last lives in a namespace: a definition may have been
        /// made again with another scope.
        namespaced: Arc<AtomicBool>,
        informer: Informer<Template>,
        stop: CancellationToken,
    },
}

impl Templates {
    /// Makes the cache of the templates, in which no kind is watched yet. `watch_client` is for
    /// lists and watches; `client` asks which kinds there are, which can wait.
    pub fn new(client: Client, watch_client: Client, shutdown: CancellationToken) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                watch_client,
                kinds: RwLock::default(),
                listeners: RwLock::default(),
                kind_listeners: RwLock::default(),
                wanted: Queue::new("template kinds"),
                shutdown,
            }),
        }
    }

    /// Adds a listener, called on a watch's own task: it must be quick. Add it before any kind is
    /// named.
    pub fn on_change(&self, listener: impl Fn(&TemplateChange) + Send + Sync + 'static) {
        let mut listeners = self.inner.listeners.write();
        listeners.push(Box::new(listener));
    }

    /// Has the templates of every kind that is watched listed again, and waits until those lists
    /// are in the caches. A kind whose watch fails now, as one that was removed, is left out.
    pub async fn confirmed(&self) {
        let mut watched = Vec::new();
        for entry in self.read().values() {
            if let Watched::Following { informer, .. } = &entry.watched
                && informer.is_synced()
                && informer.refused().is_none()
            {
                watched.push(informer.clone());
            }
        }
        join_all(watched.iter().map(Informer::confirmed)).await;
    }

    /// Returns the kinds that something names.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        self.read().keys().cloned().collect()
    }

    /// Adds a listener that is called whenever a kind becomes known: its objects were listed, or
    /// can never be.
    pub fn on_known(&self, listener: impl Fn(&Kind) + Send + Sync + 'static) {
        let mut listeners = self.inner.kind_listeners.write();
        listeners.push(Box::new(listener));
    }

    /// Names a kind: it is watched from now on. Each call is to be taken back by
    /// [`unname`](Self::unname) when its reason ends.
    pub fn name(&self, kind: &Kind) {
        if is_reserved(kind) {
            return;
        }
        let mut kinds = self.write();
        if let Some(entry) = kinds.get_mut(kind) {
            entry.names += 1;
            return;
        }
        let kind = Arc::new(kind.clone());
        let entry = Entry {
            names: 1,
            watched: Watched::Sought,
        };
        kinds.insert(Arc::clone(&kind), entry);
        drop(kinds);
        self.inner.wanted.add(kind);
    }

    /// Takes one naming of a kind back. When it was the last one, the kind is forgotten after a
    /// while.
    pub fn unname(&self, kind: &Kind) {
        let mut kinds = self.write();
        let Some(entry) = kinds.get_mut(kind) else {
            return;
        };
        entry.names = entry.names.saturating_sub(1);
        if entry.names > 0 {
            return;
        }
        drop(kinds);
        self.inner.wanted.add_after(Arc::new(kind.clone()), LINGER);
    }

    /// Returns what is known about a template.
    pub fn get(&self, key: &TemplateKey) -> Lookup {
        match self.read().get(&key.kind).map(|entry| &entry.watched) {
            Some(Watched::Following { informer, .. }) => {
                match informer.get(key.namespace.as_deref(), &key.name) {
                    Some(template) => Lookup::Found(template),
                    None if informer.is_synced() => Lookup::Absent,
                    None => Lookup::Unknown,
                }
            }
            Some(Watched::Unfit) => Lookup::Absent,
            None if is_reserved(&key.kind) => Lookup::Absent,
            Some(Watched::Sought | Watched::Missing { .. }) | None => Lookup::Unknown,
        }
    }

    /// Returns whether a watch showed the deletion of a template.
    pub fn was_deleted(&self, key: &TemplateKey) -> bool {
        match self.read().get(&key.kind).map(|entry| &entry.watched) {
            Some(Watched::Following { informer, .. }) => {
                informer.was_deleted(key.namespace.as_deref(), &key.name)
            }
            _ => false,
        }
    }

    /// Returns the templates of a kind one after the other, by namespace and name, of one namespace
    /// if one is given; `None` while they have not been listed. The cost grows with the number of
    /// templates that are found.
    pub fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
    ) -> Option<impl Iterator<Item = Arc<Template>> + use<>> {
        self.select(kind, namespace, |_| true)
    }

    /// Returns those of [`list`](Self::list) that are selected by names and labels. The others are
    /// not decoded, so that they cost a hundredth of it.
    pub fn select<F: Fn(Outline<'_>) -> bool>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        is_selected: F,
    ) -> Option<impl Iterator<Item = Arc<Template>> + use<F>> {
        let none = || Some(None.into_iter().flatten());
        // The lock of the kinds is released before templates are compared.
        let informer = {
            let kinds = self.read();
            let Some(entry) = kinds.get(kind) else {
                return if is_reserved(kind) { none() } else { None };
            };
            match &entry.watched {
                Watched::Following { informer, .. } if informer.is_synced() => informer.clone(),
                Watched::Unfit => return none(),
                Watched::Following { .. } | Watched::Sought | Watched::Missing { .. } => {
                    return None;
                }
            }
        };
        let selected = informer.iter_selected(namespace, is_selected);
        Some(Some(selected).into_iter().flatten())
    }

    /// Returns what is known about a kind.
    pub fn kind_state(&self, kind: &Kind) -> KindState {
        match self.read().get(kind).map(|entry| &entry.watched) {
            Some(Watched::Following { informer, .. }) if informer.is_synced() => KindState::Listed,
            Some(Watched::Following { .. }) => KindState::Unlisted,
            Some(Watched::Missing { .. }) => KindState::Missing,
            Some(Watched::Unfit) => KindState::Unfit,
            None if is_reserved(kind) => KindState::Reserved,
            Some(Watched::Sought) | None => KindState::Sought,
        }
    }

    /// Returns why the templates of a kind cannot be listed or watched, once that has lasted for
    /// some seconds.
    pub fn trouble(&self, kind: &Kind) -> Option<String> {
        match &self.read().get(kind)?.watched {
            Watched::Following { informer, .. } => informer.trouble(),
            Watched::Sought | Watched::Missing { .. } | Watched::Unfit => None,
        }
    }

    /// Returns whether the API server has stopped serving a kind, so that its templates are known
    /// only as they were before.
    pub fn is_outdated(&self, kind: &Kind) -> bool {
        match self.read().get(kind).map(|entry| &entry.watched) {
            Some(Watched::Following { informer, .. }) => {
                let refused = informer.refused();
                refused.is_some_and(|it| it.code == Some(404))
            }
            Some(Watched::Sought | Watched::Missing { .. } | Watched::Unfit) | None => false,
        }
    }

    /// Returns whether the objects of a kind live in namespaces; a kind that is not known counts as
    /// namespaced.
    pub fn is_namespaced(&self, kind: &Kind) -> bool {
        match self.read().get(kind).map(|entry| &entry.watched) {
            Some(Watched::Following { namespaced, .. }) => namespaced.load(Ordering::Relaxed),
            _ => true,
        }
    }

    /// Returns whether it is known which templates of a kind there are.
    pub fn is_known(&self, kind: &Kind) -> bool {
        let state = self.kind_state(kind);
        matches!(
            state,
            KindState::Listed | KindState::Unfit | KindState::Reserved
        )
    }

    /// Returns the API to which a template is written; `None` while its kind is not known.
    pub fn api(&self, key: &TemplateKey, client: &Client) -> Option<Api<Template>> {
        let (client, kinds) = (client.clone(), self.read());
        let Watched::Following { resource, .. } = &kinds.get(&key.kind)?.watched else {
            return None;
        };
        Some(match &key.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        })
    }

    /// Asks for named kinds until shutdown.
    pub async fn run(self) {
        let (queue, shutdown) = (self.inner.wanted.clone(), self.inner.shutdown.clone());
        queue
            .run(4, shutdown, move |kind| {
                let templates = self.clone();
                async move { templates.seek(kind).await }
            })
            .await;
    }

    async fn seek(&self, kind: Arc<Kind>) -> Result<Next, kube::Error> {
        if !self.is_sought(&kind) {
            return Ok(Next::Done);
        }
        let named = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
        let found = match pinned_kind(&self.inner.client, &named).await {
            Ok(found) => Some(found),
            // A group that nobody serves is answered by a plain 404 without a status object.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(kube::Error::Discovery(_)) => None,
            Err(error) => return Err(error),
        };
        let Some((resource, capabilities)) = found else {
            return Ok(self.miss(&kind));
        };
        if ![verbs::LIST, verbs::WATCH, verbs::DELETE]
            .iter()
            .all(|verb| capabilities.supports_operation(verb))
        {
            tracing::warn!(
                api_version = kind.api_version,
                kind = kind.kind,
                "the kind cannot be watched and is not propagated"
            );
            if self.put(&kind, Watched::Unfit) {
                self.notify_kind(&kind);
            }
            return Ok(Next::Done);
        }
        self.follow(kind, resource, &capabilities);
        Ok(Next::Done)
    }

    /// Returns whether a kind has still to be found. A kind that nothing names any more is
    /// forgotten.
    fn is_sought(&self, kind: &Kind) -> bool {
        let mut kinds = self.write();
        let Some(entry) = kinds.get(kind) else {
            return false;
        };
        if entry.names > 0 {
            return matches!(entry.watched, Watched::Sought | Watched::Missing { .. });
        }
        if let Some(Entry {
            watched: Watched::Following { stop, .. },
            ..
        }) = kinds.remove(kind)
        {
            tracing::info!(
                api_version = kind.api_version,
                kind = kind.kind,
                "nothing names the kind any more: its templates are not watched"
            );
            stop.cancel();
        }
        false
    }

    /// Notes that the API server does not have a kind, and returns when to ask again.
    fn miss(&self, kind: &Kind) -> Next {
        let mut kinds = self.write();
        let Some(entry) = kinds.get_mut(kind) else {
            return Next::Done;
        };
        let asked = match entry.watched {
            Watched::Missing { asked } => asked.saturating_add(1),
            _ => 1,
        };
        entry.watched = Watched::Missing { asked };
        let missing = kinds
            .values()
            .filter(|entry| matches!(entry.watched, Watched::Missing { .. }))
            .count();
        drop(kinds);
        tracing::debug!(
            api_version = kind.api_version,
            kind = kind.kind,
            asked,
            "the API server does not have the kind"
        );
        Next::After(retry_after(asked, missing))
    }

    fn follow(&self, kind: Arc<Kind>, resource: ApiResource, capabilities: &ApiCapabilities) {
        tracing::info!(
            api_version = kind.api_version,
            kind = kind.kind,
            "watching templates"
        );
        let api = Api::all_with(self.inner.watch_client.clone(), &resource);
        let informer = Informer::packing(
            api,
            Selection::everything().page_size(PAGE),
            |_| {},
            codec(),
        );
        let namespaced = Arc::new(AtomicBool::new(capabilities.scope == Scope::Namespaced));
        let (templates, of, scope) = (self.clone(), Arc::clone(&kind), Arc::clone(&namespaced));
        informer.on_change(move |change| {
            if let Change::Applied { new, .. } = change {
                scope.store(new.metadata().namespace.is_some(), Ordering::Relaxed);
            }
            if let Some(event) = event(change) {
                templates.notify(&TemplateChange {
                    key: TemplateKey::of_template(&of, change.object()),
                    event,
                });
            }
        });
        let stop = self.inner.shutdown.child_token();
        let following = Watched::Following {
            resource,
            namespaced,
            informer: informer.clone(),
            stop: stop.clone(),
        };
        if self.put(&kind, following) {
            muster_shared::clock::spawn(self.clone().attend(kind, informer, stop));
        }
    }

    /// Runs an informer until it is stopped, notifies when its first list has arrived, and has it
    /// started anew if it ends by itself, or whoever listens to it panics.
    async fn attend(self, kind: Arc<Kind>, informer: Informer<Template>, stop: CancellationToken) {
        let (templates, known, stopped) = (self.clone(), Arc::clone(&kind), stop.clone());
        let running = muster_shared::clock::spawn(async move {
            let listed = async {
                informer.synced().await;
                templates.notify_kind(&known);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = informer.clone().run(stopped) => {}
                () = listed => {}
            }
        });
        // An error is a panic; it is reported below.
        let _ = running.await;
        if stop.is_cancelled() {
            return;
        }
        tracing::error!(
            api_version = kind.api_version,
            kind = kind.kind,
            "the watch of the templates ended: it is started anew"
        );
        self.put(&kind, Watched::Sought);
        self.inner.wanted.add_after(kind, FIRST_RETRY);
    }

    /// Notes what became of a kind; `false` when it was forgotten meanwhile.
    fn put(&self, kind: &Kind, watched: Watched) -> bool {
        let mut kinds = self.write();
        let entry = kinds.get_mut(kind);
        entry.map(|entry| entry.watched = watched).is_some()
    }

    fn notify(&self, change: &TemplateChange) {
        let listeners = self.inner.listeners.read();
        for listener in &*listeners {
            listener(change);
        }
    }

    fn notify_kind(&self, kind: &Kind) {
        let listeners = self.inner.kind_listeners.read();
        for listener in &*listeners {
            listener(kind);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Arc<Kind>, Entry>> {
        self.inner.kinds.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Arc<Kind>, Entry>> {
        self.inner.kinds.write()
    }
}

/// Returns how long to wait before a kind is asked for again. `asked` is how often it was not
/// found, `missing` is how many kinds are missing.
fn retry_after(asked: u32, missing: usize) -> Duration {
    let backoff = doubled((FIRST_RETRY, LONGEST_RETRY), asked.saturating_sub(1));
    let share = RETRY_SHARE.saturating_mul(u32::try_from(missing).unwrap_or(u32::MAX));
    backoff.max(share)
}

#[cfg(test)]
mod tests;
