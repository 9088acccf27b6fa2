//! Follows bindings, templates, clusters and DNSEndpoints, and writes the latter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ObjectReference, TargetCluster};
use muster_shared::api::cluster::Cluster;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::k8s::{Api, DynamicObject, ObjectMeta, ResourceExt as _};
use muster_shared::names::condition::{
    HOSTNAME_INVALID, HOSTNAME_NOT_SERVED, HOSTNAME_REFUSED, HOSTNAME_TAKEN,
};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer, Selection};
use parking_lot::Mutex;

use super::copies::{Placed, copies};
use super::decide::{Copy, State, decide};
use super::endpoint;
use super::explain;
use super::hostnames::Hostnames;
use super::request::{Request, has_addresses};
use super::write::{Writing, delete};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::readiness;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::last_patches::LastPatches;
use crate::fleet::sets::take;
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::Lookup;
use crate::fleet::write::Written;
use crate::settings::FAILOVER;

const NAME: &str = "traffic";
/// Time in which changes of clusters are gathered: the failure of many is one decision about each
/// name.
const GATHERING: Duration = Duration::from_millis(200);
/// Pause between two checks for the kind where the fleet API has not listed its objects.
const UNLISTED: Duration = Duration::from_secs(10);

struct Traffic {
    endpoints: Informer<DynamicObject>,
    hostnames: Arc<Hostnames>,
    patches: LastPatches<BindingKey>,
    /// DNSEndpoints by the host names that they have records for.
    publishing: Arc<Mutex<HashMap<String, BTreeSet<Place>>>>,
    queue: Queue<BindingKey>,
}

/// Namespace and name of a DNSEndpoint.
type Place = (String, String);

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let api = Api::all_with(fleet.watch_client.clone(), &endpoint::resource());
    let endpoints = Informer::keeping(api, Selection::everything(), |it: &mut DynamicObject| {
        it.metadata.managed_fields = None;
    });
    let hostnames = Arc::new(Hostnames::default());
    let publishing = Arc::<Mutex<HashMap<String, BTreeSet<Place>>>>::default();
    endpoints.on_change({
        let publishing = Arc::clone(&publishing);
        move |change| index(&mut publishing.lock(), change)
    });
    let published = Arc::clone(&publishing);
    let queue = Queue::new(NAME);
    let traffic = Arc::new(Traffic {
        endpoints: endpoints.clone(),
        hostnames: Arc::clone(&hostnames),
        patches: LastPatches::default(),
        publishing,
        queue: queue.clone(),
    });
    let [of_bindings, of_endpoints] = [Arc::clone(&hostnames), Arc::clone(&hostnames)];
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    Controller::with(fleet, NAME, &queue)
        .watches(&fleet.bindings, move |_, change| {
            bound(&of_bindings, change)
        })
        .watches(&fleet.templates, |_, change| {
            let kind = &change.key.kind;
            has_addresses(&kind.api_version, &kind.kind)
                .then(|| BindingKey::for_template(&change.key))
        })
        .watches(&endpoints, move |_, change| {
            endpoints_of(&of_endpoints, &published.lock(), change)
        })
        .resyncs_on(&fleet.clusters, |_, change| is_update(change))
        .resyncs(tasks, GATHERING, move |_| hostnames.all())
        .run(tasks, workers, traffic, |fleet, traffic, key| async move {
            traffic.reconcile(&fleet, &key).await
        });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("dns endpoints", endpoints.run(shutdown));
}

/// Keeps account of which object has records for which host name.
fn index(all: &mut HashMap<String, BTreeSet<Place>>, change: &Change<DynamicObject>) {
    let place = |it: &DynamicObject| (it.namespace().unwrap_or_default(), it.name_any());
    let (old, new) = change.sides();
    if let Some(old) = old {
        for hostname in endpoint::hostnames(old) {
            take(all, &hostname, &place(old));
        }
    }
    if let Some(new) = new {
        for hostname in endpoint::hostnames(new) {
            all.entry(hostname).or_default().insert(place(new));
        }
    }
}

/// Returns the bindings that a change of a binding concerns: itself, and those that follow it.
fn bound(hostnames: &Hostnames, change: &Change<AnyBinding>) -> Vec<BindingKey> {
    let binding = change.object();
    let (key, resource) = (BindingKey::of(binding), &binding.spec.resource);
    let mut keys = hostnames.followers(&key);
    if has_addresses(&resource.api_version, &resource.kind) {
        keys.push(key);
    }
    keys
}

/// Returns the bindings that a change of a DNSEndpoint concerns: that of its name, and those of
/// templates that ask for a host name that it has or had, or whose own objects have it.
fn endpoints_of(
    hostnames: &Hostnames,
    publishing: &HashMap<String, BTreeSet<Place>>,
    change: &Change<DynamicObject>,
) -> Vec<BindingKey> {
    let object = change.object();
    let mut names = endpoint::hostnames(object);
    if let Change::Applied { old: Some(old), .. } = change {
        names.extend(endpoint::hostnames(old));
    }
    let mut keys = hostnames.asking(&names);
    let having = names.iter().filter_map(|it| publishing.get(it)).flatten();
    keys.extend(having.map(|(namespace, name)| BindingKey {
        namespace: Some(namespace.clone()),
        name: name.clone(),
    }));
    keys.push(BindingKey {
        namespace: object.namespace(),
        name: object.name_any(),
    });
    keys
}

/// Returns whether a change of a cluster may change where copies serve.
fn is_update(change: &Change<Cluster>) -> bool {
    let sight = |it: &Cluster| {
        let is_leaving = it.metadata.deletion_timestamp.is_some();
        (readiness(it).to_owned(), is_leaving, it.spec.taints.clone())
    };
    change.differs(|old, new| sight(old) != sight(new))
}

/// Returns the kind, namespace and name of a DNSEndpoint.
fn named(it: &ObjectMeta) -> String {
    let namespace = it.namespace.as_deref().unwrap_or_default();
    let name = it.name.as_deref().unwrap_or_default();
    format!("DNSEndpoint {namespace}/{name}")
}

impl Traffic {
    async fn reconcile(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let binding = fleet.bindings.get(key);
        let binding = binding.filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(binding) = binding else {
            self.forget(key);
            return self.unbound(fleet, key).await;
        };
        let resource = &binding.spec.resource;
        if !has_addresses(&resource.api_version, &resource.kind) {
            return Ok(Next::Done);
        }
        // Its appearance adds the key again. What depends on it goes with it.
        let Lookup::Found(template) = fleet.templates.get(&TemplateKey::of(resource)) else {
            return Ok(Next::Done);
        };
        if template.is_deleting() {
            return Ok(Next::Done);
        }
        let client = fleet.work_writer.when_idle().await;
        let write = Writing {
            fleet,
            client: &client,
            key,
            binding: &binding,
        };
        match Request::of(|name| template.annotation(name), resource) {
            Ok(Some(request)) => self.publish(&write, &template, &request).await,
            Ok(None) => self.withdraw(&write).await,
            Err(problem) => {
                self.release(self.hostnames.forget(key));
                write.report(Some((HOSTNAME_INVALID, problem))).await
            }
        }
    }

    /// Has the host name lead where it should.
    async fn publish(
        &self,
        write: &Writing<'_>,
        template: &Template,
        request: &Request,
    ) -> Result<Next, ApiError> {
        self.release(self.hostnames.note(write.key, request));
        if !self.endpoints.is_synced() {
            if self.endpoints.is_unserved() {
                let text = "The fleet API does not serve DNSEndpoint of externaldns.k8s.io/v1alpha1: apply the definition that external-dns ships.";
                write
                    .report(Some((HOSTNAME_NOT_SERVED, text.to_owned())))
                    .await?;
            }
            return Ok(Next::After(UNLISTED));
        }
        let owner = ObjectReference {
            uid: template.metadata().uid.clone(),
            ..write.binding.spec.resource.clone()
        };
        let held = self.held(write.key);
        let (mut request, mut taken) = (request.clone(), None);
        if let Some(problem) = self.conflict(write.key, held.as_deref(), &owner, &request) {
            let held = held.as_deref();
            let former = held.and_then(|it| endpoint::former(it, &owner, &request.hostname));
            let former = former.filter(|it| self.publisher(write.key, held, it).is_none());
            let Some(former) = former else {
                return write.report(Some((HOSTNAME_TAKEN, problem))).await;
            };
            (request.hostname, taken) = (former, Some(problem));
        }
        let published = held.as_deref().map(endpoint::published).unwrap_or_default();
        let (states, copies) = self.copies(write, &request);
        let settle = *write.fleet.settings.traffic_return_after;
        let decision = decide(&published, &copies, settle);
        let mut outcome = explain::outcome(&request.hostname, &decision, &states);
        if let Some(problem) = taken {
            outcome = explain::former(&problem, &outcome);
        }
        let next = decision.next.map_or(Next::Done, Next::After);
        if decision.targets.is_empty() {
            write.report(Some(outcome)).await?;
            return Ok(next);
        }
        let held = held.as_deref();
        let written = write.endpoint(held, &owner, &request, &decision.targets, &self.patches);
        match written.await {
            Ok(Some(Written::Overtaken | Written::Gone)) => return Ok(Next::Again),
            Ok(None) => {}
            Ok(Some(Written::Done(()))) => {
                if published != decision.targets {
                    let hostname = &request.hostname;
                    let note = explain::moved(hostname, &published, &decision.targets, &states);
                    tracing::info!(name = write.key.name, note, "a host name leads elsewhere");
                    write.publish(EventType::Normal, "HostnameMoved", note);
                }
            }
            Err(error) if error.is_lasting() => {
                let text = format!("{error}.");
                write.report(Some((HOSTNAME_REFUSED, text))).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        match write.report(Some(outcome)).await? {
            Next::Done => Ok(next),
            again => Ok(again),
        }
    }

    /// Returns the object of the name that a template's has.
    fn held(&self, key: &BindingKey) -> Option<Arc<DynamicObject>> {
        self.endpoints.get(key.namespace.as_deref(), &key.name)
    }

    /// Returns why somebody else's objects keep a host name from being published.
    fn conflict(
        &self,
        key: &BindingKey,
        held: Option<&DynamicObject>,
        owner: &ObjectReference,
        request: &Request,
    ) -> Option<String> {
        if let Some(held) = held.filter(|it| !endpoint::is_of(it, owner)) {
            let (held, kind) = (named(&held.metadata), &owner.kind);
            return Some(format!(
                "{held} exists and was not written for this {kind}: it is left alone, and has to be deleted or renamed before {} can be published.",
                request.hostname
            ));
        }
        let hostname = &request.hostname;
        let is_held = held.is_some_and(|it| endpoint::hostnames(it).contains(hostname));
        let other = self.publisher(key, held, hostname);
        let claimed = self.hostnames.claim(key, is_held);
        let rule = "one host name is for one Service or Ingress";
        match (other, claimed) {
            (Some(other), _) => Some(format!(
                "{hostname} is published by {other} already: {rule}."
            )),
            (None, Err(other)) => Some(format!("{hostname} is asked for by {other}, too: {rule}.")),
            (None, Ok(())) => None,
        }
    }

    /// Returns somebody else's object that publishes a host name, if it was there before the one
    /// that is held or that has not the name.
    fn publisher(
        &self,
        key: &BindingKey,
        held: Option<&DynamicObject>,
        hostname: &str,
    ) -> Option<String> {
        let age = |it: &DynamicObject| {
            let metadata = &it.metadata;
            let created = metadata.creation_timestamp.as_ref().map(|it| it.0);
            (created, metadata.namespace.clone(), metadata.name.clone())
        };
        let has = |it: &DynamicObject| endpoint::hostnames(it).contains(hostname);
        let own = held.filter(|it| has(it)).map(age);
        let places = self.publishing.lock().get(hostname).cloned();
        let place = (key.namespace.clone().unwrap_or_default(), key.name.clone());
        let others = places.into_iter().flatten().filter(|it| *it != place);
        let others =
            others.filter_map(|(namespace, name)| self.endpoints.get(Some(&namespace), &name));
        let mut others =
            others.filter(|it| has(it) && own.as_ref().is_none_or(|own| age(it) < *own));
        others.next().map(|it| named(&it.metadata))
    }

    /// Returns the copies of a template that may live somewhere, and their states.
    fn copies(
        &self,
        write: &Writing<'_>,
        request: &Request,
    ) -> (BTreeMap<String, State>, BTreeMap<String, Copy>) {
        let (fleet, binding) = (write.fleet, write.binding);
        let own = TemplateKey::of(&binding.spec.resource).to_string();
        let followed = request.follows.as_ref();
        let workload = followed.and_then(|it| fleet.bindings.get(&BindingKey::for_template(it)));
        let workload = workload.map(|it| as_given(fleet, it));
        let name = followed.map(ToString::to_string).unwrap_or_default();
        let placed = |name, binding| placed(fleet, name, binding);
        let followed = followed.map(|_| match &workload {
            Some(workload) => Ok(placed(&name, workload)),
            None => Err(name.as_str()),
        });
        let cluster = |name: &str| fleet.clusters.get(None, name);
        let judged = copies(placed(&own, binding), followed, &request.hostname, cluster);
        let states = judged.iter().map(|(name, it)| (name.clone(), it.0.clone()));
        let states: BTreeMap<String, State> = states.collect();
        let ages = self.hostnames.healthy_for(write.key, &states);
        let copies = judged.into_iter().map(|(cluster, (state, addresses))| {
            let healthy_for = ages.get(&cluster).copied().unwrap_or_default();
            let copy = Copy {
                state,
                addresses,
                healthy_for,
            };
            (cluster, copy)
        });
        (states, copies.collect())
    }

    /// Removes what was written for a template that asks for no host name any more.
    async fn withdraw(&self, write: &Writing<'_>) -> Result<Next, ApiError> {
        self.forget(write.key);
        let held = self.held(write.key);
        let held = held.filter(|it| endpoint::is_of(it, &write.binding.spec.resource));
        if let Some(held) = held
            && delete(write.fleet, write.client, write.key, &held)
                .await?
                .is_overtaken()
        {
            return Ok(Next::Again);
        }
        write.report(None).await
    }

    fn forget(&self, key: &BindingKey) {
        self.release(self.hostnames.forget(key));
        self.patches.forget(key);
    }

    /// Has others reconcile again a host name that was given up.
    fn release(&self, asking: Vec<BindingKey>) {
        for key in asking {
            self.queue.add(key);
        }
    }

    /// Removes what was written for a template that no policy propagates any more: its addresses go
    /// to somebody else.
    async fn unbound(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let Some(held) = self.held(key) else {
            return Ok(Next::Done);
        };
        let template = endpoint::template(&held);
        let template = template.filter(|it| BindingKey::for_template(it) == *key);
        let Some(template) = template.filter(|_| fleet.bindings.presence(key).is_gone()) else {
            return Ok(Next::Done);
        };
        // One that is gone takes the object along.
        let Lookup::Found(template) = fleet.templates.get(&template) else {
            return Ok(Next::Done);
        };
        // The binding of what a policy has claimed is made again, and the name leads on meanwhile.
        if Claim::on(&*template).is_some() {
            return Ok(Next::After(UNLISTED));
        }
        let client = fleet.work_writer.when_idle().await;
        Ok(delete(fleet, &client, key, &held).await?.next())
    }
}

/// Returns a workload with the replicas that override policies leave of its shares.
fn as_given(fleet: &Fleet, mut workload: Arc<AnyBinding>) -> Arc<AnyBinding> {
    let given = |it: &TargetCluster| {
        let share = it.replicas;
        fleet.override_lookup.given(&workload.spec, &it.name, share)
    };
    let shares: Vec<i32> = workload.spec.clusters.iter().map(given).collect();
    let targets = workload.spec.clusters.iter().map(|it| it.replicas);
    if !targets.eq(shares.iter().copied()) {
        let changed = Arc::make_mut(&mut workload);
        for (target, share) in changed.spec.clusters.iter_mut().zip(shares) {
            target.replicas = share;
        }
    }
    workload
}

fn placed<'a>(fleet: &Fleet, name: &'a str, binding: &'a AnyBinding) -> Placed<'a> {
    Placed {
        name,
        spec: &binding.spec,
        status: binding.status(),
        failover: fleet.settings.gate(&FAILOVER),
        no_execute: fleet.settings.enable_no_execute_taint_eviction,
    }
}

#[cfg(test)]
mod tests;
