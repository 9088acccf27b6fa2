//! Fleets to test with: simulated members ([`member`]), and what starts fleets, breaks them and
//! awaits what must follow ([`harness`]).

pub mod harness;
pub mod member;
