//! A conversation: steps in a namespace of its own, and how they are held with a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, BodyStream};
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use muster_e2e::apiserver::Running;

use crate::comparison::normal::Normal;

/// Steps that belong together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// What it is about; also its key in the recordings.
    #[serde(rename = "conversation")]
    pub name: String,
    /// Whether it is about what kube-controller-manager does.
    #[serde(default)]
    pub manager: bool,
    /// Whether history is forgotten in it, which a step `do: FORGET` does: such conversations are
    /// held one after the other, with servers that have no others.
    #[serde(default)]
    pub forgets: bool,
    /// What is asked, in order.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `METHOD /path?query`. `{ns}` is the namespace of the conversation, `{x}` what was kept as
    /// `x`.
    #[serde(rename = "do")]
    request: String,
    /// An object, sent as JSON.
    body: Option<Value>,
    /// A body as it is.
    text: Option<String>,
    /// A body of so many bytes.
    bytes: Option<usize>,
    /// Media type of the body; JSON, or merge patch for `PATCH`.
    #[serde(rename = "type")]
    content_type: Option<String>,
    /// Media types accepted.
    accept: Option<String>,
    /// Further headers.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Values to keep from the answer: name to JSON pointer.
    #[serde(default)]
    keep: BTreeMap<String, String>,
    /// Read this many watch events instead of a body; fewer if the stream ends or falls silent.
    events: Option<usize>,
    /// Ask again until the answer has these values at these pointers (`null`: absent), or this code
    /// at `/code`.
    until: Option<BTreeMap<String, Value>>,
    /// Only these parts of the answer are compared, and recorded: JSON pointers.
    #[serde(default)]
    only: Vec<String>,
    /// The answer itself is not compared.
    #[serde(default)]
    quiet: bool,
    /// Parts of the answer that differ knowingly: JSON pointer to reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
    /// Parts of the answer that vary from run to run even on one server: JSON pointer to reason.
    #[serde(default)]
    pub varies: BTreeMap<String, String>,
    /// The causes of a refusal come in any order.
    #[serde(default)]
    pub unordered: bool,
}

/// Who is spoken with.
pub struct Server<'a> {
    /// An administrator.
    pub client: kube::Client,
    /// Whether there is kube-controller-manager, or what does its work, which furnishes namespaces.
    pub manager: bool,
    /// The embedded server; `None` for a real one.
    pub embedded: Option<&'a Running>,
}

impl Server<'_> {
    /// Forgets what was before now. A real server does so every now and then (see [`COMPACTION`]).
    async fn forget(&self) {
        match self.embedded {
            Some(running) => running.store().forget_history(),
            // What is forgotten was there at the compaction before; that it is forgotten is not
            // shown.
            None => tokio::time::sleep(COMPACTION * 4).await,
        }
    }
}

/// The step that forgets history.
const FORGET: &str = "FORGET";

/// How often a real server forgets, where it is to forget.
pub const COMPACTION: Duration = Duration::from_secs(1);

/// How long a watch may be silent before it counts as having nothing more to say.
const SILENCE: Duration = Duration::from_millis(700);

/// How often an answer that is not yet the expected one is asked for.
const ATTEMPTS: u32 = 200;

static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// Holds a conversation; gives the normalised answers.
pub async fn hold(server: &Server<'_>, conversation: &Conversation) -> Vec<Value> {
    let (client, manager) = (&server.client, server.manager);
    let namespace = format!(
        "talk-{}-{}",
        std::process::id(),
        NAMESPACES.fetch_add(1, Ordering::Relaxed)
    );
    let made = json!({ "metadata": { "name": namespace } });
    let request = Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let request = request
        .body(Body::from(made.to_string().into_bytes()))
        .expect("a request");
    client.send(request).await.expect("a namespace");
    // Its furniture comes a moment later and must not fall into a watch.
    let furniture = ["configmaps/kube-root-ca.crt", "serviceaccounts/default"];
    for plural in furniture.into_iter().filter(|_| manager) {
        for _ in 0..ATTEMPTS {
            let request = Request::get(format!("/api/v1/namespaces/{namespace}/{plural}"));
            let answer = client
                .send(request.body(Body::empty()).expect("a request"))
                .await;
            if answer.is_ok_and(|a| a.status().is_success()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut kept = BTreeMap::from([("ns".to_owned(), namespace.clone())]);
    let mut normal = Normal::new(&namespace);
    let mut answers = Vec::new();
    for step in &conversation.steps {
        if step.request == FORGET {
            server.forget().await;
            answers.push(Value::Null);
            continue;
        }
        let raw = ask(client, step, &mut kept).await;
        let answer = normal.of(raw);
        answers.push(match (step.quiet, step.only.as_slice()) {
            (true, _) => Value::Null,
            (false, []) => answer,
            (false, only) => only
                .iter()
                .map(|pointer| {
                    (
                        pointer.clone(),
                        answer.pointer(pointer).cloned().unwrap_or_default(),
                    )
                })
                .collect(),
        });
    }
    answers
}

fn filled(text: &str, kept: &BTreeMap<String, String>) -> String {
    kept.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

async fn ask(client: &kube::Client, step: &Step, kept: &mut BTreeMap<String, String>) -> Value {
    for attempt in 1.. {
        let answer = once(client, step, kept).await;
        let done = step.until.as_ref().is_none_or(|wanted| {
            wanted
                .iter()
                .all(|(pointer, value)| answer.pointer(pointer).unwrap_or(&Value::Null) == value)
        });
        if !done && attempt < ATTEMPTS {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        for (name, pointer) in &step.keep {
            let value = answer.pointer(pointer).cloned().unwrap_or_default();
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            kept.insert(name.clone(), text);
        }
        return answer;
    }
    Value::Null
}

async fn once(client: &kube::Client, step: &Step, kept: &BTreeMap<String, String>) -> Value {
    let line = filled(&step.request, kept);
    let (method, path) = line.split_once(' ').expect("METHOD /path");
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "talker/1.0");
    let body = match (&step.body, &step.text, step.bytes) {
        (Some(body), ..) => filled(&body.to_string(), kept).into_bytes(),
        (_, Some(text), _) => filled(text, kept).into_bytes(),
        (.., Some(size)) => vec![b' '; size],
        _ => Vec::new(),
    };
    if !body.is_empty() {
        let usual = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        request = request.header(
            "content-type",
            step.content_type.as_deref().unwrap_or(usual),
        );
    }
    request = request.header(
        "accept",
        step.accept.as_deref().unwrap_or("application/json"),
    );
    for (name, value) in &step.headers {
        request = request.header(name, filled(value, kept));
    }
    let request = request.body(Body::from(body)).expect("a request");
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let code = response.status().as_u16();
    let text = |name: &str| -> Vec<String> {
        response
            .headers()
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap_or("?").to_owned())
            .collect()
    };
    let mut answer = json!({ "code": code, "type": text("content-type").join(",") });
    if !text("warning").is_empty() {
        answer["warnings"] = json!(text("warning"));
    }
    if let Some(count) = step.events
        && code == 200
    {
        answer["events"] = events(response.into_body(), count).await.into();
        return answer;
    }
    let bytes = response
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    answer["body"] = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
    answer
}

async fn events(body: Body, count: usize) -> Vec<Value> {
    let mut frames = BodyStream::new(body);
    let (mut buffer, mut events) = (Vec::new(), Vec::new());
    while events.len() < count {
        let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE, frames.next()).await else {
            break;
        };
        buffer.extend_from_slice(frame.data_ref().map_or(&[], |b| b));
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            events.extend(serde_json::from_slice::<Value>(&line));
        }
    }
    events.truncate(count);
    events
}
