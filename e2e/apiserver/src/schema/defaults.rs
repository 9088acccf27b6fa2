//! Defaults of the built-in kinds. Those that hold wherever a type is used are the table
//! `builtin.defaults`, which becomes part of the schema; those that depend on other fields are
//! code, in `conditional.rs`.

use super::node::{Node, Shape};

/// Returns the table: type, field, default as JSON.
fn table() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = include_str!("builtin.defaults").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (owner, rest) = line.split_once(' ')?;
            let (field, default) = rest.split_once(' ')?;
            Some((owner, field, default))
        })
}

/// Writes the table into the arena of built-in types.
pub fn install(nodes: &mut [Node]) {
    for node in nodes {
        let Some(name) = node.name.clone() else {
            continue;
        };
        let Shape::Object { fields, .. } = &mut node.shape else {
            continue;
        };
        for (_, field, default) in table().filter(|(owner, ..)| *owner == &*name) {
            if let Some(field) = fields.get_mut(field) {
                field.default = serde_json::from_str(default).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::schema::builtin::ARENA;

    #[test]
    fn every_line_of_the_table_names_a_field_and_holds_json() {
        for (owner, field, default) in table() {
            let known = ARENA.nodes.iter().any(|node| {
                node.name.as_deref() == Some(owner)
                    && matches!(&node.shape, Shape::Object { fields, .. } if fields.contains_key(field))
            });
            assert!(known, "{owner}.{field}");
            serde_json::from_str::<Value>(default).expect(default);
        }
    }
}
