//! Functions of Rust that the prelude builds the sandbox from.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mlua::{Error as LuaError, Function, Lua, MultiValue, Table, Value};

use super::{
    convert::{self, Marks, Reader},
    date, text,
};
use crate::lua::{kube, limits::Budget, thirdparty};

/// Message of Lua when memory runs out.
pub(super) const NO_MEMORY: &str = "not enough memory";
/// Chunk name of all scripts, which their messages begin with.
pub(super) const SCRIPT: &str = "script";
/// Frames that are searched for the line of a script.
const FRAMES: usize = 64;

/// Entry points of the sandbox.
pub(super) struct Sandbox {
    /// Runs a script and calls a function: `run(script, require, name, first, second)`.
    pub(super) run: Function,
    /// Runs a script and finds a function: `define(script, require, name)`.
    pub(super) define: Function,
    /// `require` of a customization, which knows `kube`.
    pub(super) require: Function,
    /// `require` of the built-in rules, which knows `rules`, too.
    pub(super) require_built_in: Function,
}

/// Builds the sandbox in a new state. `missing` is set when a script lacks its function.
pub(super) fn build(
    lua: &Lua,
    marks: &Marks,
    budget: &Arc<Budget>,
    missing: &Arc<AtomicBool>,
) -> mlua::Result<Sandbox> {
    let natives = lua.create_table()?;
    text::install(lua, &natives, budget)?;
    date::install(lua, &natives)?;
    limits(lua, &natives, budget)?;
    failures(lua, &natives, marks, budget, missing)?;
    let prelude = lua
        .load(include_str!("prelude.lua"))
        .set_name("=sandbox")
        .set_mode(mlua::chunk::ChunkMode::Text);
    let (run, define, environment): (Function, Function, Function) = prelude.call(natives)?;

    let functions = kube::functions(lua, marks, budget)?;
    let modules = move |lua: &Lua, name: &str| -> mlua::Result<Option<Table>> {
        if name != "kube" {
            return Ok(None);
        }
        // A copy, so that a script cannot change that of the next one.
        lua.create_table_from(functions.iter().map(|(name, call)| (*name, call)))
            .map(Some)
    };
    let absent = |name: &str| {
        let message = format!("module {name:?} is not available to scripts, only \"kube\" is");
        LuaError::RuntimeError(message)
    };
    let kube = modules.clone();
    let require = lua
        .create_function(move |lua, name: String| kube(lua, &name)?.ok_or_else(|| absent(&name)))?;
    let globals: Table = environment.call(&require)?;
    let rules: Table = lua
        .load(thirdparty::COMMON)
        .set_name("=rules")
        .set_mode(mlua::chunk::ChunkMode::Text)
        .set_environment(globals)
        .eval()?;
    let require_built_in = lua.create_function(move |lua, name: String| {
        if name == "rules" {
            return Ok(rules.clone());
        }
        modules(lua, &name)?.ok_or_else(|| absent(&name))
    })?;
    Ok(Sandbox {
        run,
        define,
        require,
        require_built_in,
    })
}

fn limits(lua: &Lua, natives: &Table, budget: &Arc<Budget>) -> mlua::Result<()> {
    let shared = Arc::clone(budget);
    let charge = lua.create_function(move |_, instructions: u64| shared.spend(instructions))?;
    natives.raw_set("charge", charge)?;
    let shared = Arc::clone(budget);
    // Results of a protected call: a limit goes on, and errors of Rust become texts.
    let check = lua.create_function(move |lua, mut results: MultiValue| {
        if let (Some(Value::Boolean(false)), Some(error)) = (results.front(), results.get(1)) {
            if out_of_memory(error) {
                shared.exceed_memory();
            }
            if let Value::Error(error) = error {
                let text = Value::String(lua.create_string(message(error))?);
                if let Some(slot) = results.get_mut(1) {
                    *slot = text;
                }
            }
        }
        shared.within()?;
        Ok(results)
    })?;
    natives.raw_set("check", check)
}

fn failures(
    lua: &Lua,
    natives: &Table,
    marks: &Marks,
    budget: &Arc<Budget>,
    missing: &Arc<AtomicBool>,
) -> mlua::Result<()> {
    let flag = Arc::clone(missing);
    let missing = lua.create_function(move |_, ()| {
        flag.store(true, Ordering::Relaxed);
        Err::<(), _>(LuaError::RuntimeError("no such function".to_owned()))
    })?;
    natives.raw_set("missing", missing)?;
    let (shared, marks) = (Arc::clone(budget), marks.clone());
    let handler = lua.create_function(move |lua, error: Value| {
        if out_of_memory(&error) {
            shared.exceed_memory();
        }
        let text = match &error {
            Value::String(text) => text.to_string_lossy(),
            Value::Error(error) => message(error),
            other => raised(other, &marks, &shared),
        };
        let (line, text) = located(&text).unwrap_or_else(|| (line_of_script(lua), &text));
        Ok(format!("{line}\n{}", convert::brief(text)))
    })?;
    natives.raw_set("handler", handler)
}

/// Splits `script:12: text`; the line of another chunk says nothing to the author of a script.
pub(super) fn located(text: &str) -> Option<(u32, &str)> {
    let rest = text.strip_prefix(SCRIPT)?.strip_prefix(':')?;
    let (line, rest) = rest.split_once(": ")?;
    Some((line.parse().ok()?, rest))
}

/// Returns the line of the innermost function of a script that is running.
fn line_of_script(lua: &Lua) -> u32 {
    let mut frames = (0..FRAMES).map_while(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let is_script = source.short_src.as_deref() == Some(SCRIPT);
            frame.current_line().filter(|_| is_script)
        })
    });
    let line = frames.find_map(|line| line);
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

/// Splits what the handler returned.
pub(super) fn line_and_message(text: &str) -> (u32, &str) {
    let split = text.split_once('\n');
    let split = split.and_then(|(line, text)| Some((line.parse().ok()?, text)));
    let (line, text) = split.unwrap_or((0, text));
    // A message of the sandbox has the line of the sandbox.
    let mut own = ["sandbox:", "rules:"].iter();
    let own = own.find_map(|chunk| text.strip_prefix(chunk));
    let text = own
        .and_then(|rest| rest.split_once(": "))
        .map_or(text, |(_, rest)| rest);
    (line, text)
}

/// Returns, in words, what a script raised that is no text.
fn raised(value: &Value, marks: &Marks, budget: &Budget) -> String {
    let shown =
        Reader::new(marks, budget, &[]).read("error", value, &serde_json::Value::Array(Vec::new()));
    match shown {
        Ok(json) => format!("the script raised {}", convert::quoted(&json)),
        Err(_) => format!("the script raised {}", convert::a_type(value)),
    }
}

fn out_of_memory(error: &Value) -> bool {
    match error {
        Value::String(text) => text.as_bytes() == NO_MEMORY.as_bytes(),
        Value::Error(error) => is_memory(error),
        _ => false,
    }
}

/// Returns whether an error says at its root that memory ran out.
pub(super) fn is_memory(error: &LuaError) -> bool {
    match error {
        LuaError::MemoryError(_) => true,
        LuaError::CallbackError { cause, .. } | LuaError::BadArgument { cause, .. } => {
            is_memory(cause)
        }
        _ => false,
    }
}

/// Returns the message of an error, without the trace.
pub(super) fn message(error: &LuaError) -> String {
    match error {
        LuaError::CallbackError { cause, .. } => message(cause),
        LuaError::RuntimeError(text) | LuaError::SyntaxError { message: text, .. } => {
            let end = text.find("\nstack traceback:").unwrap_or(text.len());
            text[..end].to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_the_places_that_no_author_of_a_script_knows() {
        for (text, expected) in [
            (
                "3\nattempt to call a nil value",
                (3, "attempt to call a nil value"),
            ),
            ("7\nsandbox:80: bad argument", (7, "bad argument")),
            ("not enough memory", (0, "not enough memory")),
        ] {
            assert_eq!(line_and_message(text), expected);
        }
        assert_eq!(located("script:12: a: b"), Some((12, "a: b")));
        assert_eq!(located("sandbox:12: a"), None);
    }
}
