//! The error of a request to the fleet API, with what it was for.

use muster_shared::client;

/// A request to the fleet API that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {object}: {}", client::brief(source))]
pub struct ApiError {
    /// Step that failed, as a verb: "update".
    pub step: &'static str,
    /// Object of the step: kind, namespace and name.
    pub object: String,
    /// Error of the client.
    pub source: Box<kube::Error>,
}

impl ApiError {
    /// Makes the error of a step, for `map_err`.
    pub fn of<T: ToString>(
        step: &'static str,
        object: &T,
    ) -> impl FnOnce(kube::Error) -> Self + use<T> {
        let object = object.to_string();
        move |source| Self {
            step,
            object,
            source: Box::new(source),
        }
    }

    /// Returns whether the API refuses what was sent, so that trying again does not help until
    /// somebody changes something.
    pub fn is_lasting(&self) -> bool {
        let error = &*self.source;
        client::refuses_content(error)
            || matches!(error, kube::Error::Api(status) if [400, 403].contains(&status.code))
    }
}

/// Returns whether a write that failed may have been carried out all the same. Only an answer that
/// refuses it says that it was not: after a deadline that passed, an error within the server or a
/// connection that broke, it may have been.
pub fn may_be_written(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => !(400..500).contains(&status.code) || status.code == 408,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_is_refused_lasts_and_what_is_not_answered_does_not() {
        for (code, message, expected) in [
            (400, "", true),
            (403, "", true),
            (413, "", true),
            (422, "", true),
            (409, "", false),
            (429, "", false),
            (500, "", false),
            (500, "etcdserver: request is too large", true),
        ] {
            let status = Status::failure(message, "").with_code(code);
            let error = kube::Error::Api(status.boxed());
            let error = ApiError::of("write", &"it")(error);
            assert_eq!(error.is_lasting(), expected, "{code} {message}");
        }
    }

    #[test]
    fn only_an_answer_that_refuses_says_that_nothing_was_written() {
        for (code, written) in [
            (400, false),
            (403, false),
            (404, false),
            (408, true),
            (409, false),
            (422, false),
            (429, false),
            (500, true),
            (502, true),
            (503, true),
            (504, true),
        ] {
            let status = Status::failure("", "").with_code(code).boxed();
            assert_eq!(may_be_written(&kube::Error::Api(status)), written, "{code}");
        }
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(may_be_written(&kube::Error::Service(Box::new(broken))));
    }
}
