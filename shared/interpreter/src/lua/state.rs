//! One Lua state: scripts that it has compiled, and a call with its limits.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use mlua::{
    Function, HookTriggers, IntoLua, Lua, LuaOptions, StdLib, Value as LuaValue, VmState,
    chunk::ChunkMode,
};
use serde_json::Value;

use super::{
    convert::{self, Marks, Reader},
    sandbox::{self, Sandbox, is_memory, line_and_message},
};
use crate::lua::{
    error::Error,
    limits::{Budget, Limit, Limits},
    script::Script,
};

/// Instructions between two checks of the limits.
const INSTRUCTIONS: u32 = 250;
/// Most scripts that a state keeps compiled.
const MAX_COMPILED: usize = 512;
/// Most bytes that a state keeps between two calls.
const MAX_KEPT: usize = 8 << 20;

/// Argument of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    /// Nothing.
    Nil,
    /// An object of the API.
    Object(&'a Value),
    /// A list; nil where it is empty, as Go's lists without an entry are.
    List(&'a [Value]),
    /// A number.
    Number(i64),
}

/// A Lua state with the sandbox.
pub(crate) struct State {
    lua: Lua,
    marks: Marks,
    sandbox: Sandbox,
    budget: Arc<Budget>,
    missing: Arc<AtomicBool>,
    compiled: HashMap<u64, Function>,
}

impl State {
    pub(crate) fn new(limits: Limits) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(libraries, options)?;
        let budget = Arc::new(Budget::new(limits));
        let missing = Arc::new(AtomicBool::new(false));
        let marks = Marks::new(&lua)?;
        let sandbox = sandbox::build(&lua, &marks, &budget, &missing)?;
        lua.set_memory_limit(limits.memory)?;
        let shared = Arc::clone(&budget);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_hook(triggers, move |_, _| {
            shared.spend(u64::from(INSTRUCTIONS))?;
            Ok(VmState::Continue)
        })?;
        Ok(Self {
            lua,
            marks,
            sandbox,
            budget,
            missing,
            compiled: HashMap::new(),
        })
    }

    /// Calls a function of a script.
    pub(crate) fn call(
        &mut self,
        script: &Script,
        function: &str,
        arguments: [Argument<'_>; 2],
    ) -> Result<(LuaValue, LuaValue), Error> {
        self.begin();
        let chunk = self.compiled(script)?;
        let [first, second] = arguments;
        let called = (|| {
            let (first, second) = (self.argument(first)?, self.argument(second)?);
            let require = self.require(script);
            self.sandbox
                .run
                .call::<(bool, LuaValue, LuaValue)>((chunk, require, function, first, second))
        })();
        match called {
            Ok((true, first, second)) => self.within(script).map(|()| (first, second)),
            Ok((false, error, _)) => Err(self.failure(script, &error)),
            Err(error) => Err(self.fault(script, &error)),
        }
    }

    /// Runs a script and returns whether it defines a function.
    pub(crate) fn define(&mut self, script: &Script, function: &str) -> Result<(), Error> {
        self.begin();
        let chunk = self.compiled(script)?;
        let define = &self.sandbox.define;
        match define.call::<(bool, LuaValue)>((chunk, self.require(script), function)) {
            Ok((true, _)) => self.within(script),
            Ok((false, error)) => Err(self.failure(script, &error)),
            Err(error) => Err(self.fault(script, &error)),
        }
    }

    /// Reads what a function returned. An empty table is what stands at its place in one of the
    /// references.
    pub(crate) fn reader<'a>(&'a self, references: &'a [&'a Value]) -> Reader<'a> {
        Reader::new(&self.marks, &self.budget, references)
    }

    /// Returns the limit that the call has exceeded.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.budget.limit()
    }

    /// Returns whether the state can be used again. Call when all values of the call are gone.
    pub(crate) fn settle(&self) -> bool {
        if self.budget.limit().is_some() {
            return false;
        }
        if self.lua.used_memory() > MAX_KEPT {
            return self.lua.gc_collect().is_ok() && self.lua.used_memory() <= MAX_KEPT;
        }
        true
    }

    fn begin(&self) {
        self.budget.start();
        self.missing.store(false, Ordering::Relaxed);
    }

    fn compiled(&mut self, script: &Script) -> Result<Function, Error> {
        if let Some(chunk) = self.compiled.get(&script.id()) {
            return Ok(chunk.clone());
        }
        let name = format!("={}", sandbox::SCRIPT);
        let chunk = self
            .lua
            .load(script.text())
            .set_name(name)
            // A chunk of bytecode could do anything.
            .set_mode(ChunkMode::Text)
            .into_function()
            .map_err(|error| self.compiler_error(script, &error))?;
        // Scripts that customizations have no longer go this way, too.
        if self.compiled.len() >= MAX_COMPILED {
            self.compiled.clear();
        }
        self.compiled.insert(script.id(), chunk.clone());
        Ok(chunk)
    }

    fn compiler_error(&self, script: &Script, error: &mlua::Error) -> Error {
        if is_memory(error) {
            self.budget.exceed_memory();
        }
        if let Some(limited) = self.limited(script) {
            return limited;
        }
        let text = sandbox::message(error);
        // The compiler quotes the whole of a token, which may be as long as the script.
        let (line, message) = sandbox::located(&text).unwrap_or((0, &text));
        Error::Syntax {
            at: Arc::clone(script.at()),
            line,
            message: convert::brief(message),
        }
    }

    fn require(&self, script: &Script) -> &Function {
        if script.is_built_in() {
            &self.sandbox.require_built_in
        } else {
            &self.sandbox.require
        }
    }

    fn argument(&self, argument: Argument<'_>) -> mlua::Result<LuaValue> {
        match argument {
            Argument::Nil | Argument::List([]) => Ok(LuaValue::Nil),
            Argument::Object(value) => convert::to_lua(&self.lua, &self.marks, value),
            Argument::Number(number) => number.into_lua(&self.lua),
            Argument::List(list) => {
                let table = self.lua.create_table_with_capacity(list.len(), 0)?;
                for (at, one) in (1..).zip(list) {
                    table.raw_set(at, convert::to_lua(&self.lua, &self.marks, one)?)?;
                }
                Ok(LuaValue::Table(table))
            }
        }
    }

    /// Returns an error if a limit has been exceeded, as it may have been in the last instructions.
    fn within(&self, script: &Script) -> Result<(), Error> {
        self.limited(script).map_or(Ok(()), Err)
    }

    fn limited(&self, script: &Script) -> Option<Error> {
        let limit = self.budget.limit()?;
        let at = Arc::clone(script.at());
        Some(Error::Limit { at, limit })
    }

    /// Returns the failure that the handler, or Lua itself, reported.
    fn failure(&self, script: &Script, error: &LuaValue) -> Error {
        let text = match error {
            LuaValue::String(text) => text.to_string_lossy(),
            LuaValue::Error(error) => return self.fault(script, error),
            other => convert::a_type(other).to_owned(),
        };
        if text == sandbox::NO_MEMORY {
            self.budget.exceed_memory();
        }
        if let Some(limited) = self.limited(script) {
            return limited;
        }
        let at = Arc::clone(script.at());
        if self.missing.load(Ordering::Relaxed) {
            let function = at.operation.function();
            return Error::MissingFunction { at, function };
        }
        let (line, message) = line_and_message(&text);
        let message = convert::brief(message);
        Error::Script { at, line, message }
    }

    fn fault(&self, script: &Script, error: &mlua::Error) -> Error {
        if is_memory(error) {
            self.budget.exceed_memory();
        }
        self.limited(script).unwrap_or_else(|| Error::Setup {
            at: Arc::clone(script.at()),
            message: sandbox::message(error),
        })
    }
}
