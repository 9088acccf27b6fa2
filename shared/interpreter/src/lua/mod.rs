//! Interprets resources with scripts in Lua 5.1: their replicas, components, health, status and
//! dependencies.
//!
//! Two sets of [`Rules`] are made of scripts: those of the users, which a
//! `ResourceInterpreterCustomization` holds ([`Customization`]), and those for kinds of other
//! projects that come with Muster ([`thirdparty::rules`]). Both run in one [`Engine`], which agent
//! and control plane share with the threads that call it.
//!
//! ```
//! use muster_interpreter::lua::{Customization, Engine, Rules, thirdparty};
//! use muster_interpreter::{Answer, Operation, Question};
//! use serde_json::json;
//!
//! let customization = serde_json::from_value(json!({
//!     "metadata": { "name": "widgets" },
//!     "spec": {
//!         "target": { "apiVersion": "example.com/v1", "kind": "Widget" },
//!         "customizations": { "healthInterpretation": { "luaScript":
//!             "function InterpretHealth(object) return object.status.phase == 'Running' end" } },
//!     },
//! }))?;
//!
//! let engine = Engine::default();
//! let customized = Rules::new([&Customization::of(&customization)]);
//! let widget = json!({
//!     "apiVersion": "example.com/v1", "kind": "Widget", "status": { "phase": "Running" },
//! });
//! let question = Question::new(Operation::InterpretHealth, &widget);
//! assert_eq!(engine.answer(&customized, &question)?, Some(Answer::Health(true)));
//! // The kind has no built-in rule.
//! assert_eq!(engine.answer(thirdparty::rules(), &question)?, None);
//!
//! let broken = json!({ "apiVersion": "example.com/v1", "kind": "Widget" });
//! let question = Question::new(Operation::InterpretHealth, &broken);
//! let error = engine.answer(&customized, &question).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "InterpretHealth of example.com/v1 Widget by ResourceInterpreterCustomization \"widgets\": \
//!      line 1: attempt to index field 'status' (a nil value)",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Scripts
//!
//! A script defines the function of its operation
//! ([`Operation::function`](crate::Operation::function)), and is run anew for each call. It sees an
//! environment of its own: nothing that it leaves there is seen by its next call, or by another
//! script. It has the base functions, `string`, `table`, `math`, `os.time` and `os.date` (in UTC),
//! and `require("kube")`:
//!
//! | Function | Result |
//! |---|---|
//! | `kube.resourceAdd(q, ...)` | sum of quantities, in canonical form; nil counts as 0 |
//! | `kube.getResourceQuantity(q)` | the quantity as a number; an error for a negative one |
//! | `kube.accuratePodRequirements(template)` | requirements of one pod of the template, or nil |
//! | `kube.getPodDependencies(template, namespace)` | references to what the pod needs |
//!
//! Not available, as in Karmada: `io`, `debug`, `coroutine`, the rest of `os`, metatables,
//! environments, `load` and its kin, `rawget` and its kin, `string.gsub`, `string.rep`,
//! `string.dump`; nor `package`, which Karmada has for `require` alone. `print` does nothing.
//!
//! Objects are tables; `null` is nil. Numbers are doubles, and come back as integers when they have
//! no fraction. Integers beyond 2^53 lose digits, unless they come back at the place that they had
//! in the object. An empty table that comes back is the list or the object that it was, or that
//! stands at its place in the object; otherwise it is left out. A value that JSON has not (a
//! function, NaN, a table inside itself, a list with gaps) is an error that names its place.
//!
//! # Limits
//!
//! A call has [`Limits`] of memory, of instructions and of time. A script that exceeds one is
//! stopped, also inside of `pcall` and of library functions, with [`Error::Limit`]; its Lua state
//! is thrown away. One that was stopped three times in a row is not run for ten seconds, and for
//! twice as long each further time, up to five minutes ([`Error::Suspended`]): it would use up the
//! time of all other kinds. A script is that of one customization, kind and operation. Half of the
//! calls at a time are for scripts that were not stopped a short time ago.
//!
//! Calls block ([`Engine`] says for how long), and need no async runtime.
//!
//! # Differences from Karmada
//!
//! * A script sees nothing of other scripts and calls; there globals outlive a call.
//! * Memory and instructions have limits; there only time has.
//! * A table may be at several places of a result, and a list be filled in any order.
//! * An empty table that the object has at its place is kept; there it is often left out.
//! * An integer beyond 2^53 that the object has at its place keeps its digits; there it loses them.
//! * Replicas below 0 or beyond 32 bits, and an object of another kind than the one that was given,
//!   are errors.
//! * `..` writes whole numbers from 1e14 on with 14 digits, as in the Lua of its authors;
//!   `tostring` writes all digits, as there.
//! * `pairs` goes in another order. `os.date` writes `%a`, `%c` and `%x` as C does, in UTC.
//! * The built-in rules: see `tests/third_party.rs`.

mod admission;
pub(crate) mod answer;
pub(crate) mod convert;
mod customization;
mod date;
mod engine;
mod error;
mod kube;
mod limits;
mod pattern;
mod sandbox;
mod script;
mod state;
mod text;
pub mod thirdparty;

pub use admission::{Conflict, check, conflict};
pub use customization::{Customization, Rules};
pub use engine::Engine;
pub use error::{Error, Source};
pub use limits::{Limit, Limits};
