//! Templates of which no binding could be made, by the policy that selects them.

use std::collections::HashMap;

use crate::fleet::policy::PolicyKey;
use crate::fleet::template::TemplateKey;

/// Templates of which no binding could be made, with the reason.
#[derive(Debug, Default)]
pub struct Refused(HashMap<TemplateKey, (PolicyKey, String)>);

impl Refused {
    /// Notes why a template has no binding, or keeps the one that it has.
    pub fn set(&mut self, template: &TemplateKey, policy: PolicyKey, note: String) {
        self.0.insert(template.clone(), (policy, note));
    }

    /// Forgets a template; returns the policy that it was noted for.
    pub fn clear(&mut self, template: &TemplateKey) -> Option<PolicyKey> {
        self.0.remove(template).map(|(policy, _)| policy)
    }

    /// Returns the templates of a policy in order.
    pub fn of(&self, policy: &PolicyKey) -> Vec<(TemplateKey, String)> {
        let own = self.0.iter().filter(|(_, (by, _))| by == policy);
        let mut own: Vec<_> = own
            .map(|(template, (_, note))| (template.clone(), note.clone()))
            .collect();
        own.sort();
        own
    }
}
