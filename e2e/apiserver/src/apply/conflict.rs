//! Conflicts, in the words of the real server.

use super::ApplyError;
use super::element::Element;
use super::managed::{Manager, Owned};

/// One field that another manager holds with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "kubectl-client-side-apply" using apps/v1`: the `message` of the cause.
    pub message: String,
    /// `.spec.replicas`: the `field` of the cause.
    pub field: String,
}

/// A conflict as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// How messages name the manager.
    manager: String,
    /// The field.
    pub path: Vec<Element>,
}

impl Found {
    /// Returns the conflict over `path`, which belongs to `manager`.
    pub fn new(manager: &Manager, owned: &Owned, path: Vec<Element>) -> Self {
        let mut shown = format!("{:?}", manager.name);
        if !manager.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", manager.subresource);
        }
        if !manager.applies {
            shown = format!("{shown} using {}", owned.version);
        }
        Self {
            manager: shown,
            path,
        }
    }
}

/// Returns the refusal with all its causes.
pub fn error(found: Vec<Found>) -> ApplyError {
    let text = |path: &[Element]| path.iter().map(Element::to_string).collect::<String>();
    let message = if let [only] = found.as_slice() {
        format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager,
            text(&only.path)
        )
    } else {
        let mut lines = Vec::new();
        let mut managers: Vec<&String> = found.iter().map(|f| &f.manager).collect();
        managers.sort();
        managers.dedup();
        for manager in managers {
            lines.push(format!("conflicts with {manager}:"));
            let theirs = found.iter().filter(|f| f.manager == *manager);
            lines.extend(theirs.map(|f| format!("- {}", text(&f.path))));
        }
        format!(
            "Apply failed with {} conflicts: {}",
            found.len(),
            lines.join("\n")
        )
    };
    let conflicts = found
        .into_iter()
        .map(|f| Conflict {
            message: format!("conflict with {}", f.manager),
            field: text(&f.path),
        })
        .collect();
    ApplyError::Conflicts { message, conflicts }
}
