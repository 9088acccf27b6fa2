//! Decides which objects a binding may refer to.

use crate::fleet::binding::BindingKey;
use crate::fleet::template::TemplateKey;

/// Returns whether a binding may place a template. Whoever may write bindings in one namespace must
/// not reach the objects of another by them.
pub fn may_place(binding: &BindingKey, template: &TemplateKey) -> bool {
    binding.namespace.is_none()
        || template.namespace.is_none()
        || binding.namespace == template.namespace
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fleet::template::Kind;

    #[test]
    fn a_binding_reaches_the_objects_of_its_own_namespace_only() {
        for (binding, template, expected) in [
            (Some("shop"), Some("shop"), true),
            (Some("shop"), Some("bank"), false),
            (Some("shop"), None, true),
            (None, None, true),
            (None, Some("shop"), true),
        ] {
            let key = BindingKey {
                namespace: binding.map(str::to_owned),
                name: "web-secret".into(),
            };
            let of = TemplateKey {
                kind: Arc::new(Kind::new("v1", "Secret")),
                namespace: template.map(str::to_owned),
                name: "web".into(),
            };
            assert_eq!(may_place(&key, &of), expected, "{binding:?} {template:?}");
        }
    }
}
