//! A history in short lines: who did what.

use std::fmt::Write as _;

use crate::history::{Entry, Event, Outcome};

/// Kinds of which a reader wants to know nothing.
const DULL: [&str; 3] = ["leases", "events", "nodes"];

/// Returns one line about an entry; `None` for what no reader needs.
pub fn line(entry: &Entry) -> Option<String> {
    let mut line = format!("{:.3} ", entry.at);
    match &entry.event {
        Event::World(world) => {
            let world = serde_json::to_value(world).unwrap_or_default();
            let _ = write!(line, "* {world}");
        }
        Event::Request(request) => {
            if DULL.contains(&request.resource.plural.as_str()) {
                return None;
            }
            let verb = serde_json::to_value(request.verb).unwrap_or_default();
            let verb = verb.as_str().unwrap_or_default().to_owned();
            let _ = write!(line, "{}: {verb} {}", request.actor, request.key());
            if !request.resource.subresource.is_empty() {
                let _ = write!(line, " {}", request.resource.subresource);
            }
            match request.outcome {
                Outcome::Committed => {}
                other => {
                    let other = serde_json::to_value(other).unwrap_or_default();
                    let _ = write!(line, " {other}");
                }
            }
            if !request.answered {
                line.push_str(" (answer lost)");
            }
        }
    }
    Some(line)
}
