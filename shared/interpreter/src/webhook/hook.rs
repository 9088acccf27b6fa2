//! Webhooks of the configurations: which of them answers, and how it is reached. Pure.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use muster_shared::api::interpreter_webhook::{
    InterpreterClientConfig, InterpreterOperation, InterpreterRule, InterpreterService,
    ResourceInterpreterWebhook, ResourceInterpreterWebhookConfiguration,
};
use muster_shared::k8s::ResourceExt as _;

use super::client::Client;
use crate::Operation;

/// Deadline of a webhook that names none: the default that Karmada documents.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest and longest deadline, in seconds.
pub const TIMEOUTS: std::ops::RangeInclusive<i32> = 1..=30;
/// Port of a Service that is named without one.
const DEFAULT_PORT: i32 = 443;
/// Version of the context that is sent.
pub const CONTEXT_VERSION: &str = "v1alpha1";

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Hook {
    /// Differs for each content: one that is changed is another.
    pub(super) id: u64,
    /// Name of the configuration.
    pub(super) configuration: String,
    /// Name of the webhook.
    pub(super) name: String,
    rules: Vec<InterpreterRule>,
    pub(super) timeout: Duration,
    /// The way to the webhook, or the reason why there is none.
    pub(super) client: Result<Client, String>,
}

impl Hook {
    /// Returns the number of a webhook with this content.
    fn number(configuration: &str, webhook: &ResourceInterpreterWebhook) -> u64 {
        let mut hash = DefaultHasher::new();
        configuration.hash(&mut hash);
        // Types of the API are always JSON.
        let content = serde_json::to_string(webhook).unwrap_or_default();
        content.hash(&mut hash);
        hash.finish()
    }

    fn of(id: u64, configuration: &str, webhook: &ResourceInterpreterWebhook) -> Self {
        let seconds = webhook
            .timeout_seconds
            .map(|seconds| seconds.clamp(*TIMEOUTS.start(), *TIMEOUTS.end()));
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let versions = &webhook.interpreter_context_versions;
        let client = if versions.iter().any(|version| version == CONTEXT_VERSION) {
            address(&webhook.client_config)
                .and_then(|uri| Client::new(uri, webhook.client_config.ca_bundle.as_deref()))
        } else {
            Err(format!(
                "interpreterContextVersions: {versions:?} has no version that is known: {CONTEXT_VERSION}"
            ))
        };
        Self {
            id,
            configuration: configuration.to_owned(),
            name: webhook.name.clone(),
            rules: webhook.rules.clone(),
            timeout: seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            client,
        }
    }

    /// Returns the reasons why the webhook, or a part of it, cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.client.as_ref().err().cloned().into_iter().collect();
        let operations = self.rules.iter().flat_map(|rule| &rule.operations);
        for operation in operations {
            if let InterpreterOperation::Other(name) = operation {
                problems.push(format!("rules: operation {name:?} is not known"));
            }
        }
        problems
            .iter()
            .map(|problem| format!("webhook {:?}: {problem}", self.name))
            .collect()
    }

    /// Returns whether the webhook answers questions about a kind.
    pub(super) fn matches(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        let name = operation.to_string();
        self.rules.iter().any(|rule| {
            covers(rule, api_version, kind)
                && rule
                    .operations
                    .iter()
                    .any(|one| *one == InterpreterOperation::All || one.as_str() == name)
        })
    }

    /// Returns whether the webhook is not to see the content of the objects of a kind: it gets that
    /// of Secrets only where a rule names them, and not by a rule for all kinds.
    pub(super) fn hides(&self, api_version: &str, kind: &str) -> bool {
        let is_named = |rule: &InterpreterRule| rule.kinds.iter().any(|one| one == kind);
        api_version == "v1" && kind == "Secret" && !self.rules.iter().any(is_named)
    }

    /// Returns whether the webhook answers any question about a kind.
    pub(crate) fn concerns(&self, api_version: &str, kind: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| covers(rule, api_version, kind))
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            configuration,
            ..
        } = self;
        write!(
            f,
            "webhook {name:?} of ResourceInterpreterWebhookConfiguration {configuration:?}"
        )
    }
}

fn covers(rule: &InterpreterRule, api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let has = |list: &[String], name: &str| list.iter().any(|one| one == "*" || one == name);
    has(&rule.api_groups, group) && has(&rule.api_versions, version) && has(&rule.kinds, kind)
}

/// Returns the address of a webhook. A Service takes precedence over a URL, as in Karmada.
///
/// # Errors
/// The configuration names none, or one that cannot be used.
fn address(config: &InterpreterClientConfig) -> Result<Uri, String> {
    match (&config.service, &config.url) {
        (Some(service), _) => service_address(service),
        (None, Some(url)) => url_address(url),
        (None, None) => Err("clientConfig: names neither url nor service".to_owned()),
    }
}

fn service_address(service: &InterpreterService) -> Result<Uri, String> {
    let InterpreterService {
        namespace,
        name,
        path,
        port,
    } = service;
    let port = port.unwrap_or(DEFAULT_PORT);
    let path = path.as_deref().unwrap_or_default().trim_start_matches('/');
    if !(1..=65535).contains(&port) {
        return Err(format!("clientConfig.service.port: {port} is not a port"));
    }
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
    url.parse()
        .map_err(|error| format!("clientConfig.service: {url:?}: {error}"))
}

/// Reads the URL of a webhook: `https`, with a host, and nothing that is not sent.
///
/// # Errors
/// A text that says what is wrong and what is allowed.
pub fn url_address(url: &str) -> Result<Uri, String> {
    let fault = |text: &str| Err(format!("clientConfig.url: {url:?} {text}"));
    if url.contains('#') {
        return fault("has a fragment, which is not allowed");
    }
    let uri: Uri = match url.parse() {
        Ok(uri) => uri,
        Err(error) => return fault(&format!("is no URL: {error}")),
    };
    if uri.scheme_str() != Some("https") {
        return fault("does not begin with https://, which is required");
    }
    match uri.authority() {
        None => fault("has no host"),
        Some(authority) if authority.host().is_empty() => fault("has no host"),
        Some(authority) if authority.as_str().contains('@') => {
            fault("has user information, which is not allowed")
        }
        Some(_) if uri.query().is_some() => fault("has a query, which is not allowed"),
        Some(_) => Ok(uri),
    }
}

/// Webhooks of all configurations, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<Arc<Hook>>);

impl Hooks {
    /// Makes the webhooks of configurations: in the order of the names of configuration and
    /// webhook, joined by a slash, as in Karmada.
    pub fn new<'a>(
        configurations: impl IntoIterator<Item = &'a ResourceInterpreterWebhookConfiguration>,
    ) -> Self {
        Self::default().renewed(configurations)
    }

    /// Makes the hooks of these configurations as [`new`](Self::new) does, and keeps what has not
    /// changed, with its connections.
    #[must_use]
    pub fn renewed<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a ResourceInterpreterWebhookConfiguration>,
    ) -> Self {
        let mut hooks: Vec<Arc<Hook>> = Vec::new();
        for configuration in configurations {
            for webhook in &configuration.webhooks {
                let name = configuration.name_any();
                let id = Hook::number(&name, webhook);
                let old = self.0.iter().find(|old| old.id == id).cloned();
                // A new one reads its authorities, or those of the system.
                hooks.push(old.unwrap_or_else(|| Arc::new(Hook::of(id, &name, webhook))));
            }
        }
        hooks.sort_by_cached_key(|hook| format!("{}/{}", hook.configuration, hook.name));
        Self(hooks)
    }

    /// Returns all webhooks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter().map(Arc::as_ref)
    }

    /// Returns the webhook that answers a question, if there is one.
    pub fn find(&self, api_version: &str, kind: &str, operation: Operation) -> Option<&Arc<Hook>> {
        let mut hooks = self.0.iter();
        hooks.find(|hook| hook.matches(api_version, kind, operation))
    }

    /// Returns whether a webhook answers a question.
    pub fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.find(api_version, kind, operation).is_some()
    }

    /// Returns whether a webhook answers any question about a kind.
    pub fn concern(&self, api_version: &str, kind: &str) -> bool {
        self.0.iter().any(|hook| hook.concerns(api_version, kind))
    }

    /// Returns the webhooks that are here and not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Vec<Arc<Hook>> {
        let is_new = |hook: &&Arc<Hook>| !other.knows(hook.id);
        self.0.iter().filter(is_new).cloned().collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|hook| hook.id)
    }

    pub(super) fn knows(&self, id: u64) -> bool {
        self.0.iter().any(|hook| hook.id == id)
    }

    /// Returns whether the webhooks for a kind are the same in `other`.
    pub fn is_same_for(&self, other: &Self, api_version: &str, kind: &str) -> bool {
        let ids = |hooks: &Self| -> Vec<u64> {
            let hooks = hooks.0.iter();
            let of_kind = hooks.filter(|hook| hook.concerns(api_version, kind));
            of_kind.map(|hook| hook.id).collect()
        };
        ids(self) == ids(other)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use muster_shared::tls::install_provider;

    fn configuration(name: &str, webhooks: &Value) -> ResourceInterpreterWebhookConfiguration {
        install_provider();
        serde_json::from_value(json!({ "metadata": { "name": name }, "webhooks": webhooks }))
            .unwrap()
    }

    fn webhook(name: &str, rule: &Value) -> Value {
        json!({ "name": name, "clientConfig": { "url": "https://a.example.com" },
            "interpreterContextVersions": ["v1alpha1"], "rules": [rule] })
    }

    fn rule(operations: &[&str], groups: &[&str], versions: &[&str], kinds: &[&str]) -> Value {
        json!({ "operations": operations, "apiGroups": groups, "apiVersions": versions, "kinds": kinds })
    }

    #[test]
    fn a_webhook_answers_what_one_of_its_rules_names() {
        let all = ["*"];
        let (widget, v1) = (["Widget"], ["v1"]);
        for (rule, matches) in [
            (rule(&all, &all, &all, &all), true),
            (
                rule(&["InterpretHealth"], &["example.com"], &v1, &widget),
                true,
            ),
            (
                rule(&["Retain", "InterpretHealth"], &all, &all, &widget),
                true,
            ),
            (rule(&["Retain"], &all, &all, &widget), false),
            (rule(&["Unheard"], &all, &all, &widget), false),
            (rule(&all, &[""], &v1, &widget), false),
            (rule(&all, &["example.com"], &["v2"], &widget), false),
            (rule(&all, &["example.com"], &v1, &["widget"]), false),
            (rule(&all, &all, &all, &[]), false),
        ] {
            let hooks = Hooks::new([&configuration("c", &json!([webhook("a.b.c", &rule)]))]);
            let found = hooks.has("example.com/v1", "Widget", Operation::InterpretHealth);
            assert_eq!(found, matches, "{rule}");
        }
        let core = rule(&all, &[""], &v1, &["Pod"]);
        let hooks = Hooks::new([&configuration("c", &json!([webhook("a.b.c", &core)]))]);
        assert!(hooks.has("v1", "Pod", Operation::Retain));
    }

    #[test]
    fn the_first_by_the_names_of_configuration_and_webhook_answers_and_what_stays_is_kept() {
        let any = || rule(&["*"], &["*"], &["*"], &["*"]);
        let b = configuration("b", &json!([webhook("a.x.y", &any())]));
        let a = configuration(
            "a",
            &json!([webhook("z.x.y", &any()), webhook("m.x.y", &any())]),
        );
        let hooks = Hooks::new([&b, &a]);
        let first = hooks.find("v1", "Pod", Operation::Retain).unwrap();
        assert_eq!(
            (first.configuration.as_str(), first.name.as_str()),
            ("a", "m.x.y")
        );
        let later = hooks.renewed([&b]);
        assert!(Arc::ptr_eq(&later.0[0], &hooks.0[2]));
        assert_eq!(hooks.without(&later).len(), 2);
        assert!(!hooks.is_same_for(&later, "v1", "Pod"));
        assert!(later.is_same_for(&later.renewed([&b]), "v1", "Pod"));
    }

    #[test]
    fn a_webhook_that_cannot_be_asked_is_reported_with_the_reason_and_still_stands_for_its_kinds() {
        let any = rule(&["*"], &["*"], &["*"], &["*"]);
        let problems = |client_config: Value, versions: &[&str]| {
            let one = json!({ "name": "a.b.c", "clientConfig": client_config,
                "interpreterContextVersions": versions, "rules": [any] });
            let hooks = Hooks::new([&configuration("c", &json!([one]))]);
            assert!(hooks.has("v1", "Pod", Operation::Retain));
            hooks.0[0].problems()
        };
        let service = json!({ "namespace": "n", "name": "s", "path": "/p", "port": 8443 });
        let both = json!({ "service": service, "url": "http://x" });
        let none: [&str; 0] = [];
        assert_eq!(problems(both, &["v2", "v1alpha1"]), none);
        let url = json!({ "url": "https://a.example.com/p" });
        assert_eq!(problems(url.clone(), &["v1alpha1"]), none);
        let reported = problems(url, &["v2"]);
        assert!(reported.len() == 1 && reported[0].contains("no version that is known"));
        let portless = json!({ "service": { "namespace": "n", "name": "s", "port": 0 } });
        for (client_config, words) in [
            (json!({ "url": "http://a" }), "does not begin with https://"),
            (json!({ "url": "a b" }), "is no URL"),
            (json!({ "url": "https://u:p@a/" }), "user information"),
            (json!({ "url": "https://a/?b" }), "a query"),
            (json!({ "url": "https://a/#b" }), "a fragment"),
            (json!({}), "neither url nor service"),
            (portless, "0 is not a port"),
            (json!({ "url": "https://a", "caBundle": "%" }), "caBundle"),
            (
                json!({ "url": "https://a", "caBundle": "YQ==" }),
                "caBundle",
            ),
        ] {
            let reported = problems(client_config, &["v1alpha1"]);
            assert!(
                reported.len() == 1 && reported[0].contains(words),
                "{reported:?}"
            );
        }
        let unknown = rule(&["Unheard"], &["*"], &["*"], &["*"]);
        let hooks = Hooks::new([&configuration("c", &json!([webhook("a.b.c", &unknown)]))]);
        let expected = r#"webhook "a.b.c": rules: operation "Unheard" is not known"#;
        assert_eq!(hooks.0[0].problems(), [expected]);
    }

    #[test]
    fn secrets_are_seen_by_the_webhooks_whose_rules_name_them() {
        let all = ["*"];
        for (kinds, hidden) in [
            (vec!["*"], true),
            (vec!["Pod"], true),
            (vec!["Secret"], false),
            (vec!["*", "Secret"], false),
        ] {
            let rule = rule(&all, &all, &all, &kinds);
            let hooks = Hooks::new([&configuration("c", &json!([webhook("a.b.c", &rule)]))]);
            assert_eq!(hooks.0[0].hides("v1", "Secret"), hidden, "{kinds:?}");
            assert!(!hooks.0[0].hides("v1", "ConfigMap"));
            assert!(!hooks.0[0].hides("example.com/v1", "Secret"));
        }
    }

    #[test]
    fn a_service_is_reached_by_its_name_in_the_cluster() {
        let service = |path: Option<&str>, port| InterpreterService {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            path: path.map(str::to_owned),
            port,
        };
        for (service, expected) in [
            (service(None, None), "https://s.n.svc:443/"),
            (
                service(Some("/p/q"), Some(8443)),
                "https://s.n.svc:8443/p/q",
            ),
            (service(Some("p"), None), "https://s.n.svc:443/p"),
        ] {
            assert_eq!(service_address(&service).unwrap().to_string(), expected);
        }
    }
}
