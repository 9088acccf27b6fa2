//! Bodies of requests: CloudEvents, messages for chats, and what a template of an operator makes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use jiff::Timestamp;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior};
use muster_shared::api::failover_record::Failover;
use serde_json::json;

use super::due::Notice;
use super::event::{self, Event};
use crate::settings::Settings;
use crate::settings::notice_receivers::{Format, Phase, Receiver};

/// Bytes of the longest body that a template may make: chat services refuse longer ones.
const LONGEST: usize = 64 << 10;
/// Instructions that a template may take.
const FUEL: u64 = 100_000;

/// Returns the content type and the body of an event for a receiver.
///
/// # Errors
/// When the template of the receiver fails, or makes no JSON although that is its content type.
pub fn body(receiver: &Receiver, event: &Event) -> Result<(String, Vec<u8>), String> {
    let json = |value: serde_json::Value| ("application/json".to_owned(), value.to_string());
    let (kind, text) = match receiver.format {
        Format::CloudEvents => {
            let mut value = json!(event);
            value["specversion"] = json!("1.0");
            value["datacontenttype"] = json!("application/json");
            let kind = "application/cloudevents+json; charset=utf-8";
            (kind.to_owned(), value.to_string())
        }
        Format::Slack => json(slack(event)),
        Format::Teams => json(teams(event)),
        Format::Template => return rendered(receiver, event, false),
    };
    Ok((kind, text.into_bytes()))
}

/// Checks the template of a receiver by an event whose texts have all that has to be quoted, and by
/// one that replaces others.
///
/// # Errors
/// A text that names the field.
pub fn check(receiver: &Receiver) -> Result<(), String> {
    if receiver.format != Format::Template {
        return Ok(());
    }
    let (text, time) = ("a \"quoted\" \\ text\nof two lines", Timestamp::UNIX_EPOCH);
    let times = [
        "silentSince",
        "notReady",
        "tainted",
        "firstMove",
        "lastMove",
    ]
    .into_iter();
    let times = times.chain(["healthy", "recovered", "cleaned", "ended"]);
    let times: BTreeMap<_, _> = times.map(|it| (it, time.to_string())).collect();
    let record = json!({
        "metadata": { "name": "sample" },
        "spec": { "cluster": "sample", "startTime": time.to_string() },
        "status": {
            "times": times,
            "cause": { "message": text, "command": text, "taints": [text], "policies": [text] },
            "workloads": { "held": 1, "heldNow": 1 },
        },
    });
    let record: Failover = serde_json::from_value(record).map_err(|error| error.to_string())?;
    let notice = Notice {
        phase: Phase::Began,
        number: 1,
        time: None,
    };
    let settings = Settings {
        notice_source: text.to_owned(),
        notice_page_url: text.to_owned(),
        ..Settings::default()
    };
    rendered(
        receiver,
        &event::event(&settings, &record, &notice, time),
        true,
    )?;
    let other = event::left_out(&settings, &[Arc::new(record)], String::new(), time);
    rendered(receiver, &other, false).map(|_| ())
}

/// Returns a message in the notation of Slack. What could be a link or a mention is escaped.
fn slack(event: &Event) -> serde_json::Value {
    let escape = |text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace('>', "&gt;")
    };
    let mark = match event.text("severity") {
        "critical" => ":red_circle:",
        "warning" => ":large_orange_circle:",
        _ => ":large_blue_circle:",
    };
    let [fleet, sentence] = [&event.source, event.text("sentence")].map(escape);
    let [command, link] = [event.text("command"), event.text("link")].map(escape);
    let mut text = format!("{mark} *{fleet}*: {sentence}\n`{command}`");
    if !link.is_empty() {
        text = format!("{text} <{link}|the whole story>");
    }
    json!({ "text": text, "unfurl_links": false })
}

/// Returns an adaptive card, as the workflows of Teams take it.
fn teams(event: &Event) -> serde_json::Value {
    // A text block is Markdown: what could be a link or an emphasis is escaped.
    let plain = |text: &str| {
        let mut plain = String::with_capacity(text.len());
        for letter in text.chars() {
            if "\\`*_[]".contains(letter) {
                plain.push('\\');
            }
            plain.push(letter);
        }
        plain
    };
    let block = |text: &str| json!({ "type": "TextBlock", "text": plain(text), "wrap": true });
    let mut title = block(&event.source);
    title["weight"] = json!("bolder");
    if event.text("severity") == "critical" {
        title["color"] = json!("attention");
    }
    let link = Some(event.text("link")).filter(|it| !it.is_empty());
    let action = |url| json!({ "type": "Action.OpenUrl", "title": "The whole story", "url": url });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [title, block(event.text("sentence")), block(event.text("command"))],
                "actions": link.map(action).into_iter().collect::<Vec<_>>(),
            },
        }],
    })
}

/// Writes up to a number of bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(io::Error::other(format!("more than {LONGEST} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what a template makes of an event. A field that is absent is empty, unless that is to be
/// refused.
fn rendered(
    receiver: &Receiver,
    event: &Event,
    is_strict: bool,
) -> Result<(String, Vec<u8>), String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(if is_strict {
        UndefinedBehavior::Strict
    } else {
        UndefinedBehavior::Chainable
    });
    let failed = |error: minijinja::Error| match std::error::Error::source(&error) {
        Some(cause) => format!("template: {error}: {cause}"),
        None => format!("template: {error}"),
    };
    let text = receiver.template.as_deref().unwrap_or_default();
    let template = environment.template_from_str(text).map_err(failed)?;
    let mut context = json!({
        "id": event.id, "type": event.kind, "fleet": event.source, "time": event.time,
        "data": event.data,
    });
    for field in [
        "cluster", "phase", "severity", "sentence", "link", "command",
    ] {
        context[field] = event.data[field].clone();
    }
    let mut bytes = Bounded(Vec::new());
    let context = Value::from(Serde(&context));
    template
        .render_captured_to(context, &mut bytes)
        .map_err(failed)?;
    let kind = receiver
        .content_type
        .as_deref()
        .unwrap_or("application/json");
    if kind.starts_with("application/json") {
        serde_json::from_slice::<serde::de::IgnoredAny>(&bytes.0).map_err(|error| {
            format!(
                "template makes no JSON ({error}): write {{{{ sentence | tojson }}}} without quotes"
            )
        })?;
    }
    Ok((kind.to_owned(), bytes.0))
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::{began, left_out};
    use super::*;
    use crate::settings::notice_receivers::NoticeReceivers;

    fn receiver(more: &serde_json::Value) -> Receiver {
        let mut written = json!({ "name": "a", "url": "https://example.com" });
        json_patch::merge(&mut written, more);
        let receivers: NoticeReceivers = json!([written]).to_string().parse().unwrap();
        receivers.0[0].clone()
    }

    fn made(format: &str, event: &Event) -> (String, serde_json::Value) {
        let (kind, body) = body(&receiver(&json!({ "format": format })), event).unwrap();
        (kind, serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn a_cloudevent_has_the_attributes_of_the_specification() {
        let (kind, body) = made("cloudevents", &began());
        assert_eq!(kind, "application/cloudevents+json; charset=utf-8");
        for (attribute, expected) in [
            ("specversion", "1.0"),
            ("id", "uid-1-began-1"),
            ("type", "com.muster.failover.began"),
            ("source", "fleet"),
            ("subject", "m1"),
            ("time", "1970-01-01T00:01:00Z"),
            ("datacontenttype", "application/json"),
        ] {
            assert_eq!(body[attribute], expected, "{body}");
        }
        let attributes = body.as_object().unwrap().len();
        assert_eq!(attributes, 8, "those and data: {body}");
    }

    #[test]
    fn chats_get_the_sentence_the_command_and_the_link_and_no_foreign_markup() {
        let mut event = began();
        event.data["sentence"] = json!("a <!channel> & b");
        let (_, body) = made("slack", &event);
        let text = body["text"].as_str().unwrap();
        assert!(text.contains("a &lt;!channel&gt; &amp; b"), "{text}");
        assert!(text.contains("<https://page/#failover/m1-x|"), "{text}");
        let (_, body) = made("teams", &event);
        let card = &body["attachments"][0]["content"];
        assert_eq!(card["body"][1]["text"], "a <!channel> & b");
        assert_eq!(card["actions"][0]["url"], "https://page/#failover/m1-x");
        event.data["link"] = json!("");
        let (_, body) = made("teams", &event);
        assert_eq!(body["attachments"][0]["content"]["actions"], json!([]));
    }

    #[test]
    fn a_card_has_no_link_that_an_agent_put_into_the_state_of_its_cluster() {
        let mut event = began();
        event.data["sentence"] = json!("not ready ([sign in again](https://evil.example))");
        let (_, body) = made("teams", &event);
        let text = &body["attachments"][0]["content"]["body"][1]["text"];
        assert!(
            !text.as_str().unwrap().contains("[sign in again](https:"),
            "a text block is Markdown: {text}"
        );
    }

    #[test]
    fn a_template_says_what_it_likes_within_its_bounds() {
        let custom = |template: &str, kind: &str| {
            receiver(&json!({
                "format": "template", "template": template, "contentType": kind,
            }))
        };
        let good = custom("{{ phase }} {{ data.workloads.affected }}", "text/plain");
        let (kind, text) = body(&good, &began()).unwrap();
        assert_eq!((kind.as_str(), &text[..]), ("text/plain", &b"began 3"[..]));
        let good = custom("{\"text\": {{ sentence | tojson }}}", "application/json");
        check(&good).unwrap();
        assert!(body(&good, &left_out()).is_ok());
        let good = "{{ data.cause.command | tojson }}{{ data.workloads.affected }}";
        check(&custom(good, "text/plain")).unwrap();
        let (_, text) = body(&custom(good, "text/plain"), &began()).unwrap();
        assert_eq!(text, b"null3", "what is absent now is empty");
        for (template, part) in [
            ("{\"text\": \"{{ sentence }}\"}", "tojson"),
            ("{{ sentnce }}", "undefined"),
            ("{{ sentence", "template"),
            (
                "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
                "fuel",
            ),
            (
                "{% for i in range(9999) %}0123456789{% endfor %}",
                "65536 bytes",
            ),
        ] {
            let error = check(&custom(template, "application/json")).unwrap_err();
            assert!(error.contains(part), "{template}: {error}");
        }
    }
}
