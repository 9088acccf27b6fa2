//! A rule of a role: what it allows, and what it covers of another one. Pure.

use std::fmt;

use serde_json::Value;

use super::Attributes;
use crate::wire::json::texts;

/// A rule, about resources or about paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|i| i == wanted)
}

/// Returns whether a list of a rule names something, or everything by `*`.
pub fn any(list: &[String], wanted: &str) -> bool {
    list.iter().any(|i| i == "*" || i == wanted)
}

impl Rule {
    /// Reads a rule.
    pub fn read(rule: &Value) -> Self {
        let list = |name: &str| texts(&rule[name]);
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Returns whether the rule allows what is wanted.
    pub fn allows(&self, wanted: &Attributes) -> bool {
        if !any(&self.verbs, &wanted.verb) {
            return false;
        }
        if let Some(path) = &wanted.path {
            return self.paths.iter().any(|allowed| {
                let prefix = allowed.strip_suffix('*');
                allowed == path || prefix.is_some_and(|prefix| path.starts_with(prefix))
            });
        }
        any(&self.groups, &wanted.group)
            && self
                .resources
                .iter()
                .any(|r| names_resource(r, &wanted.resource, &wanted.subresource))
            && (self.names.is_empty() || !wanted.name.is_empty() && has(&self.names, &wanted.name))
    }

    /// Returns the rule in pieces: one verb on one resource or path each.
    pub fn pieces(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut pieces = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                pieces.push(Self {
                    verbs: one(verb),
                    paths: one(path),
                    ..Self::default()
                });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let piece = Self {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        pieces.push(piece.clone());
                    }
                    pieces.extend(self.names.iter().map(|name| Self {
                        names: one(name),
                        ..piece.clone()
                    }));
                }
            }
        }
        pieces
    }

    /// Returns whether everything that a piece allows is allowed by this rule.
    fn covers(&self, piece: &Self) -> bool {
        let all =
            |own: &[String], theirs: &[String]| has(own, "*") || theirs.iter().all(|t| has(own, t));
        let resources = piece.resources.iter().all(|r| {
            let part = r.split_once('/').map(|(_, part)| format!("*/{part}"));
            any(&self.resources, r) || part.is_some_and(|p| has(&self.resources, &p))
        });
        let paths = piece.paths.iter().all(|p| {
            self.paths.iter().any(|own| {
                own == p
                    || own
                        .strip_suffix('*')
                        .is_some_and(|prefix| p.starts_with(prefix))
            })
        });
        let names = self.names.is_empty()
            || !piece.names.is_empty() && piece.names.iter().all(|n| has(&self.names, n));
        all(&self.verbs, &piece.verbs)
            && all(&self.groups, &piece.groups)
            && resources
            && paths
            && names
    }
}

/// Returns whether a pattern of a rule names the resource or subresource.
fn names_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((_, part)) if subresource.is_empty() || part != subresource => false,
        Some((whole, _)) => whole == "*" || whole == resource,
    }
}

/// Returns what of the wanted rules is not covered by the owned ones, in the form and order in
/// which the server reports it.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut missing: Vec<Rule> = Vec::new();
    for piece in wanted.iter().flat_map(Rule::pieces) {
        if owned.iter().any(|o| o.covers(&piece)) {
            continue;
        }
        // Verbs on the same resource are listed together.
        let same = |m: &&mut Rule| {
            m.paths.is_empty()
                && (&m.groups, &m.resources, &m.names)
                    == (&piece.groups, &piece.resources, &piece.names)
        };
        match missing.iter_mut().find(same) {
            Some(found) if piece.paths.is_empty() => {
                if !has(&found.verbs, &piece.verbs[0]) {
                    found.verbs.extend(piece.verbs);
                }
            }
            _ => missing.push(piece),
        }
    }
    missing.sort_by_key(ToString::to_string);
    missing
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.paths),
            ("Verbs", &self.verbs),
        ];
        let shown = shown.into_iter().filter(|(_, list)| !list.is_empty());
        let shown: Vec<String> = shown
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// Returns a list as Go's `%q` prints it.
pub fn quoted(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|i| format!("{i:?}")).collect();
    format!("[{}]", list.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(verb: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let rule = Rule::read(
            &json!({ "verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments", "*/scale"] }),
        );
        let named = Rule::read(
            &json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"] }),
        );
        let cases = [
            (&rule, wanted("get", "deployments", "", ""), true),
            (&rule, wanted("list", "deployments", "", ""), false),
            (&rule, wanted("get", "deployments", "status", ""), false),
            (&rule, wanted("get", "statefulsets", "scale", ""), true),
            (&rule, wanted("get", "scale", "", ""), false),
            (&named, wanted("delete", "deployments", "", "a"), true),
            (&named, wanted("delete", "deployments", "status", "a"), true),
            (&named, wanted("delete", "deployments", "", "b"), false),
            (&named, wanted("list", "deployments", "", ""), false),
        ];
        for (rule, wanted, expected) in cases {
            assert_eq!(rule.allows(&wanted), expected, "{rule} {wanted:?}");
        }
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let rule =
            Rule::read(&json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"] }));
        let path = |p: &str| Attributes {
            verb: "get".to_owned(),
            path: Some(p.to_owned()),
            ..Attributes::default()
        };
        assert!(rule.allows(&path("/api/v1")));
        assert!(!rule.allows(&path("/healthz/etcd")));
    }
}
