use super::*;

#[test]
fn what_is_gone_or_changed_already_is_looked_at_again_and_the_rest_is_an_error() {
    for (code, reason, expected) in [
        (404, "NotFound", true),
        (409, "Conflict", true),
        (403, "Forbidden", false),
        (500, "InternalError", false),
    ] {
        let status = kube::core::Status::failure("", reason).with_code(code);
        let result = tolerate(Err(kube::Error::Api(status.boxed())));
        assert_eq!(result.is_ok(), expected, "{code}");
    }
    assert!(tolerate(Ok(())).is_ok());
}
