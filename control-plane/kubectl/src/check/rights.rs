//! Rights that the accounts of the control plane and of agents need, and which of them they have.

use futures::{StreamExt as _, stream};
use muster_shared::check::{Answer, Asker, Category, Refusal, listed};
use muster_shared::names::{
    AGENT_GROUP, AGENT_USER_PREFIX, CLUSTER_NAMESPACE, SYSTEM_NAMESPACE, execution_namespace,
};
use serde_json::{Value, json};

/// Reviews that are under way at once.
const AT_ONCE: usize = 8;
/// Rights that one line names.
const MOST: usize = 4;

/// A right at an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    pub verb: &'static str,
    pub group: &'static str,
    /// Resource, with a subresource behind a slash.
    pub resource: &'static str,
    pub namespace: String,
    pub name: String,
    /// Whether a patch can be replaced by an update of what was read.
    is_replaceable: bool,
}

impl Right {
    pub fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self {
            verb,
            group,
            resource,
            namespace: String::new(),
            name: String::new(),
            is_replaceable: false,
        }
    }

    /// Returns the right to patch, which the rights to read and update can replace: the roles that
    /// Karmada's own command gives to an agent have only those two for some resources, and the
    /// agent manages with them.
    fn patch(group: &'static str, resource: &'static str) -> Self {
        Self {
            is_replaceable: true,
            ..Self::new("patch", group, resource)
        }
    }

    /// Returns the rights that can replace this one if it is missing; the list is empty if none
    /// can.
    fn instead(&self) -> Vec<Self> {
        if !self.is_replaceable {
            return Vec::new();
        }
        let whole = self.resource.split_once('/');
        let read = Self {
            verb: "get",
            resource: whole.map_or(self.resource, |(resource, _)| resource),
            ..self.clone()
        };
        let write = Self {
            verb: "update",
            ..self.clone()
        };
        vec![read, write]
    }

    #[must_use]
    pub fn within(self, namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..self
        }
    }

    fn attributes(&self) -> Value {
        let (resource, sub) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        json!({
            "verb": self.verb, "group": self.group, "resource": resource, "subresource": sub,
            "namespace": self.namespace, "name": self.name,
        })
    }

    fn describe(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let place = if self.namespace.is_empty() {
            String::new()
        } else {
            format!(" in {}", self.namespace)
        };
        format!("{} {}{dot}{}{place}", self.verb, self.resource, self.group)
    }
}

/// An account by its user name and groups.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub user: String,
    pub groups: Vec<&'static str>,
}

/// What is known of the rights of the accounts that a program may have: the rights that each lacks.
pub(super) type Findings = Answer<Vec<(String, Vec<Right>)>>;

/// Returns the accounts that the control plane may have.
pub(super) fn accounts_of_control_plane() -> Vec<Account> {
    vec![
        service_account("muster-control-plane"),
        Account {
            user: muster_control_plane::fleet_api::CONTROL_PLANE.to_owned(),
            groups: vec!["system:authenticated"],
        },
    ]
}

/// Returns the accounts that the agent of a member may have.
pub(super) fn accounts_of_agent(cluster: &str) -> Vec<Account> {
    vec![
        Account {
            user: format!("{AGENT_USER_PREFIX}{cluster}"),
            groups: vec![AGENT_GROUP, "system:authenticated"],
        },
        service_account(&format!("muster-agent-{cluster}")),
    ]
}

fn service_account(name: &str) -> Account {
    Account {
        user: format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"),
        groups: vec!["system:serviceaccounts", "system:authenticated"],
    }
}

/// Returns what the control plane does at the fleet API.
pub(super) fn of_control_plane() -> Vec<Right> {
    vec![
        Right::new("list", "cluster.karmada.io", "clusters"),
        Right::new("patch", "cluster.karmada.io", "clusters/status"),
        Right::new("patch", "work.karmada.io", "resourcebindings"),
        Right::new("create", "work.karmada.io", "works"),
        Right::new("watch", "policy.karmada.io", "propagationpolicies"),
        Right::new("list", "apps", "deployments"),
        Right::new("create", "", "namespaces"),
        Right::new("patch", "coordination.k8s.io", "leases").within(SYSTEM_NAMESPACE, ""),
    ]
}

/// Returns what the agent of a member does at the fleet API.
pub(super) fn of_agent(cluster: &str) -> Vec<Right> {
    let namespace = execution_namespace(cluster);
    vec![
        Right::patch("cluster.karmada.io", "clusters/status").within("", cluster),
        Right::patch("coordination.k8s.io", "leases").within(CLUSTER_NAMESPACE, cluster),
        Right::new("list", "work.karmada.io", "works").within(&namespace, ""),
        Right::new("watch", "work.karmada.io", "works").within(&namespace, ""),
        // The finalizer, before anything is applied.
        Right::patch("work.karmada.io", "works").within(&namespace, ""),
        Right::patch("work.karmada.io", "works/status").within(&namespace, ""),
    ]
}

/// Asks which of these rights each account lacks.
pub(super) async fn ask(asker: &Asker, accounts: &[Account], rights: &[Right]) -> Findings {
    let mut found = Vec::new();
    for account in accounts {
        let lacking = lacking(asker, Some(account), rights).await?;
        found.push((account.user.clone(), lacking));
    }
    Ok(found)
}

/// Asks which of these rights an account lacks, or the caller where none is given, with nothing
/// that does instead.
pub(super) async fn lacking(
    asker: &Asker,
    account: Option<&Account>,
    rights: &[Right],
) -> Answer<Vec<Right>> {
    let who = account.map(|it| (it.user.as_str(), it.groups.as_slice()));
    let is_granted = async |right: &Right| asker.may(who, &right.attributes()).await;
    let is_granted = &is_granted;
    let answers = stream::iter(rights).map(|right| async move {
        if is_granted(right).await? {
            return Ok::<_, Refusal>(None);
        }
        let instead = right.instead();
        for other in &instead {
            if !is_granted(other).await? {
                return Ok(Some(right.clone()));
            }
        }
        Ok(instead.is_empty().then(|| right.clone()))
    });
    let answers: Vec<_> = answers.buffered(AT_ONCE).collect().await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().flatten().collect())
}

/// Judges the rights of a program. `lives` says whether it does its work now: a program that has
/// none of the rights by the names of the charts then has another account.
pub(super) fn judge(
    category: &mut Category,
    name: &'static str,
    program: &str,
    (findings, needed): (&Findings, usize),
    lives: bool,
    hint: &str,
) {
    let findings = match findings {
        Ok(findings) => findings,
        Err(refusal) => {
            return category.unknown(name, &format!("the rights of {program}"), refusal);
        }
    };
    let Some((user, lacking)) = findings.iter().min_by_key(|(_, lacking)| lacking.len()) else {
        return category.skipped(name, format!("{program} has no account"));
    };
    if lacking.is_empty() {
        category.ok(name, format!("{program} has its rights, as {user:?}"));
    } else if lacking.len() == needed && lives {
        category.skipped(name, format!("{program} has an account of another name"));
    } else {
        category.error(
            name,
            format!("{program} ({user:?}) may not {}", missing(lacking)),
            hint,
        );
    }
}

/// Names the rights that are missing.
pub(super) fn missing(lacking: &[Right]) -> String {
    let words: Vec<String> = lacking.iter().map(Right::describe).collect();
    listed(&words, MOST)
}

#[cfg(test)]
mod tests {
    use muster_shared::check::{Status, Verdict};

    use super::*;

    fn judged(findings: &Findings, lives: bool) -> Verdict {
        let mut category = Category::new("Rights");
        judge(
            &mut category,
            "agents",
            "the agent",
            (findings, of_agent("m1").len()),
            lives,
            "grant them",
        );
        category.into_verdicts().pop().unwrap()
    }

    #[test]
    fn a_patch_of_an_agent_can_be_replaced_by_reading_and_updating() {
        let reported = |it: &Right| {
            let words: Vec<String> = it.instead().iter().map(Right::describe).collect();
            words.join(", ")
        };
        let reported: Vec<String> = of_agent("m1").iter().map(reported).collect();
        assert_eq!(
            reported,
            [
                "get clusters.cluster.karmada.io, update clusters/status.cluster.karmada.io",
                "get leases.coordination.k8s.io in karmada-cluster, update leases.coordination.k8s.io in karmada-cluster",
                "",
                "",
                "get works.work.karmada.io in karmada-es-m1, update works.work.karmada.io in karmada-es-m1",
                "get works.work.karmada.io in karmada-es-m1, update works/status.work.karmada.io in karmada-es-m1",
            ]
        );
        assert!(of_control_plane().iter().all(|it| it.instead().is_empty()));
    }

    #[test]
    fn one_account_with_all_rights_suffices_and_a_running_program_may_have_another() {
        let all = of_agent("m1");
        let of = |lacking: [&[Right]; 2]| {
            let accounts = ["a", "b"].into_iter().zip(lacking);
            Ok(accounts
                .map(|(user, it)| (user.to_owned(), it.to_vec()))
                .collect())
        };
        let refused = Err(Refusal::Forbidden("no".to_owned()));
        for (findings, lives, expected, words) in [
            (of([&[], &all]), false, Status::Ok, "\"a\""),
            (of([&all, &[]]), true, Status::Ok, "\"b\""),
            (of([&all, &all]), true, Status::Skipped, "another name"),
            (of([&all, &all]), false, Status::Error, "clusters/status"),
            (of([&all[2..3], &all]), true, Status::Error, "list works"),
            (refused, true, Status::Warning, "cannot be checked"),
        ] {
            let verdict = judged(&findings, lives);
            assert_eq!(verdict.status, expected, "{verdict:?}");
            assert!(verdict.message.contains(words), "{verdict:?}");
        }
    }
}
