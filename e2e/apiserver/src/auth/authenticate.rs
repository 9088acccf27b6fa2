//! Who a request comes from.

use super::identity::User;
use super::{bootstrap_tokens, tokens};
use crate::context::Server;

/// Returns who a bearer token stands for.
pub fn user_of_token(server: &Server, token: &str) -> Option<User> {
    server
        .authority
        .user_of_token(token)
        .or_else(|| bootstrap_tokens::bearer(server, token))
        .or_else(|| tokens::bearer(server, token, &[]).ok().map(|b| b.user))
}
