//! The error of a request to the fleet API, with what it was for.

use muster_shared::client;

/// A request to the fleet API that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {object}: {}", client::brief(source))]
pub struct ApiError {
    /// What was to be done, as a verb: "update".
    pub step: &'static str,
    /// What it was to be done to: kind, namespace and name.
    pub object: String,
    /// Error of the client.
    pub source: Box<kube::Error>,
}

impl ApiError {
    /// Makes the error of a step, for `map_err`.
    pub fn of(step: &'static str, object: &impl ToString) -> impl FnOnce(kube::Error) -> Self {
        let object = object.to_string();
        move |source| Self {
            step,
            object,
            source: Box::new(source),
        }
    }

    /// Whether the API refuses what was sent, so that trying again does not help until somebody
    /// changes something.
    pub fn is_lasting(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if [400, 403, 413, 422].contains(&status.code))
    }
}
