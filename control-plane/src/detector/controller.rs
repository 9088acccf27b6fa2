//! Gives each template the binding that its policy wants for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::Api;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::policy::{PriorityClassSource, PropagationSpec};
use muster_shared::names::label;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};

use super::build::{self, Wanted};
use super::claim::Claim;
use super::policy::{Policy, PolicyKey};
use super::scope::Scope;
use super::select::{Subject, selects, winner};
use super::template::{Template, TemplateKey};
use super::templates::{Lookup, TemplateEvent};
use super::{claims, dependencies, policies};
use crate::binding::kept::Kept;
use crate::fleet::Fleet;
use crate::scheduler::FirstPlacement;
use crate::settings::{PRIORITY_BASED_SCHEDULING, PROPAGATE_DEPS};
use crate::taint::default_tolerations::DefaultTolerations;

/// How long to wait for something of ours to arrive in a cache.
pub(super) const SOON: Duration = Duration::from_millis(200);

/// Why a template has not the binding that it should have.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("build the binding: {0}")]
    Build(#[from] build::Error),
    #[error("{step} {subject}: {source}")]
    Api {
        step: &'static str,
        subject: String,
        source: Box<kube::Error>,
    },
    #[error(
        "{policy} waits for override policies ({overrides}), which this version does not apply"
    )]
    Overrides {
        policy: PolicyKey,
        overrides: String,
    },
    #[error("{policy} takes its schedule priority from {class:?}, which is no PriorityClass")]
    PriorityClass { policy: PolicyKey, class: String },
}

impl Error {
    pub(super) fn api(
        step: &'static str,
        subject: &impl ToString,
    ) -> impl FnOnce(kube::Error) -> Self {
        let subject = subject.to_string();
        move |source| Self::Api {
            step,
            subject,
            source: Box::new(source),
        }
    }
}

/// The controller's state: queues, and what it remembers to save writes. Everything in it may be lost.
pub(super) struct Detector {
    pub(super) fleet: Arc<Fleet>,
    pub(super) templates: Queue<TemplateKey>,
    pub(super) policies: Queue<PolicyKey>,
    /// Templates whose policy is still to be written on them.
    pub(super) claims: Queue<TemplateKey>,
    scope: Scope,
    /// Places new bindings, where this process is the scheduler, too.
    pub(super) first: Option<FirstPlacement>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
pub(super) struct Memory {
    /// The content that each template had when its binding was last built.
    pub(super) built: HashMap<TemplateKey, u64>,
    /// Templates whose binding was created and is not in the cache yet.
    pub(super) arriving: HashSet<TemplateKey>,
    /// Templates that did not change since their lazy policy did: their bindings are left alone.
    for_policy: HashSet<TemplateKey>,
    /// What is to be written on the templates of the queue of claims.
    pub(super) claims: HashMap<TemplateKey, Claim>,
}

impl Memory {
    fn forget(&mut self, key: &TemplateKey) {
        self.built.remove(key);
        self.arriving.remove(key);
        self.for_policy.remove(key);
        self.claims.remove(key);
    }
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    let scope = match Scope::new(
        &settings.skipped_propagating_apis,
        &settings.skipped_propagating_namespaces.0,
    ) {
        Ok(scope) => scope,
        Err(error) => {
            // A supervised task that ends, ends the process with its name.
            tasks.spawn("detector", async move {
                tracing::error!(%error, "cannot start the detector");
            });
            return;
        }
    };
    let detector = Arc::new(Detector {
        fleet: Arc::clone(fleet),
        templates: Queue::new("detector"),
        policies: Queue::new("policies"),
        claims: Queue::new("claims"),
        scope: scope.clone(),
        first: FirstPlacement::follow(fleet),
        memory: Mutex::default(),
    });
    listen(&detector);
    let work = Arc::clone(&detector);
    let workers = settings.concurrent_resource_template_syncs;
    fleet.work(
        tasks,
        "detector",
        detector.templates.clone(),
        workers,
        move |_, key| {
            let detector = Arc::clone(&work);
            async move { detector.reconcile(key).await }
        },
    );
    policies::start(&detector, tasks);
    claims::start(&detector, tasks);
    if settings.gate(&PROPAGATE_DEPS) {
        dependencies::start(fleet, scope, tasks);
    }
}

fn listen(detector: &Arc<Detector>) {
    let fleet = &detector.fleet;
    let to = Arc::clone(detector);
    fleet.templates.on_change(move |news| {
        if news.event == TemplateEvent::Gone {
            to.memory().forget(&news.key);
            return;
        }
        if to.scope.admits(&news.key) {
            if news.event != TemplateEvent::Marked {
                to.memory().for_policy.remove(&news.key);
            }
            to.templates.add(news.key.clone());
        }
    });
    listen_to_bindings(detector, &fleet.bindings);
    listen_to_bindings(detector, &fleet.cluster_bindings);
}

/// A binding that somebody deleted is made again, and the kind of its template is watched even when no policy names it any more.
fn listen_to_bindings<B: Kept>(detector: &Arc<Detector>, bindings: &Informer<B>) {
    let to = Arc::clone(detector);
    bindings.on_change(move |change| {
        let key = TemplateKey::of(&change.object().spec().resource);
        match change {
            Change::Applied { old: None, .. } => {
                to.memory().arriving.remove(&key);
                to.fleet.templates.want(&key.kind);
            }
            Change::Applied { .. } => {}
            Change::Deleted { .. } => {
                to.memory().arriving.remove(&key);
                to.templates.add(key);
            }
        }
    });
}

impl Detector {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a template because its policy changed. A lazy one leaves the binding as it is until the template itself changes.
    pub(super) fn revisit(&self, key: TemplateKey, lazily: bool) {
        if lazily {
            self.memory().for_policy.insert(key.clone());
        }
        self.templates.add(key);
    }

    /// Whether templates of a kind and namespace are propagated.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    async fn reconcile(&self, key: TemplateKey) -> Result<Next, Error> {
        let template = match self.fleet.templates.get(&key) {
            Lookup::Found(template) => template,
            Lookup::Absent => return Ok(Next::Done),
            Lookup::Unknown => return Ok(Next::After(SOON)),
        };
        let claimed_elsewhere = template
            .label(label::CLAIMED_BY)
            .is_some_and(|by| !by.is_empty());
        if template.is_deleting() || claimed_elsewhere || !self.scope.admits(&key) {
            return Ok(Next::Done);
        }
        let subject = Subject::of(&key, &template);
        let claim = Claim::on(template.metadata()).or_else(|| self.claim_of_binding(&key));
        let Some(claim) = claim else {
            // A template without a policy waits; the policy that comes looks for it.
            return match self.match_policy(subject) {
                Some(policy) => self.apply(&key, &template, &policy).await,
                None => Ok(Next::Done),
            };
        };
        match self.policy(&claim.policy) {
            None => self.release(&key, &claim).await,
            // The policy's own reconciliation releases what it has.
            Some(policy) if policy.is_deleting() => Ok(Next::Done),
            // What is not selected any more is released when the policy changes. (The same object may be served by two API groups of
            // which the policy names one: its other face must not release it.)
            Some(policy) if !selects(policy.spec(), subject) => Ok(Next::Done),
            Some(policy) => self.apply(&key, &template, &policy).await,
        }
    }

    /// The claim on a template that was not written on it yet.
    fn claim_of_binding(&self, key: &TemplateKey) -> Option<Claim> {
        let (namespace, name) = (key.namespace.as_deref(), build::binding_name(key));
        if namespace.is_some() {
            Claim::on(&self.fleet.bindings.get(namespace, &name)?.metadata)
        } else {
            Claim::on(&self.fleet.cluster_bindings.get(None, &name)?.metadata)
        }
    }

    /// The policy by name.
    pub(super) fn policy(&self, key: &PolicyKey) -> Option<Policy> {
        match key {
            PolicyKey::Namespaced { namespace, name } => self
                .fleet
                .policies
                .get(Some(namespace), name)
                .map(Policy::Namespaced),
            PolicyKey::Cluster { name } => self
                .fleet
                .cluster_policies
                .get(None, name)
                .map(Policy::Cluster),
        }
    }

    /// The policy for a template that has none: one of its namespace before any cluster-wide one.
    fn match_policy(&self, subject: Subject<'_>) -> Option<Policy> {
        if let Some(namespace) = subject.namespace {
            let all = self.fleet.policies.list().into_iter();
            let near = all.filter(|policy| policy.metadata.namespace.as_deref() == Some(namespace));
            let near: Vec<_> = near.map(Policy::Namespaced).collect();
            if let Some(policy) = winner(&near, subject) {
                return Some(policy.clone());
            }
        }
        let wide: Vec<_> = self
            .fleet
            .cluster_policies
            .list()
            .into_iter()
            .map(Policy::Cluster)
            .collect();
        winner(&wide, subject).cloned()
    }

    async fn apply(
        &self,
        key: &TemplateKey,
        template: &Template,
        policy: &Policy,
    ) -> Result<Next, Error> {
        let spec = policy.spec();
        if !spec.dependent_overrides.is_empty() {
            return Err(Error::Overrides {
                policy: policy.key(),
                overrides: spec.dependent_overrides.join(", "),
            });
        }
        let Some(claim) = Claim::by(policy) else {
            // The policy's own reconciliation gives it an id.
            return Ok(Next::After(SOON));
        };
        let is_marked = claim.patch(template.metadata()).is_none();
        if policy.is_lazy() && self.memory().for_policy.contains(key) {
            if !is_marked {
                self.claim_later(key, claim);
            }
            return Ok(Next::Done);
        }
        let priority = self.schedule_priority(policy, spec).await?;
        let wanted = Wanted::new(key, template, &claim, spec, priority)
            .map_err(|error| self.report(key, template, error))?
            .tolerating(DefaultTolerations::of(&self.fleet.settings));
        let content = template.content();
        let (echo, changed) = {
            let memory = self.memory();
            // Our own claim, whose answer is still to come; what else it may show is looked at then.
            let echo = is_marked && memory.claims.contains_key(key);
            let differs = memory.built.get(key).is_some_and(|built| *built != content);
            (echo, differs && !echo)
        };
        let next = if key.namespace.is_some() {
            self.write::<ResourceBinding>(key, &wanted, changed).await?
        } else {
            self.write::<ClusterResourceBinding>(key, &wanted, changed)
                .await?
        };
        if next == Next::Done && !echo {
            self.memory().built.insert(key.clone(), content);
            if !is_marked {
                self.claim_later(key, claim);
            }
        }
        Ok(next)
    }

    /// The number behind the priority class that a policy names.
    async fn schedule_priority(
        &self,
        policy: &Policy,
        spec: &PropagationSpec,
    ) -> Result<Option<i32>, Error> {
        let Some(priority) = &spec.schedule_priority else {
            return Ok(None);
        };
        if !self.fleet.settings.gate(&PRIORITY_BASED_SCHEDULING) {
            return Ok(None);
        }
        let class = &priority.priority_class_name;
        if priority.priority_class_source != PriorityClassSource::KubePriorityClass {
            return Err(Error::PriorityClass {
                policy: policy.key(),
                class: class.clone(),
            });
        }
        let classes: Api<PriorityClass> = Api::all(self.fleet.client.clone());
        let found = classes
            .get(class)
            .await
            .map_err(Error::api("read the priority class", class))?;
        Ok(Some(found.value))
    }

    /// Tells the owner of a template that nothing can be made of it.
    fn report(&self, key: &TemplateKey, template: &Template, error: build::Error) -> Error {
        let about = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(key.kind.api_version.clone()),
            kind: Some(key.kind.kind.clone()),
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
            uid: template.metadata().uid.clone(),
            ..Default::default()
        };
        let kind = muster_shared::events::EventType::Warning;
        self.fleet
            .events
            .publish_about(about, kind, "ApplyPolicyFailed", error.to_string());
        error.into()
    }
}
