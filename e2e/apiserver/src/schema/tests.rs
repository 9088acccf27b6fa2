//! Defaulting of whole objects.

use serde_json::json;

use super::Schema;
use crate::catalog;

#[test]
fn defaulting_twice_changes_nothing() {
    for kind in catalog::all().iter().filter(|kind| kind.stored()) {
        let schema = Schema::builtin(kind);
        let mut once =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "n"}});
        schema.decode(&mut once).expect("decodes");
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.decode(&mut twice).expect("decodes again");
        schema.default(&mut twice);
        assert_eq!(once, twice, "{}", kind.kind);
    }
}
