//! The canonical spelling of quantities, which is what a server stores.

use muster_quantity::Quantity;

/// The error of kube-apiserver.
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Returns `text` in canonical form: no fraction, the largest suffix of its family that loses
/// nothing (`1.5Gi` → `1536Mi`, `0.5` → `500m`, `1000m` → `1`).
pub fn canonical(text: &str) -> Result<String, String> {
    let quantity: Result<Quantity, _> = text.parse();
    quantity.map_or_else(|_| Err(MALFORMED.to_owned()), |it| Ok(it.to_string()))
}
