//! Judges what was read of a member.

use muster_shared::check::common::{clock, life, reach, skew};
use muster_shared::check::{Category, Refusal, Verdict, listed};
use muster_shared::conditions::{FALSE, TRUE};
use muster_shared::k8s::ResourceExt;
use muster_shared::names::condition::{READY, UNIQUE_IDENTITY};

use super::{Facts, Fleet};

/// Oldest Kubernetes of a member.
pub const OLDEST: (u32, u32) = (1, 25);
/// Agents that one line names.
const MOST: usize = 5;

/// Judges a member with its agent.
pub(super) fn check(facts: &Facts) -> Vec<Verdict> {
    let mut category = Category::new("Member");
    if !reach(&mut category, &facts.server, &facts.version, OLDEST) {
        return category.into_verdicts();
    }
    clock(&mut category, "the member", &facts.clocks);
    agent(&mut category, facts);
    let mut verdicts = category.into_verdicts();
    let mut category = Category::new("Way to the fleet");
    way(&mut category, facts);
    verdicts.extend(category.into_verdicts());
    verdicts
}

fn agent(category: &mut Category, facts: &Facts) {
    let namespace = &facts.namespace;
    let install = "kubectl muster token create --cluster-name NAME --print-helm-command, run at the fleet, prints the command. Elsewhere: -n NAMESPACE";
    let agents = match &facts.agents {
        Ok(agents) => agents,
        Err(refusal) => return category.unknown("agent", "the Deployment of the agent", refusal),
    };
    let Some(agent) = agents.first() else {
        let message = format!("no agent is installed in namespace {namespace}");
        return category.error("agent", message, install);
    };
    let name = agent.name_any();
    if agents.len() > 1 {
        let names: Vec<String> = agents.iter().map(ResourceExt::name_any).collect();
        category.warning(
            "single-agent",
            format!(
                "several agents are in namespace {namespace}: {}",
                listed(&names, MOST)
            ),
            "One agent manages a member for one fleet; this check looks at the first.",
        );
    }
    let wanted = agent.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
    let ready = agent
        .status
        .as_ref()
        .and_then(|it| it.ready_replicas)
        .unwrap_or(0);
    let check = format!(
        "kubectl -n {namespace} describe deployment {name}; the log, and /readyz on port 10357, say what the agent waits for."
    );
    match ready {
        0 => category.error("agent", format!("{name}: none of {wanted} replicas is ready"), check),
        1 => category.warning(
            "agent",
            format!("{name}: one replica of {wanted} is ready, and the death of its node looks like that of the cluster"),
            check,
        ),
        _ => category.ok("agent", format!("{name}: {ready} of {wanted} replicas are ready")),
    }
    match &facts.lacking {
        None => {}
        Some(Ok(lacking)) if lacking.is_empty() => category.ok("agent-rights", "the agent has its rights in this cluster"),
        Some(Ok(lacking)) => category.error(
            "agent-rights",
            format!("the agent may not {}", lacking.join(", ")),
            "Set rights.create=true of charts/agent, or bind its roles to the ServiceAccount that you bring.",
        ),
        Some(Err(refusal)) => category.unknown("agent-rights", "the agent's rights", refusal),
    }
}

fn way(category: &mut Category, facts: &Facts) {
    let cluster = &facts.flags.cluster;
    let anew = format!(
        "At the fleet: kubectl muster token create --cluster-name {} --print-helm-command, and run here what it prints.",
        if cluster.is_empty() { "NAME" } else { cluster }
    );
    let way = match &facts.way {
        Ok(way) => way,
        Err(Refusal::Absent(words)) if facts.flags.registers => {
            let message = format!("the agent has not got its certificate yet: {words}");
            return category.error(
                "fleet-credentials",
                message,
                format!("The log of the agent says why. Has the token expired?\n{anew}"),
            );
        }
        Err(Refusal::Forbidden(words)) => {
            let refusal = Refusal::Forbidden(words.clone());
            return category.unknown(
                "fleet-credentials",
                "the agent's kubeconfig of the fleet API",
                &refusal,
            );
        }
        Err(refusal) => {
            let message = format!("there is no kubeconfig of the fleet API: {refusal}");
            return category.error("fleet-credentials", message, anew);
        }
    };
    life(
        category,
        "fleet-credentials",
        "the agent's credentials",
        way.credentials,
        facts.now,
        &anew,
    );
    let Some(fleet) = &facts.fleet else {
        let hint = "The kubeconfig names certificates that cannot be used.";
        return category.error(
            "answers",
            format!("no connection to {} can be prepared", way.server),
            hint,
        );
    };
    if !reach(category, &way.server, &fleet.version, super::judge::OLDEST) {
        return;
    }
    if let (Ok(own), Ok(theirs)) = (&facts.clocks, &fleet.clocks) {
        let ahead = own.ahead() - theirs.ahead();
        skew(category, "clocks", "the member", "the fleet API", ahead);
    }
    match (&facts.id, &fleet.id) {
        (Ok(own), Ok(theirs)) if own == theirs => category.error(
            "another-cluster",
            "the fleet API and the member are the same cluster, so templates would be started where they are stored",
            "The kubeconfig has to lead to the fleet API, not to this cluster.",
        ),
        (Ok(_), Ok(_)) => category.ok("another-cluster", "the fleet API is another cluster"),
        (Err(refusal), _) | (_, Err(refusal)) => category.unknown("another-cluster", "the identities of both", refusal),
    }
    registered(category, facts, fleet, &anew);
}

fn registered(category: &mut Category, facts: &Facts, fleet: &Fleet, anew: &str) {
    let name = &facts.flags.cluster;
    if name.is_empty() {
        return category.skipped(
            "registered",
            "the agent does not say its cluster's name (--cluster-name)",
        );
    }
    let cluster = match &fleet.cluster {
        Ok(cluster) => cluster,
        Err(Refusal::Absent(words)) if words.contains("this API does not serve") => {
            let hint = "At the fleet: kubectl muster check";
            return category.error("registered", format!("it is no fleet API: {words}"), hint);
        }
        Err(Refusal::Absent(_)) => {
            let message = format!("the fleet has no Cluster {name:?}");
            return category.error(
                "registered",
                message,
                "The log of the agent says why it has not registered.",
            );
        }
        Err(Refusal::Forbidden(words)) => {
            let message = format!("the agent may not read its Cluster: {words}");
            return category.error("registered", message, anew);
        }
        Err(refusal) => return category.unknown("registered", "the Cluster", refusal),
    };
    match (&cluster.spec.id, &facts.id) {
        (Some(theirs), Ok(own)) if theirs != own && !theirs.is_empty() => {
            return category.error(
                "registered",
                format!("the name {name:?} is that of another cluster (id {theirs}, this one has {own})"),
                "Choose another name (clusterName of charts/agent), or remove the other: kubectl muster unregister NAME",
            );
        }
        _ => category.ok(
            "registered",
            format!("the fleet knows this cluster as {name}"),
        ),
    }
    if let Some(twin) = cluster
        .condition(UNIQUE_IDENTITY)
        .filter(|it| it.status == FALSE)
    {
        let hint = "Remove the wrong one of the two at the fleet: kubectl muster unregister NAME";
        category.error("unique", twin.message.clone(), hint);
    }
    match cluster.condition(READY) {
        Some(it) if it.status == TRUE => category.ok("ready", format!("{name} is ready")),
        Some(it) => category.error(
            "ready",
            format!(
                "Ready is {} since {:.0} ({}): {}",
                it.status, it.last_transition_time.0, it.reason, it.message
            ),
            "The log of the agent says what it cannot read or write.",
        ),
        None => category.error(
            "ready",
            "the agent has not reported yet",
            "The log of the agent says why.",
        ),
    }
    if let Err(Refusal::Absent(_)) = &fleet.lease {
        let hint = "The log of the agent says why it cannot write it.";
        category.error("heartbeat", "there is no lease of this member", hint);
    }
}

#[cfg(test)]
mod tests;
