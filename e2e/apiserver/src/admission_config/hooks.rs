//! Webhook configurations as the server holds them: parsed when they change, in the order in which
//! they are called.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::client::Endpoint;
use super::matching::{self, Condition, Rule};
use crate::store::Collection;

/// Seconds that a webhook has when its configuration doesn't say.
const TIMEOUT: u64 = 10;

/// One webhook.
#[derive(Debug)]
pub struct Hook {
    /// Its name, as messages quote it.
    pub name: String,
    /// What it wants to be asked about.
    pub rules: Vec<Rule>,
    /// What must be true besides.
    pub conditions: Vec<Condition>,
    /// Whether trouble with the webhook is no reason to refuse.
    pub ignore_failure: bool,
    /// Whether it can be asked about rehearsals.
    pub rehearses: bool,
    /// How long it has to answer.
    pub timeout: Duration,
    /// Where it is.
    pub endpoint: Endpoint,
}

impl Hook {
    /// Reads one entry of `webhooks`; the configuration has been validated and defaulted.
    fn read(webhook: &Value) -> Self {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let list = |v: &Value| -> Vec<Value> { v.as_array().cloned().unwrap_or_default() };
        let bundle = webhook["clientConfig"]["caBundle"].as_str();
        let bundle = bundle.and_then(|b| STANDARD.decode(b).ok());
        let effects = webhook["sideEffects"].as_str();
        Self {
            name: text(&webhook["name"]),
            rules: matching::rules(&webhook["rules"]),
            conditions: list(&webhook["matchConditions"])
                .iter()
                .map(Condition::read)
                .collect(),
            ignore_failure: webhook["failurePolicy"] == "Ignore",
            rehearses: matches!(effects, Some("None" | "NoneOnDryRun")),
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT)),
            endpoint: Endpoint::read(&webhook["clientConfig"], &bundle.unwrap_or_default()),
        }
    }
}

/// Returns all webhooks of a kind of configuration, in the order of the configurations' names and
/// then of their lists.
pub fn read(configurations: &Collection) -> Arc<[Hook]> {
    let configurations = configurations.present("");
    configurations
        .iter()
        .flat_map(|c| {
            let webhooks = c.value()["webhooks"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            webhooks.iter().map(Hook::read).collect::<Vec<_>>()
        })
        .collect()
}
