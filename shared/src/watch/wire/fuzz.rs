//! Lists and watches of any bytes, against a reader of whole texts.

use k8s_openapi::api::core::v1::ConfigMap;
use muster_fuzz::Fuzz;
use serde_json::Value;

use super::Line;
use super::json::{line, list_meta, status};
use super::split::{Found, Splitter};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"items\"",
    "\"metadata\"",
    "\"kind\"",
    "\"a\"",
    "\"\\\"\"",
    "\"\\\\\"",
    "null",
    "true",
    "1",
    "-1.5e3",
    " ",
    "\n",
    "{}",
    "[]",
    "{\"items\":[",
    "\"x\":",
    "]}",
];

/// Returns what is found in a text that comes in pieces; `None` where it is refused.
fn split(text: &[u8], length: usize) -> Option<(Vec<Vec<u8>>, bool)> {
    let mut splitter = Splitter::new(1 << 16);
    let (mut items, mut ended, mut steps) = (Vec::new(), false, 0);
    for mut piece in text.chunks(length) {
        while !piece.is_empty() {
            let (used, found) = splitter.read(piece).ok()?;
            piece = &piece[used..];
            steps += 1;
            assert!(steps <= 2 * text.len() + 1, "reading goes nowhere");
            match found {
                Some(Found::Item) => items.push(splitter.taken().to_vec()),
                Some(Found::End) => ended = true,
                Some(Found::Metadata) | None => {}
            }
        }
    }
    Some((items, ended))
}

#[test]
fn a_list_in_pieces_has_the_items_of_the_whole() {
    Fuzz::new("list")
        .words(WORDS)
        .executions(10_000)
        .longest(400)
        .run(|text| {
            let whole = split(text, text.len().max(1));
            for length in [1, 2, 7] {
                assert_eq!(split(text, length), whole, "pieces of {length}");
            }
            let Ok(document) = serde_json::from_slice::<Value>(text) else {
                return format!("no JSON {}", whole.is_some());
            };
            let spelled = text.contains(&b'\\');
            let count = text.windows(7).filter(|it| it == b"\"items\"").count();
            let items = document.get("items");
            match (items, &whole) {
                // Named twice, or within another value, or spelled in another way.
                _ if spelled || count > 1 => {}
                (Some(Value::Array(items)), Some((found, true))) => {
                    let read = |item: &Vec<u8>| serde_json::from_slice::<Value>(item).unwrap();
                    let found: Vec<Value> = found.iter().map(read).collect();
                    assert_eq!(&found, items);
                }
                (Some(Value::Null), Some((found, true))) => assert_eq!(found.len(), 0),
                (Some(Value::Array(_) | Value::Null), other) => panic!("{other:?}"),
                (_, found) => assert!(found.as_ref().is_none_or(|(_, ended)| !ended)),
            }
            format!("JSON {} {count}", whole.is_some())
        });
}

#[test]
fn a_line_of_a_watch_is_read_or_refused() {
    Fuzz::new("watch-line")
        .words(&[
            "{", "}", ",", ":", "\"type\"", "\"object\"", "\"ADDED\"", "\"DELETED\"", "\"BOOKMARK\"",
            "\"ERROR\"", "\"metadata\"", "\"name\"", "\"resourceVersion\"", "\"annotations\"", "\"code\"",
            "\"7\"", "410", "-1", "65536", "null", "\"k8s.io/initial-events-end\"",
        ])
        .seed(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"9"},"data":5}}"#)
        .seed(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","annotations":{}}}}"#)
        .seed(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#)
        .seed(r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"a":"b"}}}"#)
        .executions(5_000)
        .run(|bytes| {
            let meta = list_meta(bytes);
            let (code, _) = status(bytes);
            let kind = match line::<ConfigMap>(bytes) {
                Ok(Line::Object { is_deleted: true, .. }) => "deleted",
                Ok(Line::Object { .. }) => "applied",
                Ok(Line::Bookmark { .. }) => "bookmark",
                Ok(Line::Error { .. }) => "error",
                Ok(Line::Rejected(rejected)) if rejected.deleted => "rejected, deleted",
                Ok(Line::Rejected(_)) => "rejected",
                Err(_) => "refused",
            };
            format!("{kind} {} {}", meta.is_ok(), code == 0)
        });
}
