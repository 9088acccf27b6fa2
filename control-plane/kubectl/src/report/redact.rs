//! Takes out of an object what may be a secret or says nothing.

use serde_json::Value;

/// Text in place of a redacted value.
const REDACTED: &str = "(redacted)";
/// Bytes of a text that stay: a message, not a file.
const LONGEST: usize = 4_096;

/// Annotations that hold whole objects.
const ANNOTATIONS: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "work.karmada.io/last-applied",
];
/// Domains of annotations that say something of the fleet.
const DOMAINS: [&str; 4] = ["muster.io", "karmada.io", "kubernetes.io", "k8s.io"];
/// Keys below which there are values of users: manifests, patches, preserved state, environment.
const BODIES: [&str; 14] = [
    "manifests",
    "workload",
    "data",
    "stringData",
    "binaryData",
    "env",
    "value",
    "plaintext",
    "argsOverrider",
    "commandOverrider",
    "preservedLabelState",
    "statePreservation",
    "rawStatus",
    "proxyHeader",
];
/// Parts of keys of credentials, without the signs between their words.
const CREDENTIALS: [&str; 18] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "kubeconfig",
    "privatekey",
    "apikey",
    "accesskey",
    "secretkey",
    "secretstring",
    "secretvalue",
    "signingkey",
    "encryptionkey",
    "authorization",
    "credential",
    "cookie",
    "certificateauthoritydata",
    "clientcertificatedata",
];
/// Keys of credentials whose names are parts of others.
const WHOLE: [&str; 4] = ["auth", "pwd", "dsn", "connectionstring"];
/// Beginnings of keys in the form of PEM, as they are and in base64.
const KEYS: [&str; 2] = ["-----BEGIN", "LS0tLS1CRUdJTi"];
/// Words before credentials in messages of servers and proxies.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// A word of a message is no credential if it has fewer bytes.
const SHORTEST: usize = 8;

/// Returns the object without managed fields, with everything redacted that may be a secret.
pub(super) fn redact(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        let annotations = metadata.get_mut("annotations");
        let annotations = annotations.and_then(Value::as_object_mut);
        for (key, value) in annotations.into_iter().flatten() {
            if ANNOTATIONS.contains(&key.as_str()) || !is_of_the_fleet(key) {
                *value = REDACTED.into();
            }
        }
    }
    // A member reports in any form: counts and conditions stay.
    for list in ["aggregatedStatus", "manifestStatuses"] {
        let reports = object.get_mut("status").and_then(|it| it.get_mut(list));
        for report in reports.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(status) = report.get_mut("status") {
                *status = counts(status);
            }
        }
    }
    walk(&mut object);
    object
}

/// Returns whether an annotation is one of Muster, Karmada or Kubernetes. What others write there
/// is theirs.
fn is_of_the_fleet(annotation: &str) -> bool {
    let domain = annotation.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |ours: &str| {
        let rest = domain.strip_suffix(ours);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    DOMAINS.iter().any(|it| is_of(it))
}

/// Returns the numbers and conditions of a status.
fn counts(status: &Value) -> Value {
    let fields = status.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, value)| value.is_number() || *key == "conditions");
    let fields = fields.map(|(key, value)| (key.clone(), value.clone()));
    Value::Object(fields.collect())
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_secret(key) && (value.is_string() || !is_number_like(value)) {
                    *value = REDACTED.into();
                } else {
                    walk(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::String(text) => {
            if KEYS.iter().any(|it| text.contains(it)) || holds_token(text) {
                REDACTED.clone_into(text);
                return;
            }
            *text = without_users(text);
            if text.len() > LONGEST {
                text.truncate(text.floor_char_boundary(LONGEST));
                text.push('…');
            }
        }
        _ => {}
    }
}

fn is_number_like(value: &Value) -> bool {
    value.is_number() || value.is_boolean() || value.is_null()
}

fn is_secret(key: &str) -> bool {
    if BODIES.contains(&key) {
        return true;
    }
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    let letters = letters.collect::<String>().to_lowercase();
    // `secretRef` and `secretName` say where a secret is, which helps.
    if letters.ends_with("ref") || letters.ends_with("name") {
        return false;
    }
    WHOLE.contains(&letters.as_str())
        || letters.ends_with("secrets")
        || letters.ends_with("secret")
        || CREDENTIALS.iter().any(|it| letters.contains(it))
}

/// Returns a text without the users and passwords of the addresses in it, such as that of a proxy.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str("://");
        let ends = |it: char| it.is_whitespace() || matches!(it, '/' | '?' | '#' | '"' | '\'');
        let host = part.find(ends).unwrap_or(part.len());
        match part[..host].rfind('@') {
            Some(at) => {
                clean.push_str(REDACTED);
                clean.push_str(&part[at..]);
            }
            None => clean.push_str(part),
        }
    }
    clean
}

/// Returns whether a text has a JSON Web Token, what follows the name of a scheme
/// of authentication, or what is assigned to a name of a credential.
fn holds_token(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "+/_.~-%".contains(it);
    let words: Vec<&str> = text
        .split(|it| !is_part(it))
        .filter(|it| !it.is_empty())
        .collect();
    let is_web_token = |word: &&str| word.starts_with("eyJ") && word.matches('.').count() >= 2;
    let follows = words.windows(2).any(|pair| {
        SCHEMES.iter().any(|it| pair[0].eq_ignore_ascii_case(it)) && is_random(pair[1])
    });
    let is_assigned = text.match_indices('=').any(|(at, _)| {
        let name = text[..at]
            .rsplit(|it| !is_part(it))
            .next()
            .unwrap_or_default();
        let is_given = text[at + 1..].starts_with(is_part);
        is_given && !name.is_empty() && is_secret(name)
    });
    follows || is_assigned || words.iter().any(is_web_token)
}

/// Returns whether a word looks like a credential and not like one of a language.
fn is_random(word: &str) -> bool {
    let is_sign = |it: char| it.is_ascii_digit() || "+_~%".contains(it);
    let has_inner_capital = word.chars().skip(1).any(|it| it.is_ascii_uppercase());
    word.len() >= SHORTEST && (word.contains(is_sign) || has_inner_capital)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_secret_stays_and_what_helps_does() {
        let object = json!({
            "metadata": {
                "name": "web", "managedFields": [{"manager": "SECRET"}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":\"SECRET\"}",
                    "failover.muster.io/paused": "upgrade",
                    "note": "SECRET", "example.com/note": "SECRET", "notmuster.io/x": "SECRET",
                    "policy.karmada.io/applied-placement": "applied",
                },
            },
            "data": {"key": "SECRET"},
            "spec": {
                "workload": {"manifests": [{"kind": "Secret", "data": {"a": "SECRET"}}]},
                "overriders": {"plaintext": [{"path": "/x", "value": "SECRET"}]},
                "proxyHeader": {"Authorization": "SECRET"},
                "bearerToken": "SECRET", "clusters": [{"name": "m1"}],
                "caBundle": "-----BEGIN CERTIFICATE-----SECRET",
                "note": "Bearer eyJSECRET.b.c",
                "gracefulEvictionTasks": [{"fromCluster": "m2", "preservedLabelState": {"a": "SECRET"}}],
            },
            "status": {
                "aggregatedStatus": [{
                    "clusterName": "m1", "health": "Healthy", "status": {"replicas": 2, "message": "SECRET"},
                }],
                "manifestStatuses": [{"status": {"secret": "SECRET", "readyReplicas": 1}}],
                "conditions": [{"type": "Ready", "message": "m1 is silent"}],
            },
        });
        let text = redact(object).to_string();
        assert!(!text.contains("SECRET"), "{text}");
        for kept in [
            "upgrade",
            "applied",
            "\"clusterName\":\"m1\"",
            "Healthy",
            "\"replicas\":2",
            "\"readyReplicas\":1",
            "m1 is silent",
            "\"fromCluster\":\"m2\"",
        ] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }

    #[test]
    fn credentials_are_known_by_many_names_and_what_only_names_a_secret_stays() {
        let object = json!({
            "spec": {
                "apiKey": "SECRET", "api-key": "SECRET", "x_api_key": "SECRET",
                "clientSecret": "SECRET", "oauth2": {"client_secret": {"inline": "SECRET"}},
                "Authorization": "SECRET", "passphrase": "SECRET", "awsSecretAccessKey": "SECRET",
                "setCookie": ["SECRET"], "credentials": {"user": "SECRET"},
                "ca": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tSECRET",
                "secretRef": {"namespace": "fleet", "name": "member1-keys"},
                "secretName": "member2-keys",
                "secretKeyRef": {"name": "member3-keys"}, "clientSecrets": ["SECRET"],
                "auth": "SECRET", "signingKey": "SECRET",
            },
            "status": {"conditions": [
                {"message": "401 for Authorization: Bearer SECRETSECRET"},
                {"message": "proxy: Basic SECRETSECRETSECRET refused"},
                {"message": "map[Authorization:[Bearer SECRETs3cret]]"},
                {"message": "{\"Authorization\":\"bearer  SECRETSECRET\"}"},
                {"message": "(Basic SECRETYWRt) refused"},
                {"message": "get https://m1/x?access_token=SECRET&y=1 and password=SECRET"},
                {"message": "[eyJSECRET.b.c]"},
                {"message": "Basic checks of m1 passed"},
                {"message": "Basic authentication failed; replicas=3"},
            ]},
        });
        let text = redact(object).to_string();
        assert!(!text.contains("SECRET"), "{text}");
        for kept in [
            "member1-keys",
            "member2-keys",
            "member3-keys",
            "Basic checks of m1 passed",
            "Basic authentication failed; replicas=3",
        ] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }

    #[test]
    fn a_text_as_long_as_a_file_is_cut() {
        let text = redact(json!({"message": "é".repeat(LONGEST)})).to_string();
        assert!(text.len() < LONGEST + 40, "{}", text.len());
    }

    #[test]
    fn the_user_of_an_address_is_taken_out_and_the_address_stays() {
        let text = redact(json!({
            "spec": {"proxyURL": "http://muster:SECRET@proxy.example:3128/a@b"},
            "message": "dial https://SECRET@one and http://a:SECRET@two: refused; ask x@example.com",
        }))
        .to_string();
        assert!(!text.contains("SECRET"), "{text}");
        for kept in [
            "@proxy.example:3128/a@b",
            "@one",
            "@two: refused",
            "ask x@example.com",
        ] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }
}
