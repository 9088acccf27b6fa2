//! Steps of people: carried out as the plan says.

use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::api::DynamicObject;
use muster_shared::client::brief;
use muster_test_fleet::harness::apply::apply_all;
use serde_json::Value;

use super::World;
use crate::history::{Actor, Key, World as WorldEvent};
use crate::people::{Step, Submission};
use crate::recorder::Recorder;

/// Name of the person in the history.
const NAME: &str = "operator";

/// Creates an object, or merges it into one that exists.
pub(super) async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    apply_all(client, vec![object]).await
}

/// Does one step; what is refused is in the history.
pub(super) fn act(world: &World, step: &Step) {
    let recorder = Arc::clone(world.recorder());
    recorder.world(WorldEvent::Step {
        id: step.id,
        step: serde_json::to_value(step).unwrap_or_default(),
    });
    let actor = Actor::Person(NAME.to_owned());
    let Ok(client) = world.client(actor, &step.api) else {
        return;
    };
    let step = step.clone();
    tokio::spawn(async move {
        let read = |key: &Key| {
            let api = step.api.clone();
            recorder.object(&Key { api, ..key.clone() })
        };
        for submission in step.act.requests(&read) {
            submit(&client, &submission, step.id, &recorder).await;
        }
    });
}

async fn submit(client: &Client, submission: &Submission, id: u64, recorder: &Recorder) {
    let method = serde_json::to_value(submission.method).unwrap_or_default();
    let body = match &submission.body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = Request::builder()
        .method(method.as_str().unwrap_or_default())
        .uri(&submission.path)
        .header(http::header::CONTENT_TYPE, submission.content_type)
        .body(body);
    let outcome = match request {
        Ok(request) => client.request_text(request).await.map_err(|it| brief(&it)),
        Err(error) => Err(error.to_string()),
    };
    if let Err(problem) = outcome {
        recorder.world(WorldEvent::Mark(format!("step {id} failed: {problem}")));
    }
}
