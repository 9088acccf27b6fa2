//! People: random fleets, and what users and operators do to them over time.
//!
//! [`Script::random`] draws a fleet, the objects that are there when it begins, and steps over
//! virtual time. A step is data, so that a plan can be shrunk by leaving steps out;
//! [`Act::requests`] makes plain API requests of it. What is drawn follows from the dice alone.

mod act;
mod dice;
mod features;
mod fields;
mod fleet;
mod malformed;
mod mix;
mod orders;
mod policies;
mod script;
mod taints;
mod workloads;

pub use act::{Act, Method, Step, Submission};
pub use dice::Dice;
pub use fleet::Site;
pub use mix::Mix;
pub use script::{Script, Size};
