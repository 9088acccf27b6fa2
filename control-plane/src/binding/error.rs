//! What keeps the Works of a binding from being as they should be.

use muster_shared::interpreter;

/// Reason why the Works of a binding are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("render the works: {0}")]
    Render(#[from] interpreter::Error),
    #[error("{step} {subject}: {source}")]
    Api {
        step: &'static str,
        subject: String,
        source: Box<kube::Error>,
    },
    /// Two resources share the name of their Works.
    #[error(
        "{work} {owner}, and is left as it is: the names of works end in a hash that two namespaces may share; rename the resource, or its namespace"
    )]
    Foreign { work: String, owner: String },
    #[error("{0} is there and cannot be read, so that it is neither updated nor replaced")]
    Unreadable(String),
    #[error("another replica leads: nothing is written any more")]
    Deposed,
    #[error("{failed} of {of} works failed; the first: {first}")]
    Some {
        failed: usize,
        of: usize,
        first: Box<Self>,
    },
}

impl Error {
    pub fn api(step: &'static str, subject: &impl ToString) -> impl FnOnce(kube::Error) -> Self {
        let subject = subject.to_string();
        move |source| Self::Api {
            step,
            subject,
            source: Box::new(source),
        }
    }
}
