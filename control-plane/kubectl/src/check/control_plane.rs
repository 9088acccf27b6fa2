//! Checks of the control plane: rights, leader, versions, gates, admission, credentials.

use std::collections::BTreeMap;

use muster_control_plane::fleet_api::is_newer;
use muster_control_plane::settings::FAILOVER;
use muster_shared::check::common::life;
use muster_shared::check::{Category, Refusal, listed};
use muster_shared::client::Life;
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::self_report::LeaderReport;

use super::facts::{Admission, Facts};
use super::fleet_api::OWN;
use super::{fleet_api, rights};
use crate::install::{NAMESPACE, SWITCH_ON, account};

/// Tokens and clusters that one line names.
const MOST: usize = 5;

/// Returns whether a leader renews its lease, and what it says about itself.
fn leader(facts: &Facts) -> (bool, Option<LeaderReport>) {
    let Ok(leader) = &facts.leader else {
        return (false, None);
    };
    let spec = leader.lease.spec.as_ref();
    let holder = spec.and_then(|it| it.holder_identity.as_deref());
    let lives = holder.is_some_and(|it| !it.is_empty()) && leader.renewed != Some(false);
    (lives, facts.leader_report())
}

/// Returns whether it is known that nobody leads where somebody has to.
pub(super) fn nobody_leads(facts: &Facts) -> bool {
    let is_known = matches!(facts.leader, Ok(_) | Err(Refusal::Absent(_)));
    facts.settings.leader_elect && is_known && !leader(facts).0
}

pub(super) fn running(category: &mut Category, facts: &Facts) {
    let (lives, report) = leader(facts);
    let needed = rights::of_control_plane().len();
    let hint = "Apply its roles again: charts/control-plane does it for a bundled fleet API (Deployment RELEASE-fleet-certificates);\n\
                for another one render templates/access.yaml with access.create=true and apply it there.";
    rights::judge(
        category,
        "control-plane-rights",
        "the control plane",
        (&facts.control_plane, needed),
        lives,
        hint,
    );
    let start = "Look at the control plane: kubectl -n muster-system get pods, and its log; /readyz on port 10357 says what it waits for.";
    match &facts.leader {
        _ if !facts.settings.leader_elect => {
            let message = "the one replica acts without an election (--leader-elect=false)";
            category.skipped("leader", message);
        }
        Err(Refusal::Absent(_)) => {
            let message = "no control plane has ever led: there is no lease of an election";
            category.error("leader", message, start);
        }
        Err(refusal) => category.unknown("leader", "the lease of the control plane", refusal),
        Ok(leader) => {
            let spec = leader.lease.spec.clone().unwrap_or_default();
            let holder = spec.holder_identity.unwrap_or_default();
            let since = spec
                .renew_time
                .map_or_else(|| "never".to_owned(), |it| format!("{:.0}", it.0));
            if holder.is_empty() {
                category.error(
                    "leader",
                    format!("none leads: the lease was given up at {since}"),
                    start,
                );
            } else if leader.renewed == Some(false) {
                let message = format!("{holder} led, and has not renewed its lease since {since}");
                category.error("leader", message, start);
            } else {
                category.ok("leader", format!("{holder} leads"));
            }
            if leader.renewed == Some(true) {
                category.warning(
                    "leader-clock",
                    format!("the leader renews its lease with times that are too old: {since}"),
                    "Run NTP on the nodes of the host cluster.",
                );
            }
        }
    }
    match report.filter(|_| lives) {
        None => {
            let message = "no leader says its version and gates";
            category.skipped("control-plane-version", message);
            category.skipped("gates", message);
        }
        Some(report) => {
            version(category, &report.version);
            gates(category, &report.feature_gates);
        }
    }
}

fn version(category: &mut Category, version: &str) {
    let name = "control-plane-version";
    if version == OWN {
        category.ok(name, format!("version {version}, as this program"));
    } else {
        let other = if is_newer(version, OWN) {
            "newer"
        } else {
            "older"
        };
        category.warning(
            name,
            format!("version {version}, {other} than this program ({OWN})"),
            "Use a kubectl-muster of the control plane's version, or upgrade the chart.",
        );
    }
}

fn gates(category: &mut Category, gates: &BTreeMap<String, bool>) {
    if gates.get(FAILOVER.name) == Some(&true) {
        category.ok("gates", "Failover is on");
    } else {
        category.warning(
            "gates",
            "Failover is off: no taint moves any workload",
            format!("When you are ready, in the host cluster: {SWITCH_ON}"),
        );
    }
}

pub(super) fn admission(category: &mut Category, facts: &Facts) {
    match &facts.admission {
        Err(Refusal::Absent(_)) => category.skipped(
            "admission",
            "policies are not checked when they are written (chart value webhook.enabled)",
        ),
        Err(refusal) => category.unknown("admission", "the webhook configuration", refusal),
        Ok(found) => asked(category, found, facts),
    }
}

fn asked(category: &mut Category, found: &Admission, facts: &Facts) {
    match &found.trial {
        Err(refusal) if refusal.to_string().contains("denied the request") => {
            category.ok("admission", "it is reached, and refuses what it should");
        }
        Err(Refusal::Failed(words)) if words.contains("webhook") => {
            let strict = found.configuration.webhooks.iter().flatten();
            let strict = strict.filter(|it| it.failure_policy.as_deref() == Some("Fail")).count();
            let effect = if strict > 0 { "policies cannot be written" } else { "policies pass unchecked" };
            category.error(
                "admission",
                format!("it is not reached, so {effect}: {words}"),
                "The fleet API's server has to reach the Service RELEASE-webhook (chart value webhook.url). To go on without it:\n\
                 kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration muster",
            );
        }
        Err(refusal) => category.unknown("admission", "a dry run of a policy", refusal),
        Ok(_) => category.warning(
            "admission",
            "a policy that it refuses was taken: the API does not ask, or does not ask about you",
            "Look at failurePolicy of ValidatingWebhookConfiguration muster, and at webhook.exempt of the chart.",
        ),
    }
    let bundles = found.configuration.webhooks.iter().flatten();
    let bundles = bundles.filter_map(|it| it.client_config.ca_bundle.as_ref());
    let lives = bundles.filter_map(|it| Life::of_certificate(&it.0));
    if let Some(first) = lives.min_by_key(|it| it.end) {
        let hint = "The control plane renews its own. With webhook.certificate.secret: renew that certificate, and set webhook.caBundle.";
        life(
            category,
            "admission-authority",
            "the authority of admission",
            Some(first),
            facts.now,
            hint,
        );
    }
}

pub(super) fn credentials(category: &mut Category, facts: &Facts) {
    fleet_api::credentials(category, facts);
    let (lives, report) = leader(facts);
    match report.filter(|_| lives) {
        None => category.skipped(
            "control-plane-credentials",
            "no leader says when its credentials end",
        ),
        Some(report) => life(
            category,
            "control-plane-credentials",
            "the control plane's credentials",
            report.credentials,
            facts.now,
            "Those of a bundled fleet API are renewed by Deployment RELEASE-fleet-certificates: look at its log. Otherwise replace the kubeconfig in\n\
             Secret muster-fleet-kubeconfig; no restart is needed.",
        ),
    }
    match &facts.push_tokens {
        Err(refusal) => category.unknown(
            "push-tokens",
            "the tokens of members of sync mode Push",
            refusal,
        ),
        Ok(tokens) => {
            for (cluster, token) in tokens {
                let whose = format!("the token for {cluster}");
                let hint = format!(
                    "The control plane renews it: kubectl describe cluster {cluster} says why not. By hand: write the output of\n\
                     kubectl --kubeconfig '<kubeconfig of {cluster}>' -n {NAMESPACE} create token {}\n\
                     to the key token of Secret {CLUSTER_NAMESPACE}/{cluster} of the fleet API (as kubectl muster join named them).",
                    account(cluster)
                );
                life(category, "push-tokens", &whose, *token, facts.now, &hint);
            }
        }
    }
    match &facts.tokens {
        Err(refusal) => category.unknown("join-tokens", "the bootstrap tokens", refusal),
        Ok(tokens) => {
            let expired = tokens
                .iter()
                .filter(|it| it.expiration.is_some_and(|end| end <= facts.now));
            let expired: Vec<String> = expired.map(|it| it.token.id.clone()).collect();
            let endless = tokens.iter().filter(|it| it.expiration.is_none());
            let endless: Vec<String> = endless.map(|it| it.token.id.clone()).collect();
            if !expired.is_empty() {
                category.warning(
                    "join-tokens",
                    format!("bootstrap tokens that have expired: {}", listed(&expired, MOST)),
                    "Members cannot join with them: kubectl muster token create --cluster-name NAME --print-helm-command. The token cleaner of\n\
                     kube-controller-manager removes them (controller tokencleaner); by hand: kubectl muster token delete ID",
                );
            } else if endless.is_empty() {
                let number = tokens.len();
                category.ok(
                    "join-tokens",
                    format!("bootstrap tokens: {number}, and none has expired"),
                );
            } else {
                category.warning(
                    "join-tokens",
                    format!(
                        "bootstrap tokens without an end: {}",
                        listed(&endless, MOST)
                    ),
                    "Whoever finds one can join: kubectl muster token delete ID",
                );
            }
        }
    }
}
