//! Failures of the users' interpreters, each reported seldom.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::layers::Changed;
use crate::webhook::Overdue;
use crate::{Error, Operation};

/// Time for which the failure of a script is not passed to the listeners of failures after another.
const NEXT_FAILURE: Duration = Duration::from_mins(5);
/// Time for which the same failure of a script is not reported again. An API server forgets events
/// after an hour.
const SAME_FAILURE: Duration = Duration::from_mins(55);

/// Failure of an interpreter of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The interpreter, which is an object of the fleet API.
    pub by: Source,
    /// Description of the failure and its reason.
    pub note: String,
}

/// Object that holds an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `ResourceInterpreterCustomization` of this name.
    Customization(String),
    /// `ResourceInterpreterWebhookConfiguration` of this name.
    Webhook(String),
}

/// What a failure is about: interpreter, API version, kind, and operation.
type About = (Source, String, String, Operation);
type OnFailure = Box<dyn Fn(&Failed) + Send + Sync>;

/// Listeners, and what was reported to them.
#[derive(Default)]
pub(crate) struct Failures {
    listeners: RwLock<Vec<OnFailure>>,
    /// Time and text of the last failure.
    reported: Mutex<HashMap<About, (Instant, String)>>,
}

impl Failures {
    /// Adds a listener.
    pub(crate) fn listen(&self, listener: impl Fn(&Failed) + Send + Sync + 'static) {
        let mut listeners = self.listeners.write();
        listeners.push(Box::new(listener));
    }

    /// Reports an error, if it is one of an interpreter of a user.
    pub(crate) fn report(&self, error: &Error) {
        let about = match error {
            Error::Script(error) => {
                let at = error.source_of_script();
                let by = Source::Customization(at.customization.clone());
                (by, at.api_version.clone(), at.kind.clone(), at.operation)
            }
            Error::Webhook(failure) => about(&failure.at),
            _ => return,
        };
        // Built-in scripts have no name.
        if about.0 != Source::Customization(String::new()) {
            self.report_rarely(about, || error.to_string());
        }
    }

    /// Reports that a webhook has not answered about objects for a long time.
    pub(crate) fn report_overdue(&self, overdue: &Overdue) {
        let Overdue {
            at,
            objects,
            longest,
        } = overdue;
        self.report_rarely(about(at), || {
            format!(
                "{at}: it has given no answer that fits about {objects} objects for more than a \
                 minute, {longest:?} is the one for longest: what was known of them before counts"
            )
        });
    }

    /// Has failures of interpreters that have changed be reported anew.
    pub(crate) fn forget(&self, changed: &Changed) {
        self.reported
            .lock()
            .retain(|(_, api_version, kind, _), _| !changed.has(api_version, kind));
    }

    /// Reports a failure, unless it was reported a short time ago.
    fn report_rarely(&self, about: About, note: impl FnOnce() -> String) {
        let now = Instant::now();
        let before = self.reported.lock().get(&about).cloned();
        let age = before
            .as_ref()
            .map(|(at, _)| now.saturating_duration_since(*at));
        if age.is_some_and(|age| age < NEXT_FAILURE) {
            return;
        }
        let note = note();
        let is_same = before.is_some_and(|(_, reported)| reported == note);
        if is_same && age.is_some_and(|age| age < SAME_FAILURE) {
            return;
        }
        let by = about.0.clone();
        self.reported.lock().insert(about, (now, note.clone()));
        let failed = Failed { by, note };
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| listener(&failed));
    }
}

fn about(at: &crate::webhook::At) -> About {
    let by = Source::Webhook(at.configuration.clone());
    (by, at.api_version.clone(), at.kind.clone(), at.operation)
}
