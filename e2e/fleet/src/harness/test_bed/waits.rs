//! Waits of a test that report what was missing.

use std::fmt::{Debug, Write as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::observer::Missing;

/// How long anything may take. The real times are well below a second; a loaded machine takes
/// longer.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits, change by change, until an object is as described, and gives it. Panics when it is not so
/// in time, with the object and the events about it.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let found = awaited(api, name, what, |object: Option<&K>| {
        object.is_some_and(&holds)
    });
    match found.await {
        Ok(Some(object)) => object,
        Ok(None) => failed("it went while it was looked at"),
        Err(missing) => failed(&missing.to_string()),
    }
}

/// Waits until an object is gone. Panics when it is not in time.
pub async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let gone = awaited(api, name, "it is gone", |object: Option<&K>| {
        object.is_none()
    });
    if let Err(missing) = gone.await {
        failed(&missing.to_string());
    }
}

/// First and longest pause between two questions of [`eventually`].
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Asks until there is an answer, for effects that no watch shows: metrics, other programs, rules
/// that a server learns of a moment later. The error of a question is what is missing. Panics with
/// the last one when there is no answer in time.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    let (mut pause, longest) = PAUSES;
    loop {
        let missing = match timeout(PATIENCE, ask()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(missing)) => missing,
            Err(_) => "the question is not answered".to_owned(),
        };
        if begun.elapsed() >= PATIENCE {
            failed(&format!("{what}: {missing}"));
        }
        sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

#[expect(clippy::panic, reason = "how a test says that it failed")]
pub(in crate::harness) fn failed(missing: &str) -> ! {
    panic!("{missing}")
}

/// Waits, change by change, until an object is as described or gone, and returns what it found. It
/// does not panic: an error says what there was instead.
pub async fn awaited<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, Missing>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let begun = Instant::now();
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| holds(object));
    let trouble = match timeout(PATIENCE, waiting).await {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(error)) => format!("the watch failed: {error}"),
        Err(_) => String::new(),
    };
    Err(Missing {
        what: format!("{name}: {what}"),
        waited: begun.elapsed(),
        lacking: format!("{trouble}{}", described(api, name).await),
    })
}

/// Returns an object and the events about it, as text.
async fn described<K>(api: &Api<K>, name: &str) -> String
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
{
    let mut text = match api.get_opt(name).await {
        Ok(None) => "there is no such object".to_owned(),
        Ok(Some(mut object)) => {
            object.meta_mut().managed_fields = None;
            let yaml = serde_saphyr::to_string(&object);
            format!("it is\n{}", yaml.unwrap_or_else(|_| format!("{object:#?}")))
        }
        Err(error) => format!("it cannot be read: {error}"),
    };
    let events: Api<Event> = Api::all(api.clone().into_client());
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    for event in events.list(&about).await.into_iter().flatten() {
        let (reason, message) = (event.reason, event.message);
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "event {reason}: {message}");
    }
    text
}
