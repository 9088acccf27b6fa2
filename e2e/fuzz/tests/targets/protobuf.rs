//! Kubernetes' protobuf encoding.

use muster_fuzz::{Fuzz, Random};
use muster_shared::capacity::{NodeView, PodView};
use muster_shared::protobuf::{Content, FromProtobuf, Malformed, entry, fields, message};

use crate::MEMORY;

/// Writes a number as protobuf does.
fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Makes messages within messages.
fn nested(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    if random.once_in(8) {
        out.extend(b"k8s\0");
    }
    for _ in 0..random.below(5) {
        let wire = *random.one_of(&[0, 0, 1, 2, 2, 2, 2, 5, 3, 7]);
        let field = *random.one_of(&[1, 2, 3, 5, 6, 10, 20, 32, 40, 1 << 28]);
        varint(field << 3 | wire, &mut out);
        match wire {
            0 => {
                let bits = random.bits() >> random.below(64);
                varint(bits, &mut out);
            }
            1 => out.extend([0; 8]),
            5 => out.extend([0; 4]),
            2 => {
                let inner = if random.once_in(3) {
                    b"100m".to_vec()
                } else {
                    nested(random)
                };
                varint(inner.len() as u64, &mut out);
                out.extend(inner);
            }
            _ => {}
        }
        if out.len() > 400 {
            break;
        }
    }
    out
}

#[test]
fn a_message_is_read_field_by_field_as_it_is_written() {
    Fuzz::new("protobuf")
        .words(&[
            "k8s\u{0}",
            "\u{a}\u{1}",
            "\u{12}\u{2}hi",
            "\u{8}\u{1}",
            "\u{7f}",
        ])
        .generator(nested)
        .executions(20_000)
        .memory(MEMORY)
        .run(|bytes| {
            let mut written = Vec::new();
            let mut read = Vec::new();
            let mut failed = None;
            for field in fields(bytes) {
                assert_eq!(failed, None, "a field follows an error");
                match field {
                    Ok((number, content)) => {
                        match content {
                            Content::Number(value) => {
                                varint(number << 3, &mut written);
                                varint(value, &mut written);
                            }
                            Content::Bytes(bytes) => {
                                varint(number << 3 | 2, &mut written);
                                varint(bytes.len() as u64, &mut written);
                                written.extend(bytes);
                            }
                            Content::Fixed => {
                                varint(number << 3 | 5, &mut written);
                                written.extend([0; 4]);
                            }
                        }
                        read.push((number, content));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let again: Result<Vec<_>, Malformed> = fields(&written).collect();
            assert_eq!(again.as_ref(), Ok(&read));
            let whole = message(bytes).is_ok();
            let (pod, node) = (
                PodView::from_protobuf(bytes),
                NodeView::from_protobuf(bytes),
            );
            if failed.is_some() {
                assert!(
                    pod.is_err() && node.is_err(),
                    "a part of an object is taken for all of it"
                );
            }
            let entry = entry(bytes).map(|(_, value)| value.is_some());
            format!(
                "{whole} {failed:?} {:?} {:?} {entry:?} {}",
                pod.err(),
                node.err(),
                read.len()
            )
        });
}
