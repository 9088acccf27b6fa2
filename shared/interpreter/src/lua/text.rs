//! The string functions that need a budget, for the prelude.

use std::sync::Arc;

use mlua::{Error as LuaError, Lua, LuaString, MultiValue, Table, Value};

use super::pattern::{self, Capture, Match};
use crate::lua::limits::Budget;

/// Longest text that a string function takes, as in Karmada.
const MAX_TEXT: usize = 1_000_000;

/// Adds `find`, `match`, `step` (of `gmatch`) and `charge_text` to the natives of the prelude.
pub(super) fn install(lua: &Lua, natives: &Table, budget: &Arc<Budget>) -> mlua::Result<()> {
    let shared = Arc::clone(budget);
    let find = lua.create_function(
        move |lua, (text, pattern, from, plain): (LuaString, LuaString, Option<f64>, bool)| {
            let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
            let Some(from) = start(&text, &pattern, from, &shared)? else {
                return Ok(MultiValue::from_iter([Value::Nil]));
            };
            if plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)) {
                let Some(at) = memchr::memmem::find(&text[from..], &pattern) else {
                    return Ok(MultiValue::from_iter([Value::Nil]));
                };
                let start = from + at;
                return Ok(MultiValue::from_iter([
                    index(start + 1),
                    index(start + pattern.len()),
                ]));
            }
            let Some(found) = pattern::find(&text, &pattern, from, &shared)? else {
                return Ok(MultiValue::from_iter([Value::Nil]));
            };
            let mut values = vec![index(found.start + 1), index(found.end)];
            captures(lua, &text, &found, &mut values)?;
            Ok(MultiValue::from_iter(values))
        },
    )?;
    natives.raw_set("find", find)?;

    for (name, steps) in [("match", false), ("step", true)] {
        let shared = Arc::clone(budget);
        let function = lua.create_function(
            move |lua, (text, pattern, from): (LuaString, LuaString, Option<f64>)| {
                let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
                let nothing = MultiValue::from_iter([Value::Nil]);
                let Some(from) = start(&text, &pattern, from, &shared)? else {
                    return Ok(nothing);
                };
                // A pattern that is anchored matches at the beginning alone, as in Karmada.
                if steps && from > 0 && pattern.starts_with(b"^") {
                    return Ok(nothing);
                }
                let Some(found) = pattern::find(&text, &pattern, from, &shared)? else {
                    return Ok(nothing);
                };
                let mut values = Vec::new();
                if steps {
                    // An empty match is stepped over, or it would be found for ever.
                    let next = found.end + usize::from(found.end == found.start) + 1;
                    values.push(index(next));
                }
                whole_or_captures(lua, &text, &found, &mut values)?;
                Ok(MultiValue::from_iter(values))
            },
        )?;
        natives.raw_set(name, function)?;
    }

    let shared = Arc::clone(budget);
    let charge = lua.create_function(move |_, length: usize| charge(length, &shared))?;
    natives.raw_set("charge_text", charge)
}

/// Spends the budget of one pass over a text; an error for one that is too long.
fn charge(length: usize, budget: &Budget) -> mlua::Result<()> {
    if length > MAX_TEXT {
        return Err(LuaError::RuntimeError(format!(
            "a text of {length} bytes is longer than the {MAX_TEXT} that string functions take"
        )));
    }
    budget.spend(length as u64 / 64)
}

/// Returns the offset at which a search begins; `None` if that is behind the end.
fn start(
    text: &[u8],
    pattern: &[u8],
    from: Option<f64>,
    budget: &Budget,
) -> mlua::Result<Option<usize>> {
    charge(text.len(), budget)?;
    charge(pattern.len(), budget)?;
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "as Lua does")]
    let from = match from.map_or(1, |from| from as i64) {
        back if back < 0 => (length + back).max(0),
        from => (from - 1).max(0),
    };
    // Lua 5.1 searches from the end where the start is behind it; `step` must end there.
    Ok(usize::try_from(from)
        .ok()
        .filter(|from| *from <= text.len()))
}

fn index(at: usize) -> Value {
    Value::Integer(i64::try_from(at).unwrap_or(i64::MAX))
}

fn captures(lua: &Lua, text: &[u8], found: &Match, values: &mut Vec<Value>) -> mlua::Result<()> {
    for capture in &found.captures {
        values.push(match capture {
            Capture::Text(start, end) => Value::String(lua.create_string(&text[*start..*end])?),
            Capture::Position(at) => index(*at),
        });
    }
    Ok(())
}

fn whole_or_captures(
    lua: &Lua,
    text: &[u8],
    found: &Match,
    values: &mut Vec<Value>,
) -> mlua::Result<()> {
    if found.captures.is_empty() {
        let whole = lua.create_string(&text[found.start..found.end])?;
        values.push(Value::String(whole));
    }
    captures(lua, text, found, values)
}
