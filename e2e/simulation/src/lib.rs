//! A simulation of a fleet: the real control plane and the real agents in one process, in virtual
//! time, from a seed, with faults, and with oracles that check the safety contract at each write.
//!
//! * [`history`] holds what happened: each request to an API with the object before and after, and
//!   each event of the world (faults, processes, networks, steps of people). The same seed gives
//!   the same history, which its digest shows.
//! * [`oracle`] checks a history. An oracle is a pure fold: it is shown entry after entry and says
//!   violations. It knows the promises of the README and no code of the product.
//! * [`people`] draws fleets, and what users and operators do to them.
//! * [`feature`] names what people may set and order, [`design`] says which of it a seed draws, and
//!   [`pairs`] counts which two features concerned one workload at a time, during which fault.
//! * [`generate`] draws whole plans from seeds.
//! * [`plan`] says what a simulation is made of, [`faults`] what can go wrong, [`world`] lives it,
//!   [`run`](mod@run) runs one in this process, and [`child`] each in a process of its own.
//! * [`found`] holds plans that find bugs which were fixed.
//! * [`network`] carries requests in memory, and [`recorder`] writes the history.
//!
//! # Commands
//!
//! ```sh
//! cargo build --release -p muster-simulation
//! simulate search --minutes 60 --jobs 2 --directory failures # random seeds; failures are shrunk
//! simulate search --size features --count 64 --pairs pairs.csv # people set and unset features
//! simulate search --size data --count 200 # data follows workloads, and waits for its engine
//! simulate search --size hosts --count 200 # the host is lost, a standby is promoted
//! simulate search --size witnesses --count 200 # members watch each other, and one lies
//! simulate sieve --jobs 2 # each write of a failover with a crash, each watch with a stale view
//! simulate run --seed 7 # the digest of its history, by which two machines can be compared
//! simulate draw --seed 7 | simulate plan --story # who did what
//! ```
//!
//! # What the same history depends on
//!
//! One thread, tokio's paused clock, calendars that follow it ([`clock`]; each process has its
//! own), and random numbers from the seed ([`random`]): `mad-turmoil` answers `getrandom` in place
//! of the operating system, and with it the keys of hash maps and the order in which `select!`
//! polls. It answers the clocks of the system as well, with 0, so that [`std::time::Instant`]
//! stands still in these programs. Some libraries number what they make by counters of the process,
//! so that each plan runs in a process of its own.
//!
//! # Where the world is kinder than the real one
//!
//! * Requests have users and roles, and no TLS, certificates or tokens.
//! * Calendars of servers jump and do not drift, and kubelets read the true one.
//! * Admission webhooks are not asked; the policies that confine agents are.
//! * A plan has one standby, which is promoted once, and a snapshot has all objects of one moment.
//! * A peer answers handshakes as long as the network lets them pass.

pub mod child;
pub mod clock;
pub mod design;
pub mod fault_kind;
pub mod faults;
pub mod feature;
pub mod found;
pub mod generate;
pub mod history;
pub mod network;
pub mod oracle;
pub mod pairs;
pub mod people;
pub mod plan;
pub mod random;
pub mod recorder;
pub mod replication;
pub mod run;
pub mod scenarios;
pub mod search;
pub mod shrink;
pub mod sieve;
pub mod story;
pub mod world;
