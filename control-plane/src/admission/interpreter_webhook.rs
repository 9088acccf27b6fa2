//! Admission of ResourceInterpreterWebhookConfiguration, with the rules of Karmada's webhook.

use muster_interpreter::Operation;
use muster_interpreter::webhook::{CONTEXT_VERSION, TIMEOUTS, check_authorities, url_address};
use muster_shared::api::interpreter_webhook::{
    InterpreterClientConfig, InterpreterOperation, InterpreterRule, InterpreterService,
    ResourceInterpreterWebhook,
};
use muster_shared::names::{LONGEST_LABEL, is_hostname, is_label};
use serde::Deserialize;

use super::problem::Findings;

/// Matches everything in a list of a rule.
const ALL: &str = "*";

/// A configuration, as far as admission is concerned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Configuration {
    webhooks: Vec<ResourceInterpreterWebhook>,
}

/// Returns everything that is wrong with a configuration.
pub fn check(configuration: &Configuration) -> Findings {
    let mut found = Findings::default();
    let webhooks = &configuration.webhooks;
    for (at, webhook) in webhooks.iter().enumerate() {
        let path = format!("webhooks[{at}]");
        if !is_hostname(&webhook.name) {
            let detail = "must be a DNS name of at least two parts in lower case, such as workloads.example.com";
            found.invalid(format!("{path}.name"), &webhook.name, detail);
        } else if webhooks[..at]
            .iter()
            .any(|other| other.name == webhook.name)
        {
            found.duplicate(format!("{path}.name"), &webhook.name);
        }
        for (at, rule) in webhook.rules.iter().enumerate() {
            check_rule(rule, &format!("{path}.rules[{at}]"), &mut found);
        }
        if let Some(seconds) = webhook.timeout_seconds.filter(|it| !TIMEOUTS.contains(it)) {
            let detail = format!(
                "must be between {} and {} seconds",
                TIMEOUTS.start(),
                TIMEOUTS.end()
            );
            found.invalid(format!("{path}.timeoutSeconds"), &seconds, &detail);
        }
        let versions = &webhook.interpreter_context_versions;
        let field = format!("{path}.interpreterContextVersions");
        if versions.is_empty() {
            found.required(field, &format!("must include {CONTEXT_VERSION}"));
        } else if !versions.iter().any(|version| version == CONTEXT_VERSION) {
            let detail = format!("must include {CONTEXT_VERSION}");
            found.invalid(field, versions, &detail);
        } else {
            for (at, version) in versions.iter().enumerate() {
                if versions[..at].contains(version) {
                    found.duplicate(format!("{field}[{at}]"), version);
                }
            }
        }
        check_client(
            &webhook.client_config,
            &format!("{path}.clientConfig"),
            &mut found,
        );
    }
    found
}

fn check_rule(rule: &InterpreterRule, path: &str, found: &mut Findings) {
    let field = format!("{path}.operations");
    let mut allowed = vec![ALL.to_owned()];
    allowed.extend(Operation::ALL.iter().map(Operation::to_string));
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    for (at, operation) in rule.operations.iter().enumerate() {
        if !allowed.contains(&operation.as_str()) {
            found.unsupported(format!("{field}[{at}]"), operation.as_str(), &allowed);
        }
    }
    let operations = rule.operations.iter().map(InterpreterOperation::as_str);
    let lists = [
        (field, operations.map(str::to_owned).collect()),
        (format!("{path}.apiGroups"), rule.api_groups.clone()),
        (format!("{path}.apiVersions"), rule.api_versions.clone()),
        (format!("{path}.kinds"), rule.kinds.clone()),
    ];
    for (field, list) in lists {
        let has_all = list.iter().any(|one| one == ALL);
        if list.is_empty() {
            found.required(field, "names at least one, or \"*\" for all");
        } else if has_all && list.len() > 1 {
            let detail = "if \"*\" is present, there must be nothing else";
            found.invalid(field, &list, detail);
        } else if !field.ends_with("apiGroups") {
            // The empty text is the core group, and no name of anything else.
            for (at, _) in list.iter().enumerate().filter(|(_, one)| one.is_empty()) {
                found.required(format!("{field}[{at}]"), "must not be empty");
            }
        }
    }
}

fn check_client(config: &InterpreterClientConfig, path: &str, found: &mut Findings) {
    match (&config.url, &config.service) {
        (Some(url), None) => {
            if let Err(reason) = url_address(url) {
                let detail = reason.strip_prefix("clientConfig.url: ");
                let detail = detail.unwrap_or(&reason);
                let quoted = format!("{url:?} ");
                let detail = detail.strip_prefix(&quoted).unwrap_or(detail);
                found.invalid(format!("{path}.url"), url, detail);
            }
        }
        (None, Some(service)) => check_service(service, &format!("{path}.service"), found),
        (None, None) | (Some(_), Some(_)) => {
            found.required(path, "exactly one of url or service is required");
        }
    }
    if let Some(bundle) = config.ca_bundle.as_deref().filter(|it| !it.is_empty())
        && let Err(reason) = check_authorities(bundle)
    {
        // Not quoted: it may be long.
        let field = format!("{path}.caBundle");
        found.invalid(field, &"...", &reason);
    }
}

fn check_service(service: &InterpreterService, path: &str, found: &mut Findings) {
    for (field, name) in [("name", &service.name), ("namespace", &service.namespace)] {
        let field = format!("{path}.{field}");
        if name.is_empty() {
            found.required(field, "names the Service");
        } else if name.len() > LONGEST_LABEL || !is_label(name) {
            found.invalid(field, name, "must be a DNS label");
        }
    }
    if let Some(port) = service.port.filter(|port| !(1..=65535).contains(port)) {
        let detail = "must be a port: 1 to 65535";
        found.invalid(format!("{path}.port"), &port, detail);
    }
    if let Some(url) = service.path.as_deref().filter(|url| !url.is_empty()) {
        let field = format!("{path}.path");
        let parsed = url_address(&format!("https://service{url}"));
        if !url.starts_with('/') {
            found.invalid(field, &url, "must begin with a /");
        } else if parsed.is_err() || url.contains("//") {
            let detail = "must be the path of a URL, without query and empty parts";
            found.invalid(field, &url, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(edits: &[(&str, Value)]) -> Option<String> {
        let rule = json!({ "operations": ["InterpretHealth"], "apiGroups": ["example.com"],
            "apiVersions": ["v1"], "kinds": ["Widget"] });
        let mut object = json!({ "webhooks": [{
            "name": "widgets.example.com", "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": { "url": "https://hook.example.com/p" }, "rules": [rule],
        }] });
        for (path, value) in edits {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let parent = object["webhooks"][0].pointer_mut(parent).unwrap();
            parent[field] = value.clone();
        }
        check(&Configuration::deserialize(object).unwrap()).refusal()
    }

    #[test]
    fn what_is_allowed_is_taken() {
        assert_eq!(refusal(&[]), None);
        let whole = json!({ "name": "s", "namespace": "n", "path": "/p", "port": 8443 });
        assert_eq!(
            refusal(&[("/clientConfig", json!({ "service": whole }))]),
            None
        );
        let all = json!(["*"]);
        let every = [
            ("/rules/0/operations", all.clone()),
            ("/rules/0/apiGroups", json!([""])),
            ("/rules/0/kinds", all),
            ("/timeoutSeconds", json!(30)),
        ];
        assert_eq!(refusal(&every), None);
    }

    #[test]
    fn a_configuration_is_refused_with_the_field_and_what_is_allowed() {
        let service = |value: Value| json!({ "service": value });
        let (operations, kinds) = ("/rules/0/operations", "/rules/0/kinds");
        let versions = "/interpreterContextVersions";
        for (pointer, value, reported) in [
            (
                "/name",
                json!("widgets"),
                ": Invalid value: \"widgets\": must be a DNS name",
            ),
            ("/name", json!("A.b.c"), ": Invalid value"),
            (
                "/timeoutSeconds",
                json!(31),
                ": Invalid value: 31: must be between 1 and 30 seconds",
            ),
            ("/timeoutSeconds", json!(0), ": Invalid value: 0"),
            (operations, json!([]), ": Required value"),
            (operations, json!(["*", "Retain"]), ": Invalid value"),
            (
                operations,
                json!(["Guess"]),
                "[0]: Unsupported value: \"Guess\": supported values: \"*\", \"InterpretReplica\"",
            ),
            (
                operations,
                json!(["Prune"]),
                "[0]: Unsupported value: \"Prune\"",
            ),
            (kinds, json!([]), ": Required value"),
            (kinds, json!([""]), "[0]: Required value"),
            (
                "/rules/0/apiVersions",
                json!(["v1", "*"]),
                ": Invalid value",
            ),
            (
                versions,
                json!([]),
                ": Required value: must include v1alpha1",
            ),
            (versions, json!(["v2"]), ": Invalid value"),
            (
                versions,
                json!(["v1alpha1", "v1alpha1"]),
                "[1]: Duplicate value",
            ),
            (
                "/clientConfig",
                json!({}),
                ": Required value: exactly one of url or service is required",
            ),
            (
                "/clientConfig/url",
                json!("http://a"),
                ": Invalid value: \"http://a\": does not begin with https://",
            ),
            (
                "/clientConfig/caBundle",
                json!("YQ=="),
                ": Invalid value: \"...\": has no certificate in PEM",
            ),
            (
                "/clientConfig",
                service(json!({ "name": "", "namespace": "n", "port": 0 })),
                ".service.port: Invalid value: 0: must be a port",
            ),
            (
                "/clientConfig",
                service(json!({ "name": "s", "namespace": "n", "path": "p" })),
                ".service.path: Invalid value: \"p\": must begin with a /",
            ),
        ] {
            let field = pointer.replace("/0", "[0]").replace('/', ".");
            let refusal = refusal(&[(pointer, value)]).unwrap_or_default();
            let reported = format!("webhooks[0]{field}{reported}");
            assert!(refusal.contains(&reported), "{reported}: {refusal}");
        }
        let both = json!({ "name": "s", "namespace": "n" });
        let refusal = refusal(&[("/clientConfig/service", both)]).unwrap();
        let reported = "webhooks[0].clientConfig: Required value: exactly one";
        assert!(refusal.contains(reported), "{refusal}");
    }

    #[test]
    fn two_webhooks_of_one_name_are_refused() {
        let one = json!({ "name": "a.b.c", "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": { "url": "https://a" } });
        let object = json!({ "webhooks": [one, one] });
        let found = check(&Configuration::deserialize(object).unwrap());
        let expected = "webhooks[1].name: Duplicate value: \"a.b.c\"";
        assert_eq!(found.refusal().unwrap(), expected);
    }
}
