//! Facts that the checks of a fleet judge, each of which may be unknown by itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use muster_control_plane::clusters::registration::token::Entry;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::any_policy::AnyPropagationPolicy;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::check::{Answer, Clocks, Refusal};
use muster_shared::client::Life;
use muster_shared::clock::later;
use muster_shared::k8s::{ConfigMap, CustomResourceDefinition, Lease, VersionInfo};
use muster_shared::self_report::LeaderReport;
use serde_json::Value;

use super::rights::Findings;

/// Everything that was read of a fleet API.
pub(super) struct Facts {
    /// Settings of the control plane, with failover on unless the command line said what they are.
    pub settings: Settings,
    /// Address of the API.
    pub server: String,
    /// Whether the server's certificate is verified.
    pub verified: bool,
    /// Time of this machine.
    pub now: Timestamp,
    /// Life of the credentials that ask.
    pub credentials: Option<Life>,
    /// Life of the authority that the kubeconfig trusts; `None` if it names none.
    pub authority: Option<Life>,
    pub version: Answer<VersionInfo>,
    pub clocks: Answer<Clocks>,
    /// Reason to believe that something in the fleet API starts the templates, if there is one.
    pub unfit: Answer<Option<String>>,
    /// The definitions of this version's kinds, by name.
    pub definitions: BTreeMap<String, Answer<CustomResourceDefinition>>,
    /// Plurals that are served, by group and version.
    pub served: BTreeMap<String, Answer<Vec<String>>>,
    pub leader: Answer<Leader>,
    /// Rights of the accounts of the control plane.
    pub control_plane: Findings,
    /// Rights of the accounts of each member's agent.
    pub agents: BTreeMap<String, Findings>,
    /// Record of a pause of the fleet.
    pub pause: Answer<Option<ConfigMap>>,
    pub clusters: Answer<Vec<Cluster>>,
    /// Leases of members, by name.
    pub leases: Answer<Vec<Lease>>,
    pub tokens: Answer<Vec<Entry>>,
    /// Tokens by which the control plane connects to members of sync mode Push, by cluster.
    pub push_tokens: Answer<BTreeMap<String, Option<Life>>>,
    pub admission: Answer<Admission>,
    pub taint_policies: Answer<Vec<ClusterTaintPolicy>>,
    pub policies: Answer<Vec<AnyPropagationPolicy>>,
    pub bindings: Answer<Vec<AnyBinding>>,
}

impl Facts {
    /// Returns the time of the fleet API's clock, or of this machine's if that is not known.
    pub fn fleet_time(&self) -> Timestamp {
        let Ok(clocks) = &self.clocks else {
            return self.now;
        };
        later(self.now, jiff::SignedDuration::from_secs(clocks.ahead()))
    }

    /// Returns what the leader, or the last one, says of itself.
    pub fn leader_report(&self) -> Option<LeaderReport> {
        LeaderReport::of(&self.leader.as_ref().ok()?.lease)
    }

    /// Returns the cluster names.
    pub fn cluster_names(&self) -> Result<Vec<&str>, &Refusal> {
        let clusters = self.clusters.as_ref()?.iter();
        let names = clusters.map(|it| it.metadata.name.as_deref().unwrap_or_default());
        Ok(names.collect())
    }
}

/// Lease of the control plane.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub lease: Lease,
    /// Whether the lease was renewed while it was observed: `None` where one reading sufficed.
    pub renewed: Option<bool>,
}

/// Admission of policies.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// The webhook configuration.
    pub configuration: ValidatingWebhookConfiguration,
    /// Result of a dry run with a policy that admission refuses.
    pub trial: Result<Value, Refusal>,
}
