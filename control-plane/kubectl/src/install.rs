//! Where agents are installed, and where they find their credentials.

/// The agent's chart in printed commands: that of the repository, or the published one, with its
/// version, in what the release workflow builds.
pub(super) const CHART: &str = match option_env!("MUSTER_AGENT_CHART") {
    Some(chart) => chart,
    None => "charts/agent",
};

/// Namespace into which the charts are installed, in the README and in printed commands.
pub(super) const NAMESPACE: &str = "muster-system";

/// Command that switches failover on, in the host cluster, for an installation as in the README.
pub(super) const SWITCH_ON: &str = "helm upgrade muster charts/control-plane -n muster-system --reset-then-reuse-values --set featureGates.Failover=true";

/// Name of the Secret with the agent's kubeconfig, and its key in it: Karmada's.
pub(super) const SECRET: &str = "karmada-kubeconfig";

/// Returns the name of the account by which the control plane reaches a member of sync mode Push.
pub(super) fn account(cluster: &str) -> String {
    format!("muster-push-{cluster}")
}
