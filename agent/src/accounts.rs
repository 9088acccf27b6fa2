//! Service accounts in the member whose tokens are reported: their names, their rights, and whether
//! a Secret holds their token. Names and rules are Karmada's (`pkg/util/credential.go`), so that
//! either agent can take over what the other created.

use muster_shared::k8s::{
    ClusterRole, ClusterRoleBinding, ObjectMeta, OwnerReference, PolicyRule, RoleRef, Secret,
    ServiceAccount, Subject,
};
use muster_shared::names::{self, label};
use muster_shared::settings::Words;

/// Type of a Secret into which Kubernetes writes an account's token.
pub const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation of such a Secret that names the account.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Value of `--report-secrets` for no credentials.
const NONE: &str = "None";

/// Credentials that can be reported to the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Token of an account with all rights in the member.
    KubeCredentials,
    /// Token of an account for impersonating users of the fleet. It has no rights until Karmada's
    /// unified-auth controller grants it a role.
    KubeImpersonator,
}

impl Report {
    /// All kinds of credentials.
    pub const ALL: [Self; 2] = [Self::KubeCredentials, Self::KubeImpersonator];

    /// Returns the value of `--report-secrets` for these credentials.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeCredentials => "KubeCredentials",
            Self::KubeImpersonator => "KubeImpersonator",
        }
    }

    /// Returns the name of the account in the member, and of the Secret there with its token.
    pub fn account(self, cluster: &str) -> String {
        match self {
            Self::KubeCredentials => names::service_account(cluster),
            Self::KubeImpersonator => "karmada-impersonator".to_owned(),
        }
    }

    /// Returns the name of the Secret in the fleet API.
    pub fn secret(self, cluster: &str) -> String {
        match self {
            Self::KubeCredentials => cluster.to_owned(),
            Self::KubeImpersonator => names::impersonation_secret(cluster),
        }
    }

    /// Returns the field of the Cluster's spec that names that Secret.
    pub const fn reference(self) -> &'static str {
        match self {
            Self::KubeCredentials => "secretRef",
            Self::KubeImpersonator => "impersonatorSecretRef",
        }
    }
}

/// Reads `--report-secrets`. Karmada ignores unknown values; here they are errors, because the
/// operator expects credentials.
pub fn chosen(words: &Words) -> Result<Vec<Report>, String> {
    let known = Report::ALL.map(Report::name).join(", ");
    let mut chosen = Vec::new();
    for word in &words.0 {
        match Report::ALL.into_iter().find(|report| report.name() == word) {
            Some(report) if chosen.contains(&report) => {}
            Some(report) => chosen.push(report),
            None if word == NONE => {}
            None => return Err(format!("{word:?} is unknown; known are {NONE}, {known}")),
        }
    }
    if !chosen.is_empty() && words.0.iter().any(|word| word == NONE) {
        return Err(format!("{NONE} and something else exclude each other"));
    }
    Ok(chosen)
}

/// Returns the metadata of an object of the system.
pub fn metadata(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some([(label::SYSTEM.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    }
}

/// Returns the account.
pub fn service_account(namespace: &str, name: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(Some(namespace), name),
        ..ServiceAccount::default()
    }
}

/// Returns the Secret into which the member writes the account's token.
pub fn token_secret(namespace: &str, account: &str) -> Secret {
    let annotations = [(ACCOUNT.to_owned(), account.to_owned())];
    Secret {
        metadata: ObjectMeta {
            annotations: Some(annotations.into()),
            ..metadata(Some(namespace), account)
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        ..Secret::default()
    }
}

/// Returns the role of the account with all rights, and its binding. Both are created when they are
/// missing and never changed, so that an operator may narrow the role.
pub fn full_access(namespace: &str, account: &str) -> (ClusterRole, ClusterRoleBinding) {
    let name = names::role(account);
    let all = || Some(vec!["*".to_owned()]);
    let objects = PolicyRule {
        api_groups: all(),
        resources: all(),
        verbs: vec!["*".to_owned()],
        ..PolicyRule::default()
    };
    let paths = PolicyRule {
        non_resource_urls: all(),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    let role = ClusterRole {
        metadata: metadata(None, &name),
        rules: Some(vec![objects, paths]),
        ..ClusterRole::default()
    };
    let binding = ClusterRoleBinding {
        metadata: metadata(None, &name),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        }]),
    };
    (role, binding)
}

/// Content of an account's Secret in the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Token, and certificate authority of the member's API server.
    Token {
        /// Bearer token.
        token: Vec<u8>,
        /// PEM text.
        authority: Vec<u8>,
    },
    /// No token yet: the member has not written it.
    Nothing,
    /// Content of another owner, with the reason why it is not used.
    Foreign(String),
}

/// Reads the Secret of an account.
pub fn held(secret: &Secret, account: &str) -> Held {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if kind != TOKEN_TYPE {
        return Held::Foreign(format!("it is of type {kind:?}, not {TOKEN_TYPE:?}"));
    }
    let annotations = secret.metadata.annotations.iter().flatten();
    let mut names = annotations.filter(|(key, _)| *key == ACCOUNT);
    match names.next() {
        Some((_, name)) if name == account => {}
        Some((_, name)) => return Held::Foreign(format!("it is for the account {name:?}")),
        None => return Held::Foreign("it is for no account".to_owned()),
    }
    let value = |key: &str| {
        let found = secret.data.iter().flatten().find(|(name, _)| *name == key);
        found.map(|(_, bytes)| bytes.0.clone())
    };
    match value("token").filter(|token| !token.is_empty()) {
        Some(token) => Held::Token {
            token,
            authority: value("ca.crt").unwrap_or_default(),
        },
        None => Held::Nothing,
    }
}

/// Returns the owner reference by which the Secret in the fleet API is deleted with the Cluster.
pub fn owner(cluster: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "cluster.karmada.io/v1alpha1".to_owned(),
        kind: "Cluster".to_owned(),
        name: cluster.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_flag_asks_for_both_one_or_nothing() {
        let both = Report::ALL.to_vec();
        for (text, expected) in [
            ("KubeCredentials,KubeImpersonator", Some(both)),
            ("KubeImpersonator", Some(vec![Report::KubeImpersonator])),
            (
                "KubeCredentials,KubeCredentials",
                Some(vec![Report::KubeCredentials]),
            ),
            ("None", Some(vec![])),
            ("", Some(vec![])),
            ("None,KubeCredentials", None),
            ("kubecredentials", None),
        ] {
            let words: Words = text.parse().unwrap();
            assert_eq!(chosen(&words).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_read_only_if_it_is_the_accounts() {
        let secret = |kind: &str, account: Value, data: Value| -> Secret {
            let annotations = json!({ "kubernetes.io/service-account.name": account });
            serde_json::from_value(
                json!({"type": kind, "metadata": {"annotations": annotations}, "data": data}),
            )
            .unwrap()
        };
        let full = json!({"token": "dA==", "ca.crt": "Yw=="});
        let token = Held::Token {
            token: b"t".to_vec(),
            authority: b"c".to_vec(),
        };
        for (secret, expected) in [
            (secret(TOKEN_TYPE, json!("a"), full.clone()), Some(token)),
            (
                secret(TOKEN_TYPE, json!("a"), json!({})),
                Some(Held::Nothing),
            ),
            (
                secret(TOKEN_TYPE, json!("a"), json!({"token": ""})),
                Some(Held::Nothing),
            ),
            (secret(TOKEN_TYPE, json!("b"), full.clone()), None),
            (secret("Opaque", json!("a"), full), None),
        ] {
            let found = held(&secret, "a");
            match expected {
                Some(expected) => assert_eq!(found, expected),
                None => assert!(matches!(found, Held::Foreign(_)), "{found:?}"),
            }
        }
        let own = token_secret("karmada-cluster", "a");
        assert_eq!(held(&own, "a"), Held::Nothing);
    }

    #[test]
    fn names_are_karmadas() {
        let [all, impersonator] = Report::ALL;
        assert_eq!(all.account("m1"), "karmada-m1");
        assert_eq!(all.secret("m1"), "m1");
        assert_eq!(impersonator.account("m1"), "karmada-impersonator");
        assert_eq!(impersonator.secret("m1"), "m1-impersonator");
        let (role, binding) = full_access("karmada-cluster", "karmada-m1");
        let name = Some("karmada-controller-manager:karmada-m1");
        assert_eq!(role.metadata.name.as_deref(), name);
        assert_eq!(binding.metadata.name.as_deref(), name);
    }
}
