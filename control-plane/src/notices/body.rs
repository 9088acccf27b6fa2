//! Bodies of requests: CloudEvents, messages for chats, and what a template of an operator makes.

use std::io::{self, Write};

use jiff::Timestamp;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior};
use serde_json::json;

use super::due::Notice;
use super::event::{self, Event, Sender};
use crate::settings::notice_receivers::{Format, Phase, Receiver, Severity};
use muster_shared::api::failover_record::{Failover, FailoverSpec, FailoverStatus};

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
        Format::Template => {
            let bytes = template(&receiver.template, event)?;
            let kind = receiver.content_type.clone();
            if kind.starts_with("application/json") {
                serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(|error| {
                    format!(
                        "template makes no JSON ({error}): write {{{{ sentence | tojson }}}} without quotes"
                    )
                })?;
            }
            return Ok((kind, bytes));
        }
    };
    Ok((kind, text.into_bytes()))
}

/// Checks the template of a receiver by an event whose texts have all that has to be quoted.
///
/// # Errors
/// A text that names the field.
pub fn check(receiver: &Receiver) -> Result<(), String> {
    let mut record = Failover::new("sample", FailoverSpec::default());
    let mut status = FailoverStatus::default();
    "a \"quoted\" \\ text\nof two lines".clone_into(&mut status.cause.message);
    record.status = Some(status);
    let notice = Notice {
        phase: Phase::Began,
        number: 1,
        time: None,
    };
    let sender = Sender {
        fleet: "sample".to_owned(),
        page: "https://example.com/".to_owned(),
    };
    let now = Timestamp::UNIX_EPOCH;
    let one = event::event(&sender, &record, &notice, now);
    body(receiver, &one)?;
    let other = event::left_out(&sender, &[("a", "b")], Severity::Info, (String::new(), now));
    body(receiver, &other).map(|_| ())
}

/// Returns a message in the notation of Slack. What could be a link or a mention is escaped.
fn slack(event: &Event) -> serde_json::Value {
    let escape = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let mark = match event.severity {
        Severity::Critical => ":red_circle:",
        Severity::Warning => ":large_orange_circle:",
        Severity::Info => ":large_blue_circle:",
    };
    let mut text = format!(
        "{mark} *{}*: {}\n`{}`",
        escape(&event.source),
        escape(&event.sentence),
        escape(&event.command)
    );
    if !event.link.is_empty() {
        text = format!("{text} <{}|the whole story>", escape(&event.link));
    }
    json!({ "text": text, "unfurl_links": false })
}

/// Returns an adaptive card, as the workflows of Teams take it.
fn teams(event: &Event) -> serde_json::Value {
    let colour = match event.severity {
        Severity::Critical => "attention",
        Severity::Warning => "warning",
        Severity::Info => "default",
    };
    let block = |text: &str| json!({ "type": "TextBlock", "text": text, "wrap": true });
    let mut title = block(&event.source);
    title["weight"] = json!("bolder");
    title["color"] = json!(colour);
    let mut actions = Vec::new();
    if !event.link.is_empty() {
        actions.push(json!({
            "type": "Action.OpenUrl", "title": "The whole story", "url": event.link,
        }));
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [title, block(&event.sentence), block(&event.command)],
                "actions": actions,
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

fn template(text: &str, event: &Event) -> Result<Vec<u8>, String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let failed = |error: minijinja::Error| match std::error::Error::source(&error) {
        Some(cause) => format!("template: {error}: {cause}"),
        None => format!("template: {error}"),
    };
    let template = environment.template_from_str(text).map_err(failed)?;
    let context = json!({
        "id": event.id,
        "type": event.kind,
        "fleet": event.source,
        "cluster": event.subject,
        "time": event.time,
        "phase": event.data["phase"],
        "severity": event.severity.name(),
        "sentence": event.sentence,
        "link": event.link,
        "command": event.command,
        "data": event.data,
    });
    let mut bytes = Bounded(Vec::new());
    template
        .render_captured_to(Value::from(Serde(&context)), &mut bytes)
        .map_err(failed)?;
    Ok(bytes.0)
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
        receivers.parse().unwrap().remove(0)
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
        event.sentence = "a <!channel> & b".to_owned();
        let (_, body) = made("slack", &event);
        let text = body["text"].as_str().unwrap();
        assert!(text.contains("a &lt;!channel&gt; &amp; b"), "{text}");
        assert!(text.contains("<https://page/#failover/m1-x|"), "{text}");
        let (_, body) = made("teams", &event);
        let card = &body["attachments"][0]["content"];
        assert_eq!(card["body"][1]["text"], "a <!channel> & b");
        assert_eq!(card["actions"][0]["url"], "https://page/#failover/m1-x");
        event.link = String::new();
        let (_, body) = made("teams", &event);
        assert_eq!(body["attachments"][0]["content"]["actions"], json!([]));
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
