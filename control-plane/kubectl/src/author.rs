//! Who gives an order, and why.

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use muster_control_plane::fleet::attribution::{Attribution, LONGEST};
use muster_shared::k8s::{Api, Client};

/// Option of an order that gives its reason.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Why {
    /// Reason, for everyone who asks who ordered this and why.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT",
        value_parser = reason
    )]
    reason: String,
}

fn reason(text: &str) -> Result<String, String> {
    let letters = text.chars().count();
    if letters > LONGEST {
        return Err(format!(
            "it has {letters} letters: at most {LONGEST} are kept"
        ));
    }
    Ok(text.to_owned())
}

impl Why {
    /// Asks the API who the user is.
    pub(crate) async fn author(&self, client: &Client) -> Author {
        Author {
            by: user(client).await,
            reason: self.reason.clone(),
        }
    }
}

/// The author of orders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Author {
    /// Name of the user, as the API knows them.
    pub by: String,
    /// Reason, in their words.
    pub reason: String,
}

impl Author {
    /// Returns one of the author's orders.
    pub(crate) fn order(&self, order: &str, at: Timestamp) -> Attribution {
        Attribution {
            order: order.to_owned(),
            by: self.by.clone(),
            at: Some(at),
            reason: self.reason.clone(),
            ..Attribution::default()
        }
    }
}

/// Returns the name of the user as the API knows them.
async fn user(client: &Client) -> String {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let known = review.ok().and_then(|it| it.status?.user_info?.username);
    known
        .filter(|name| !name.is_empty())
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_too_long_is_refused_and_not_cut() {
        assert_eq!(reason("an upgrade").as_deref(), Ok("an upgrade"));
        assert!(reason(&"ü".repeat(LONGEST)).is_ok());
        let reported = reason(&"ü".repeat(LONGEST + 1)).unwrap_err();
        assert_eq!(reported, "it has 201 letters: at most 200 are kept");
    }
}
