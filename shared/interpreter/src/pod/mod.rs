//! What a pod needs: the objects that it refers to, and what it asks of a node. One rule for
//! scripts, which reach it as `require("kube")`, and for the kinds of Kubernetes.

mod references;
mod requirements;

pub(crate) use self::references::references;
pub(crate) use self::requirements::requirements;
