//! The engine: a pool of Lua states, and a typed function for each operation.

use std::sync::Arc;

use mlua::Value as LuaValue;
use parking_lot::{Condvar, Mutex};
use serde_json::{Map, Value};

use crate::lua::{
    answer,
    convert::Fault,
    customization::Rules,
    error::Error,
    limits::{self, Limit, Limits},
    sandbox,
    script::Script,
    state::{Argument, State},
};
use crate::operation::Operation;
use crate::{Answer, Question, Replicas};

/// Most states that wait for a call.
const MAX_IDLE: usize = 4;
/// Calls that run at a time: each may take the memory of the limits.
const MAX_RUNNING: usize = 4;
/// Calls at a time of scripts that were stopped a short time ago: those of other kinds do not wait
/// for theirs.
const MAX_SUSPECTS: usize = 2;

/// Runs the scripts of [`Rules`]. One is enough for a process: share it by reference or in an
/// `Arc`.
///
/// Calls block: usually for less than a tenth of a millisecond, at most for about [`Limits::time`].
/// A caller that must not wait so long, such as a task of an async runtime with few threads, puts
/// them on a blocking thread. Any number of threads may call at once; each call has a Lua state of
/// its own.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    idle: Mutex<Vec<State>>,
    /// Number of calls that run, each of which may take the memory of the limits.
    running: Mutex<Count>,
    /// Notified when a call has ended.
    ended: Condvar,
}

/// Calls that run.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    /// Those of scripts that were stopped a short time ago.
    suspects: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

/// First and second result of a function.
type Returned<'a> = (&'a LuaValue, &'a LuaValue);

impl Engine {
    /// Makes an engine whose scripts have these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            idle: Mutex::default(),
            running: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Answers a question by the function of its operation ([`Operation::function`]); `None` if the
    /// rules have no script for it. Dependencies are those that all scripts find, in order of API
    /// version, kind, namespace and name.
    ///
    /// # Errors
    /// See [`Error`]; one script that fails is an error for all.
    pub fn answer(&self, rules: &Rules, question: &Question<'_>) -> Result<Option<Answer>, Error> {
        let scripts = rules.of(&question.object, question.operation);
        let items = question.items.iter();
        let items = items.map(|item| serde_json::to_value(item).unwrap_or_default());
        let items: Vec<Value> = items.collect();
        let second = match (question.operation, question.observed) {
            (Operation::ReviseReplica, _) => Argument::Number(question.replicas.into()),
            (Operation::Retain, Some(observed)) => Argument::Object(observed),
            (Operation::AggregateStatus, _) => Argument::List(&items),
            _ => Argument::Nil,
        };
        let ask = |script| {
            let arguments = [Argument::Object(&question.object), second];
            self.call(script, arguments, |state, returned| {
                read(state, question, &items, returned)
            })
        };
        if question.operation != Operation::InterpretDependency {
            return scripts.first().map(ask).transpose();
        }
        let mut all = Vec::new();
        for script in scripts {
            if let Answer::Dependencies(found) = ask(script)? {
                all.extend(found);
            }
        }
        Ok((!scripts.is_empty()).then(|| Answer::Dependencies(answer::united(all))))
    }

    /// Runs a script without calling its function, which it must define.
    pub(crate) fn define(&self, script: &Script) -> Result<(), Error> {
        let function = script.at().operation.function();
        self.with_state(script, |state| state.define(script, function))
    }

    fn call<T>(
        &self,
        script: &Script,
        arguments: [Argument<'_>; 2],
        read: impl FnOnce(&State, Returned<'_>) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        if let Some(suspension) = script.suspension(limits::moment()) {
            return Err(Error::Suspended {
                at: Arc::clone(script.at()),
                limit: suspension.limit,
                times: suspension.times,
                seconds: suspension.left.as_secs() + 1,
            });
        }
        let result = self.with_state(script, |state| {
            let function = script.at().operation.function();
            let (first, second) = state.call(script, function, arguments)?;
            read(state, (&first, &second)).map_err(|fault| {
                let at = Arc::clone(script.at());
                let Fault {
                    path,
                    expected,
                    found,
                } = fault;
                match state.limit() {
                    Some(limit) => Error::Limit { at, limit },
                    None => Error::Result {
                        at,
                        path,
                        expected,
                        found,
                    },
                }
            })
        });
        script.note(limit_of(&result), limits::moment());
        result
    }

    /// Lends a state to a call. One that ran into a limit, or holds much memory, is not used again.
    fn with_state<T>(
        &self,
        script: &Script,
        run: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _running = self.enter(script);
        let idle = self.idle.lock().pop();
        let mut state = match idle {
            Some(state) => state,
            None => State::new(self.limits).map_err(|error| Error::Setup {
                at: Arc::clone(script.at()),
                message: sandbox::message(&error),
            })?,
        };
        let result = run(&mut state);
        if state.settle() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(state);
            }
        }
        result
    }

    /// Waits until fewer than [`MAX_RUNNING`] calls run, and fewer than [`MAX_SUSPECTS`] of scripts
    /// that were stopped a short time ago, if this is one; blocks the thread meanwhile.
    fn enter(&self, script: &Script) -> Running<'_> {
        let is_suspect = script.is_suspect();
        let mut running = self.running.lock();
        self.ended.wait_while(&mut running, |running| {
            running.all >= MAX_RUNNING || is_suspect && running.suspects >= MAX_SUSPECTS
        });
        running.all += 1;
        running.suspects += usize::from(is_suspect);
        Running(self, is_suspect)
    }
}

/// A call that runs, and whether it is one of a script that was stopped a short time ago.
struct Running<'a>(&'a Engine, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Self(engine, is_suspect) = self;
        let mut running = engine.running.lock();
        running.all = running.all.saturating_sub(1);
        running.suspects = running.suspects.saturating_sub(usize::from(*is_suspect));
        drop(running);
        // The first that waits may be one that may not run yet.
        engine.ended.notify_all();
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// Reads what the function of an operation returned.
fn read(
    state: &State,
    question: &Question<'_>,
    items: &[Value],
    (first, second): Returned<'_>,
) -> Result<Answer, Fault> {
    let object = &*question.object;
    let empty = Value::Object(Map::new());
    let list = || {
        let table = answer::table("result", first)?;
        let empty = Value::Array(Vec::new());
        state.reader(&[]).read("result", table, &empty)
    };
    Ok(match question.operation {
        Operation::InterpretReplica => {
            let replicas = answer::count(first)?;
            let requirements = if second.is_nil() {
                None
            } else {
                let table = answer::table("requires", second)?;
                let json = state.reader(&[]).read("requires", table, &empty)?;
                Some(answer::requirements("requires", &json)?)
            };
            Answer::Replicas(Replicas {
                replicas,
                requirements,
            })
        }
        Operation::InterpretComponent if first.is_nil() => Answer::Components(Vec::new()),
        Operation::InterpretComponent => Answer::Components(answer::components(&list()?)?),
        Operation::InterpretDependency => Answer::Dependencies(answer::dependencies(&list()?)?),
        Operation::ReviseReplica | Operation::Retain | Operation::AggregateStatus => {
            let table = answer::table("result", first)?;
            let known = std::iter::once(object).chain(question.observed);
            let known: Vec<&Value> = known.chain(items).collect();
            let json = state.reader(&known).read("result", table, &empty)?;
            Answer::Object(answer::object(json, object)?)
        }
        Operation::InterpretStatus => {
            let table = answer::table("result", first)?;
            let known = object.get("status").unwrap_or(&Value::Null);
            let json = state.reader(&[known]).read("result", table, &empty)?;
            Answer::Status(Some(answer::status(json)?))
        }
        Operation::InterpretHealth => Answer::Health(answer::truth(first)?),
    })
}

fn limit_of<T>(result: &Result<T, Error>) -> Option<Limit> {
    match result {
        Err(Error::Limit { limit, .. }) => Some(*limit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::lua::error::Source;

    fn script(kind: &str) -> Script {
        let at = Source {
            customization: "c".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            operation: Operation::InterpretHealth,
        };
        Script::new(at, "", false)
    }

    #[test]
    fn scripts_that_are_stopped_leave_room_for_those_of_other_kinds() {
        let (engine, bad, good) = (Engine::default(), script("Bad"), script("Good"));
        bad.note(Some(Limit::Instructions(1)), limits::moment());
        let first = engine.enter(&bad);
        let _second = engine.enter(&bad);
        thread::scope(|scope| {
            let (entered, enters) = mpsc::channel();
            let (engine, bad) = (&engine, &bad);
            scope.spawn(move || {
                let _third = engine.enter(bad);
                entered.send(()).unwrap();
            });
            // Others enter while it waits.
            let others = [engine.enter(&good), engine.enter(&good)];
            let waits = enters.recv_timeout(Duration::from_millis(50));
            assert_eq!(waits, Err(mpsc::RecvTimeoutError::Timeout));
            drop(others);
            drop(first);
            enters.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }
}
