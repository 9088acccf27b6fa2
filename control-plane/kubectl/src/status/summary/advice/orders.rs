//! What the summary advises about what people ordered.

use super::Advice;
use crate::status::decide::{Ordered, Report};
use crate::status::summary::{count, is_emptied, is_faulty, is_stopped};

/// Returns how to mend the first order that is not carried out as it is, or to end it; `None` where
/// each one is.
pub(super) fn mend(report: &Report) -> Option<Advice> {
    if let Some(order) = report.ordered.iter().find(|it| is_faulty(report, it)) {
        let name = &order.name;
        return Some(if is_stopped(report, order) {
            fewer(report, order)
        } else if order.is_incomplete() {
            let words = format!(
                "complete the drain of {name}, or end it ({}); to complete it",
                undone(order)
            );
            Advice::new(words, format!("kubectl muster drain {name}"))
        } else {
            let words = format!("give the drain of {name} another rate, such as that of the fleet");
            Advice::new(words, format!("kubectl muster drain {name} --rate fleet"))
        });
    }
    let mut held = report.drained().filter(|it| !is_emptied(report, it));
    let first = held.next().filter(|_| report.taints_ignored)?;
    let words = format!(
        "have the control plane run the controller taintmanager (--controllers, --enable-taint-manager), without which nothing leaves {}, or end the drain",
        first.name
    );
    Some(Advice::new(words, undone(first)))
}

/// Returns how to let workloads leave drained clusters of which there are too many. One that is
/// empty is given back before `order`, which is not.
fn fewer(report: &Report, order: &Ordered) -> Advice {
    let pace = &report.pace;
    let need = pace.failed.saturating_sub(pace.may_fail);
    let words = format!(
        "end the drain of at least {}, since nothing leaves while {} of {} count as failed, drained ones included, and at most {} may",
        count(need, "cluster"),
        pace.failed,
        pace.counted,
        pace.may_fail
    );
    let mut drained = report.drained();
    let done = drained.find(|it| is_emptied(report, it));
    Advice::new(words, undone(done.unwrap_or(order)))
}

/// Returns the command that ends an order.
pub(super) fn undone(order: &Ordered) -> String {
    let verb = if order.order == "Cordoned" {
        "uncordon"
    } else {
        "undrain"
    };
    format!("kubectl muster {verb} {}", order.name)
}
