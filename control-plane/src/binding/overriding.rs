//! Override policies of the templates of bindings: when they change, and what they make of a
//! manifest.

use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::OverrideSpec;
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};
use serde_json::Value;

use super::error::Error;
use super::render::Pairs;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::selection::Subject;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::fleet::templates::Templates;
use crate::overrides::{self, Policies, concerns};

/// Reconciles the bindings whose manifests a change of an override policy, or of a cluster that the
/// policies may select, can change.
pub(super) fn follow(fleet: &Fleet, queue: &Queue<BindingKey>) {
    let affected = Affected {
        bindings: fleet.bindings.clone(),
        cluster_bindings: fleet.cluster_bindings.clone(),
        templates: fleet.templates.clone(),
        queue: queue.clone(),
    };
    fleet.override_policies.on_change({
        let affected = affected.clone();
        move |change| {
            let (old, new) = sides(change);
            let namespace = change.object().metadata.namespace.as_deref();
            let specs = (
                old.map(|policy| &policy.spec),
                new.map(|policy| &policy.spec),
            );
            affected.by_policy(Some(namespace.unwrap_or_default()), specs);
        }
    });
    fleet.cluster_override_policies.on_change({
        let affected = affected.clone();
        move |change| {
            let (old, new) = sides(change);
            affected.by_policy(
                None,
                (
                    old.map(|policy| &policy.spec),
                    new.map(|policy| &policy.spec),
                ),
            );
        }
    });
    let policies = (
        fleet.override_policies.clone(),
        fleet.cluster_override_policies.clone(),
    );
    fleet.clusters.on_change(move |change| {
        let Change::Applied { old, new } = change else {
            return;
        };
        let is_selected_otherwise = old.as_ref().is_none_or(|old| traits(old) != traits(new));
        if is_selected_otherwise && !(policies.0.is_empty() && policies.1.is_empty()) {
            affected.by_cluster(new.metadata.name.as_deref().unwrap_or_default());
        }
    });
}

/// Returns both sides of a change. The old one of a creation and the new one of a deletion do not
/// exist.
fn sides<K>(change: &Change<K>) -> (Option<&K>, Option<&K>) {
    match change {
        Change::Applied { old, new } => (old.as_deref(), Some(new.as_ref())),
        Change::Deleted { old } => (Some(old.as_ref()), None),
    }
}

/// Returns what affinities compare of a cluster.
fn traits(cluster: &Cluster) -> (Option<&Pairs>, [Option<&str>; 2], &[String]) {
    let spec = &cluster.spec;
    (
        cluster.metadata.labels.as_ref(),
        [spec.provider.as_deref(), spec.region.as_deref()],
        &spec.zones,
    )
}

/// Finds the bindings that a change affects.
#[derive(Clone)]
struct Affected {
    bindings: Informer<ResourceBinding>,
    cluster_bindings: Informer<ClusterResourceBinding>,
    templates: Templates,
    queue: Queue<BindingKey>,
}

impl Affected {
    /// Reconciles the bindings of templates that the policy selects or has selected. `namespace` is
    /// that of an OverridePolicy, `None` for a ClusterOverridePolicy.
    fn by_policy(
        &self,
        namespace: Option<&str>,
        (old, new): (Option<&OverrideSpec>, Option<&OverrideSpec>),
    ) {
        if old == new {
            return;
        }
        let selects = |key: &TemplateKey| match self.templates.get(key) {
            Lookup::Found(template) => {
                let subject = Subject::of(key, &template);
                [old, new]
                    .into_iter()
                    .flatten()
                    .any(|spec| concerns(namespace, spec, subject).is_some())
            }
            Lookup::Absent => false,
            Lookup::Unknown => true,
        };
        let near = match namespace {
            Some(namespace) => self.bindings.list_in(namespace),
            None => self.bindings.list(),
        };
        for binding in near {
            if selects(&TemplateKey::of(&binding.spec.resource)) {
                self.queue.add(BindingKey::of(binding.as_ref()));
            }
        }
        if namespace.is_none() {
            for binding in self.cluster_bindings.list() {
                if selects(&TemplateKey::of(&binding.spec.resource)) {
                    self.queue.add(BindingKey::of(binding.as_ref()));
                }
            }
        }
    }

    /// Reconciles the bindings that are placed in a cluster.
    fn by_cluster(&self, cluster: &str) {
        fn among<B: Binding>(bindings: &Informer<B>, cluster: &str, queue: &Queue<BindingKey>) {
            for binding in bindings.list() {
                if super::render::expects(binding.spec(), cluster) {
                    queue.add(BindingKey::of(binding.as_ref()));
                }
            }
        }
        among(&self.bindings, cluster, &self.queue);
        among(&self.cluster_bindings, cluster, &self.queue);
    }
}

/// Override policies as one template sees them.
pub(super) struct Overriding<'a> {
    fleet: &'a Fleet,
    policies: Policies,
    subject: Subject<'a>,
}

impl<'a> Overriding<'a> {
    /// Returns the policies for a template.
    ///
    /// # Errors
    /// [`Error::Overrides`] if there is a policy that might select the template and cannot be read:
    /// the manifest without its changes might be wrong for every cluster.
    pub fn of(fleet: &'a Fleet, subject: Subject<'a>) -> Result<Self, Error> {
        let unread = |kind: &str, name: String| Error::Overrides {
            reason: format!(
                "{kind} {name} cannot be read: nothing that it might select is made or updated until it is repaired or removed"
            ),
        };
        if let Some(name) = fleet.cluster_override_policies.unreadable_in("") {
            return Err(unread("ClusterOverridePolicy", name));
        }
        let namespace = subject.namespace.unwrap_or_default();
        if let Some(name) = fleet.override_policies.unreadable_in(namespace) {
            return Err(unread("OverridePolicy", format!("{namespace}/{name}")));
        }
        let policies = Policies {
            cluster: fleet.cluster_override_policies.list(),
            namespaced: fleet.override_policies.list_in(namespace),
        };
        Ok(Self {
            fleet,
            policies,
            subject,
        })
    }

    /// Changes the manifest for a cluster; returns the annotations of its Work.
    ///
    /// # Errors
    /// [`Error::Overrides`] if a change cannot be made, or nothing is known of the cluster.
    pub fn apply(&self, manifest: &mut Value, cluster: &str) -> Result<Pairs, Error> {
        let selected = self.policies.selected(self.subject);
        if selected.is_empty() {
            return Ok(Pairs::new());
        }
        let Some(cluster) = self.fleet.clusters.get(None, cluster) else {
            return Err(Error::Overrides {
                reason: format!(
                    "cluster {cluster} is not known, so that nobody can tell which override policies apply to it"
                ),
            });
        };
        match overrides::apply(manifest, &selected, &cluster) {
            Ok(applied) => Ok(applied.annotations().into_iter().collect()),
            Err(error) => Err(Error::Overrides {
                reason: error.to_string(),
            }),
        }
    }
}
