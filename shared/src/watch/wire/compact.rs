//! Protobuf encoding of lists and watches, for kinds of which a few fields are read.
//!
//! A list is an object like any other; its envelope is read as it arrives. A watch is a sequence of
//! frames, each preceded by its length in four bytes; a frame is a bare `WatchEvent` around an
//! object with its envelope. Field numbers are those of apimachinery's `generated.proto`.

use super::{INITIAL_EVENTS_END, Line, ListMeta};
use crate::protobuf::{Malformed, entry, fields, message};

/// Reads an object of a kind from its message.
pub(in crate::watch) type Decode<K> = fn(&[u8]) -> Result<K, Malformed>;

/// Returns what the message of a list's metadata says.
pub(in crate::watch) fn list_meta(metadata: &[u8]) -> Result<ListMeta, Malformed> {
    let mut meta = ListMeta::default();
    for field in fields(metadata) {
        match field? {
            (2, content) => meta.resource_version = set(content.text(2)?),
            (3, content) => meta.continue_token = set(content.text(3)?),
            _ => {}
        }
    }
    Ok(meta)
}

pub(in crate::watch) fn frame<K>(frame: &[u8], decode: Decode<K>) -> Result<Line<K>, Malformed> {
    let (mut kind, mut raw) = (String::new(), &[][..]);
    for field in fields(frame) {
        match field? {
            (1, content) => kind = content.text(1)?,
            (2, content) => {
                for field in fields(content.bytes(2)?) {
                    if let (1, content) = field? {
                        raw = content.bytes(1)?;
                    }
                }
            }
            _ => {}
        }
    }
    if kind == "ERROR" {
        let (code, message) = status(raw)?;
        return Ok(Line::Error { code, message });
    }
    let object = message(raw)?;
    if kind == "BOOKMARK" {
        return bookmark(object);
    }
    Ok(Line::Object {
        object: decode(object)?,
        is_deleted: kind == "DELETED",
    })
}

/// Reads a bookmark, which is an object of the watched kind with nothing but metadata; that is
/// field 1 of every kind.
fn bookmark<K>(object: &[u8]) -> Result<Line<K>, Malformed> {
    let (mut resource_version, mut ends_initial_list) = (String::new(), false);
    for field in fields(object) {
        let (1, metadata) = field? else { continue };
        for field in fields(metadata.bytes(1)?) {
            match field? {
                (6, content) => resource_version = content.text(6)?,
                (12, content) => {
                    ends_initial_list |= entry(content.bytes(12)?)?.0 == INITIAL_EVENTS_END;
                }
                _ => {}
            }
        }
    }
    Ok(Line::Bookmark {
        resource_version,
        ends_initial_list,
    })
}

/// Reads the code and message of a `Status`.
pub(in crate::watch) fn status(body: &[u8]) -> Result<(u16, String), Malformed> {
    let (mut code, mut text) = (0, String::new());
    for field in fields(message(body)?) {
        match field? {
            (3, content) => text = content.text(3)?,
            (6, crate::protobuf::Content::Number(number)) => {
                code = u16::try_from(number).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok((code, text))
}

fn set(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
pub(in crate::watch) mod tests {
    use super::*;
    use crate::capacity::PodView;
    use crate::protobuf::FromProtobuf;

    pub(in crate::watch) fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 128 && number < 16);
        [&[number << 3 | 2, length], content].concat()
    }

    fn object(message: &[u8]) -> Vec<u8> {
        [b"k8s\0".to_vec(), field(2, message)].concat()
    }

    fn event(kind: &str, object: &[u8]) -> Vec<u8> {
        [field(1, kind.as_bytes()), field(2, &field(1, object))].concat()
    }

    fn line(kind: &str, message: &[u8]) -> Result<Line<PodView>, Malformed> {
        frame(&event(kind, &object(message)), PodView::from_protobuf)
    }

    #[test]
    fn frames_are_told_apart() {
        let pod = field(1, &[field(1, b"a"), field(6, b"9")].concat());
        assert!(matches!(line("ADDED", &pod),
            Ok(Line::Object { object, is_deleted: false }) if object.metadata.resource_version.as_deref() == Some("9")));
        assert!(matches!(line("DELETED", &pod),
            Ok(Line::Object { object, is_deleted: true }) if object.metadata.name.as_deref() == Some("a")));
        let end = [field(1, b"k8s.io/initial-events-end"), field(2, b"true")].concat();
        let metadata = field(1, &[field(6, b"9"), field(12, &end)].concat());
        assert!(matches!(line("BOOKMARK", &metadata),
            Ok(Line::Bookmark { ends_initial_list: true, resource_version }) if resource_version == "9"));
        let expired = [field(3, b"too old"), vec![6 << 3, 0x9a, 0x03]].concat();
        assert!(matches!(line("ERROR", &expired),
            Ok(Line::Error { code: 410, message }) if message == "too old"));
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        let cut = frame::<PodView>(&event("ADDED", b"{}"), PodView::from_protobuf);
        assert!(matches!(cut, Err(Malformed::Prefix)));
        assert!(matches!(
            line("ADDED", &[0x0a, 9]),
            Err(Malformed::Truncated)
        ));
    }
}
