//! Who a request comes from.

use super::bootstrap_tokens;
use super::identity::User;
use super::tokens::{self, Known};

/// Returns who a bearer token stands for.
pub fn user_of_token(known: Known<'_>, token: &str) -> Option<User> {
    let own = known.authority.user_of_token(token);
    own.or_else(|| bootstrap_tokens::bearer(known.store, token, known.now))
        .or_else(|| tokens::bearer(known, token, &[]).ok().map(|b| b.user))
}
