//! Conversations with a Kubernetes API: what is said and what a real server answers, as data in `conversations/`.
//!
//! They run against the embedded server, and against any other when `MUSTER_CONVERSATIONS_KUBECONFIG` names a kubeconfig
//! for it. The answers are those of kube-apiserver 1.36; what differs on purpose is written in `DIFFERENCES.md` beside
//! the embedded server, and not asked for here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_e2e::apiserver::{ApiServer, Running};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

/// No answer takes longer, watches included (they end themselves after a second).
const DEADLINE: Duration = Duration::from_secs(20);

/// One conversation: its steps build on each other, in a namespace of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    name: String,
    /// What the embedded server still does otherwise; the conversation is held with real ones only.
    #[serde(default)]
    pending: Option<String>,
    steps: Vec<Step>,
}

/// One request and what must come back. `$ns`, `$id` and saved values are filled in everywhere.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// `POST /api/v1/namespaces/$ns/configmaps?dryRun=All`
    send: String,
    /// The body, sent as JSON.
    #[serde(default)]
    body: Option<Value>,
    /// The body, sent as it stands.
    #[serde(default)]
    raw: Option<String>,
    /// Content type; JSON, or merge patch for `PATCH`.
    #[serde(default, rename = "type")]
    content_type: Option<String>,
    #[serde(default)]
    accept: Option<String>,
    /// User to speak as.
    #[serde(default, rename = "as")]
    user: Option<String>,
    status: u16,
    /// What the answer has; it may have more. Lists are as long. `~` starts a regular expression.
    #[serde(default)]
    has: Option<Value>,
    /// What the answer is, but for times, uids and versions.
    #[serde(default)]
    is: Option<Value>,
    /// The events of a watch, as `has`.
    #[serde(default)]
    events: Option<Vec<Value>>,
    /// The same, where more may follow.
    #[serde(default)]
    first: Option<Vec<Value>>,
    /// Pointers that lead nowhere in the answer.
    #[serde(default)]
    lacks: Vec<String>,
    /// A regular expression for a warning that comes along.
    #[serde(default)]
    warning: Option<String>,
    /// Names for values of the answer, by pointer.
    #[serde(default)]
    save: BTreeMap<String, String>,
    /// Ask again until the answer fits: something happens behind the scenes.
    #[serde(default)]
    eventually: bool,
}

/// The server that is spoken with; the embedded one stops when it is dropped.
struct Server {
    client: kube::Client,
    running: Option<Running>,
}

async fn server() -> Server {
    let Ok(path) = std::env::var("MUSTER_CONVERSATIONS_KUBECONFIG") else {
        let running = ApiServer::for_test().await;
        return Server {
            client: running.client().await.expect("a client"),
            running: Some(running),
        };
    };
    let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("a config");
    Server {
        client: kube::Client::try_from(config).expect("a client"),
        running: None,
    }
}

/// A number that no other conversation has, on this server or an earlier run against it.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let run = std::process::id();
    format!("{run:x}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What came back.
struct Answer {
    status: u16,
    warnings: String,
    text: String,
}

impl Server {
    async fn say(&self, step: &Step, known: &BTreeMap<String, String>) -> Result<Answer, String> {
        let fill = |text: &str| filled(text, known);
        let (method, path) = step.send.split_once(' ').ok_or("`send` is METHOD PATH")?;
        let method: Method = method.parse().map_err(|e| format!("{e}"))?;
        let default_type = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let mut request = Request::builder()
            .method(method)
            .uri(fill(path))
            .header(
                "content-type",
                step.content_type.as_deref().unwrap_or(default_type),
            )
            .header(
                "accept",
                step.accept.as_deref().unwrap_or("application/json"),
            );
        if let Some(user) = &step.user {
            request = request.header("impersonate-user", fill(user));
        }
        let body = match (&step.raw, &step.body) {
            (Some(raw), _) => fill(raw),
            (None, Some(body)) => fill(&body.to_string()),
            (None, None) => String::new(),
        };
        let request = request
            .body(Body::from(body.into_bytes()))
            .map_err(|e| e.to_string())?;
        let answer = async {
            let response = self.client.send(request).await.map_err(|e| e.to_string())?;
            let status = response.status().as_u16();
            let warnings = response.headers().get_all("warning").iter();
            let warnings: Vec<_> = warnings
                .map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned())
                .collect();
            let bytes = response
                .into_body()
                .collect()
                .await
                .map_err(|e| e.to_string())?
                .to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Answer {
                status,
                warnings: warnings.join("\n"),
                text,
            })
        };
        tokio::time::timeout(DEADLINE, answer)
            .await
            .map_err(|_| "no answer in time".to_owned())?
    }

    /// Has the whole conversation; what went wrong, if anything did.
    async fn converse(&self, conversation: &Conversation) -> Result<(), String> {
        let id = unique();
        let mut known = BTreeMap::from([
            ("id".to_owned(), id.clone()),
            ("ns".to_owned(), format!("talk-{id}")),
        ]);
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "$ns"}});
        let opening: Step = serde_json::from_value(
            json!({"send": "POST /api/v1/namespaces", "body": namespace, "status": 201}),
        )
        .map_err(|e| e.to_string())?;
        for (number, step) in std::iter::once(&opening)
            .chain(&conversation.steps)
            .enumerate()
        {
            let started = std::time::Instant::now();
            loop {
                let answer = self
                    .say(step, &known)
                    .await
                    .map_err(|e| format!("step {number} ({}): {e}", step.send))?;
                match judge(step, &answer, &mut known) {
                    Ok(()) => break,
                    Err(_) if step.eventually && started.elapsed() < DEADLINE => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(faults) => {
                        let shown: String = answer.text.chars().take(3000).collect();
                        return Err(format!(
                            "step {number} ({}):\n{faults}  answer {}: {shown}",
                            step.send, answer.status
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn filled(text: &str, known: &BTreeMap<String, String>) -> String {
    known.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${name}"), value)
    })
}

fn judge(step: &Step, answer: &Answer, known: &mut BTreeMap<String, String>) -> Result<(), String> {
    let mut faults = String::new();
    if answer.status != step.status {
        let _ = writeln!(
            faults,
            "  status {} instead of {}",
            answer.status, step.status
        );
    }
    let value =
        serde_json::from_str(&answer.text).unwrap_or_else(|_| Value::from(answer.text.trim()));
    let wanted = |value: &Value| -> Value {
        serde_json::from_str(&filled(&value.to_string(), known))
            .expect("filling in keeps JSON JSON")
    };
    if let Some(has) = &step.has {
        subset(&wanted(has), &value, "", &mut faults);
    }
    if let Some(is) = &step.is {
        let (is, value) = (wanted(is), normal(&value, ""));
        if is != value {
            let _ = writeln!(faults, "  it is not {is}\n  but       {value}");
        }
    }
    let events: Vec<Value> = answer
        .text
        .lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect();
    if let Some(wanted_events) = &step.events {
        subset(
            &wanted(&json!(wanted_events)),
            &json!(events),
            "",
            &mut faults,
        );
    }
    if let Some(first) = &step.first {
        let begin: Vec<&Value> = events.iter().take(first.len()).collect();
        subset(&wanted(&json!(first)), &json!(begin), "", &mut faults);
    }
    for pointer in &step.lacks {
        if let Some(found) = value.pointer(pointer) {
            let _ = writeln!(faults, "  {pointer} is {found} instead of absent");
        }
    }
    if let Some(warning) = &step.warning
        && !Regex::new(warning).is_ok_and(|regex| regex.is_match(&answer.warnings))
    {
        let _ = writeln!(
            faults,
            "  no warning like {warning}, but {:?}",
            answer.warnings
        );
    }
    for (name, pointer) in &step.save {
        match value.pointer(pointer) {
            Some(Value::String(text)) => known.insert(name.clone(), text.clone()),
            Some(other) => known.insert(name.clone(), other.to_string()),
            None => {
                let _ = writeln!(faults, "  nothing to save at {pointer}");
                None
            }
        };
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

/// Reports where `found` lacks something of `wanted`.
fn subset(wanted: &Value, found: &Value, path: &str, faults: &mut String) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (name, wanted) in wanted {
                subset(
                    wanted,
                    found.get(name).unwrap_or(&Value::Null),
                    &format!("{path}/{name}"),
                    faults,
                );
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                subset(wanted, found, &format!("{path}/{index}"), faults);
            }
        }
        (Value::String(pattern), found) if pattern.starts_with('~') => {
            let text = found
                .as_str()
                .map_or_else(|| found.to_string(), str::to_owned);
            if !Regex::new(&pattern[1..]).is_ok_and(|regex| regex.is_match(&text)) {
                let _ = writeln!(faults, "  {path} is {found}, which is not like {pattern}");
            }
        }
        _ if wanted == found => {}
        _ => {
            let _ = writeln!(faults, "  {path} is {found} instead of {wanted}");
        }
    }
}

/// The value with what differs from run to run replaced by what it is.
fn normal(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), normal(value, name)))
                .collect(),
        ),
        Value::Array(list) => list.iter().map(|value| normal(value, "")).collect(),
        Value::String(_) if name == "uid" => "<uid>".into(),
        Value::String(_) if name == "resourceVersion" => "<version>".into(),
        Value::String(_)
            if name == "time" || name.ends_with("Timestamp") || name.ends_with("Time") =>
        {
            "<time>".into()
        }
        other => other.clone(),
    }
}

async fn hold(topic: &str, text: &str) {
    let mut conversations: Vec<Conversation> =
        serde_saphyr::from_str(text).expect("conversations in YAML");
    let server = server().await;
    if server.running.is_some() {
        for skipped in conversations.extract_if(.., |conversation| conversation.pending.is_some()) {
            eprintln!(
                "{topic}: not held: {}: {}",
                skipped.name,
                skipped.pending.unwrap_or_default()
            );
        }
    }
    let results = futures::future::join_all(conversations.iter().map(|c| server.converse(c))).await;
    let failed: Vec<String> = conversations
        .iter()
        .zip(results)
        .filter_map(|(conversation, result)| {
            Some(format!("{}: {}", conversation.name, result.err()?))
        })
        .collect();
    let of = conversations.len();
    assert!(
        failed.is_empty(),
        "{topic}: {} of {of} failed\n{}",
        failed.len(),
        failed.join("\n\n")
    );
}

macro_rules! topics {
    ($($topic:ident)*) => {
        $(
            #[tokio::test]
            async fn $topic() {
                hold(stringify!($topic), include_str!(concat!("conversations/", stringify!($topic), ".yaml"))).await;
            }
        )*

        #[test]
        fn every_file_of_conversations_is_held() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conversations");
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let name = entry.expect("an entry").file_name().into_string().expect("a name");
                let topic = name.strip_suffix(".yaml").expect("YAML");
                assert!([$(stringify!($topic)),*].contains(&topic), "{name}");
            }
        }
    };
}

topics! { apply create crds defaults delete discovery lists options patches subresources tables update validation watches }
