//! The templates of the fleet API: one watch for each kind that somebody asks for, started when asked.
//!
//! Karmada watches every kind that the API server has. A policy names the kinds of what it selects, so watching just those sees
//! the same templates and costs neither memory nor connections for the rest.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind, verbs};
use kube::{Client, Resource};
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Change, Informer, Selection};
use tokio_util::sync::CancellationToken;

use super::template::{Kind, Template, TemplateKey};

/// How long to wait before looking again for a kind that the API server does not have (yet).
const MISSING_KIND: Duration = Duration::from_secs(5);
/// Objects a page where lists are not streamed: templates of unknown kinds may be big.
const PAGE: u32 = 100;

/// What happened to a template.
#[derive(Debug)]
pub struct News {
    /// The template.
    pub key: TemplateKey,
    /// What happened.
    pub event: TemplateEvent,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateEvent {
    /// It is new to us.
    Appeared,
    /// Somebody changed more than the status and the fleet's own marks.
    Changed,
    /// Only the fleet's own labels and annotations changed.
    Marked,
    /// It is gone.
    Gone,
}

/// What is known about one template.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It exists.
    Found(Arc<Template>),
    /// It does not exist: the kind has been listed, or the API server does not have the kind.
    Absent,
    /// Nothing is known yet: the kind has not been listed. It is being watched from now on.
    Unknown,
}

type Listener = Box<dyn Fn(&News) + Send + Sync>;

/// All watched templates. Cheap to clone.
#[derive(Clone)]
pub struct Templates {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    watch_client: Client,
    kinds: RwLock<HashMap<Arc<Kind>, Watched>>,
    listeners: RwLock<Vec<Listener>>,
    wanted: Queue<Arc<Kind>>,
    shutdown: CancellationToken,
}

enum Watched {
    /// Asked for; whether the API server has the kind is being found out.
    Sought,
    /// The API server did not have the kind when it was last asked.
    Missing,
    /// It exists and cannot be listed, watched and deleted, which templates must be.
    Unfit,
    Following {
        resource: ApiResource,
        namespaced: bool,
        informer: Informer<Template>,
    },
}

impl Templates {
    /// No kind is watched yet. `watch_client` is for lists and watches, `client` for everything else.
    pub fn new(client: Client, watch_client: Client, shutdown: CancellationToken) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                watch_client,
                kinds: RwLock::default(),
                listeners: RwLock::default(),
                wanted: Queue::new("template kinds"),
                shutdown,
            }),
        }
    }

    /// Adds a listener, called on a watch's own task: it must be quick. Add it before any kind is wanted.
    pub fn on_change(&self, listener: impl Fn(&News) + Send + Sync + 'static) {
        self.inner
            .listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(listener));
    }

    /// Watches a kind from now on.
    pub fn want(&self, kind: &Kind) {
        if self.read().contains_key(kind) {
            return;
        }
        let kind = Arc::new(kind.clone());
        let first = {
            let mut kinds = self
                .inner
                .kinds
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            kinds.insert(Arc::clone(&kind), Watched::Sought).is_none()
        };
        if first {
            self.inner.wanted.add(kind);
        }
    }

    /// What is known about a template; its kind is watched from now on.
    pub fn get(&self, key: &TemplateKey) -> Lookup {
        self.want(&key.kind);
        match self.read().get(&key.kind) {
            Some(Watched::Following { informer, .. }) => {
                match informer.get(key.namespace.as_deref(), &key.name) {
                    Some(template) => Lookup::Found(template),
                    None if informer.is_synced() => Lookup::Absent,
                    None => Lookup::Unknown,
                }
            }
            Some(Watched::Missing | Watched::Unfit) => Lookup::Absent,
            Some(Watched::Sought) | None => Lookup::Unknown,
        }
    }

    /// All templates of a kind, `None` while they have not been listed.
    pub fn list(&self, kind: &Kind) -> Option<Vec<(TemplateKey, Arc<Template>)>> {
        self.want(kind);
        let kinds = self.read();
        match kinds.get_key_value(kind) {
            Some((kind, Watched::Following { informer, .. })) => informer.is_synced().then(|| {
                informer
                    .list()
                    .into_iter()
                    .map(|template| (key_of(kind, &template), template))
                    .collect()
            }),
            Some((_, Watched::Missing | Watched::Unfit)) => Some(Vec::new()),
            Some((_, Watched::Sought)) | None => None,
        }
    }

    /// Where a template is written; `None` while its kind is not known.
    pub fn api(&self, key: &TemplateKey, client: &Client) -> Option<Api<Template>> {
        let client = client.clone();
        match self.read().get(&key.kind)? {
            Watched::Following {
                resource,
                namespaced: true,
                ..
            } => Some(Api::namespaced_with(
                client,
                key.namespace.as_deref()?,
                resource,
            )),
            Watched::Following { resource, .. } => Some(Api::all_with(client, resource)),
            Watched::Sought | Watched::Missing | Watched::Unfit => None,
        }
    }

    /// Looks for wanted kinds until shutdown.
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
        let named = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
        let found = match pinned_kind(&self.inner.client, &named).await {
            Ok(found) => Some(found),
            // A group that nobody serves is answered by a plain 404 without a status object.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(kube::Error::Discovery(_)) => None,
            Err(error) => return Err(error),
        };
        let Some((resource, capabilities)) = found else {
            tracing::debug!(
                api_version = kind.api_version,
                kind = kind.kind,
                "the API server does not have the kind"
            );
            self.put(kind, Watched::Missing);
            return Ok(Next::After(MISSING_KIND));
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
            self.put(kind, Watched::Unfit);
            return Ok(Next::Done);
        }
        self.follow(kind, resource, &capabilities);
        Ok(Next::Done)
    }

    fn follow(&self, kind: Arc<Kind>, resource: ApiResource, capabilities: &ApiCapabilities) {
        tracing::info!(
            api_version = kind.api_version,
            kind = kind.kind,
            "watching templates"
        );
        let api = Api::all_with(self.inner.watch_client.clone(), &resource);
        let informer = Informer::new(api, Selection::everything().page_size(PAGE));
        let (templates, of) = (self.clone(), Arc::clone(&kind));
        informer.on_change(move |change| {
            if let Some(event) = event(change) {
                templates.tell(&News {
                    key: key_of(&of, change.object()),
                    event,
                });
            }
        });
        let namespaced = capabilities.scope == Scope::Namespaced;
        self.put(
            kind,
            Watched::Following {
                resource,
                namespaced,
                informer: informer.clone(),
            },
        );
        tokio::spawn(informer.run(self.inner.shutdown.clone()));
    }

    fn put(&self, kind: Arc<Kind>, watched: Watched) {
        self.inner
            .kinds
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(kind, watched);
    }

    fn tell(&self, news: &News) {
        for listener in self
            .inner
            .listeners
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            listener(news);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Arc<Kind>, Watched>> {
        self.inner
            .kinds
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a change of the cache means; `None` for one that nobody needs to hear of, such as that of a status.
fn event(change: &Change<Template>) -> Option<TemplateEvent> {
    match change {
        Change::Applied { old: None, .. } => Some(TemplateEvent::Appeared),
        Change::Applied {
            old: Some(old),
            new,
        } if old.users_content() != new.users_content() => Some(TemplateEvent::Changed),
        Change::Applied {
            old: Some(old),
            new,
        } if old.content() != new.content() => Some(TemplateEvent::Marked),
        Change::Applied { .. } => None,
        Change::Deleted { .. } => Some(TemplateEvent::Gone),
    }
}

fn key_of(kind: &Arc<Kind>, template: &Template) -> TemplateKey {
    let metadata = template.meta();
    TemplateKey {
        kind: Arc::clone(kind),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
