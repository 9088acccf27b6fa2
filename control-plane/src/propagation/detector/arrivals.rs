//! Bindings that were created and are not in the cache yet.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::fleet::template::TemplateKey;

/// How long a binding that was created may take to arrive in the cache. After that it is created
/// again: it may have gone while the watch was down, and then nothing reports it.
const LONGEST: Duration = Duration::from_secs(10);
/// Shortest time to wait for one.
const SHORTEST: Duration = Duration::from_millis(200);

/// The templates whose bindings are to arrive.
#[derive(Debug, Default)]
pub struct Arrivals(HashMap<TemplateKey, Arriving>);

#[derive(Clone, Copy, Debug)]
struct Arriving {
    since: Instant,
    /// Whether the template is to be reconciled again when its binding arrives.
    again: bool,
}

impl Arrivals {
    /// Notes that the binding of a template is created now, unless it was before: then how long to
    /// wait for it at most.
    pub fn begin(&mut self, template: &TemplateKey) -> Option<Duration> {
        if let Some(arriving) = self.0.get_mut(template)
            && let Some(left) = LONGEST
                .checked_sub(arriving.since.elapsed())
                .filter(|left| !left.is_zero())
        {
            arriving.again = true;
            return Some(left.max(SHORTEST));
        }
        let arriving = Arriving {
            since: Instant::now(),
            again: false,
        };
        self.0.insert(template.clone(), arriving);
        None
    }

    /// Notes that a binding arrived, went, or was not created after all; whether its template is to
    /// be reconciled again.
    pub fn end(&mut self, template: &TemplateKey) -> bool {
        self.0.remove(template).is_some_and(|it| it.again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::template_key;

    #[tokio::test(start_paused = true)]
    async fn a_binding_that_never_arrives_is_created_again() {
        let key = template_key("v1", "ConfigMap", "conf");
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.begin(&key), None);
        assert_eq!(arrivals.begin(&key), Some(LONGEST));
        assert!(arrivals.end(&key), "somebody asked meanwhile");
        assert_eq!(arrivals.begin(&key), None);
        assert!(!arrivals.end(&key));
        arrivals.begin(&key);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(arrivals.begin(&key), Some(SHORTEST));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(arrivals.begin(&key), None, "it went unseen");
    }
}
