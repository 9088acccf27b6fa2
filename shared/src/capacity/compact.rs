//! Decodes the views of pods and nodes from Kubernetes' protobuf encoding. They have the same
//! fields as when they are decoded from JSON.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto`. An empty string stands for a
//! field that was not set.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};

use super::view::{
    ConditionView, ContainerStatusView, ContainerView, NodeSpecView, NodeStatusView, NodeView,
    PodSpecView, PodStatusView, PodView, ResourcesView, TaintView,
};
use crate::protobuf::{Content, FromProtobuf, Malformed, entry, fields};

impl FromProtobuf for PodView {
    fn from_protobuf(message: &[u8]) -> Result<Self, Malformed> {
        let mut pod = Self::default();
        for field in fields(message) {
            match field? {
                (1, content) => pod.metadata = metadata(content.bytes(1)?)?,
                (2, content) => pod.spec = pod_spec(content.bytes(2)?)?,
                (3, content) => pod.status = pod_status(content.bytes(3)?)?,
                _ => {}
            }
        }
        Ok(pod)
    }
}

impl FromProtobuf for NodeView {
    fn from_protobuf(message: &[u8]) -> Result<Self, Malformed> {
        let mut node = Self::default();
        for field in fields(message) {
            match field? {
                (1, content) => node.metadata = metadata(content.bytes(1)?)?,
                (2, content) => node.spec = node_spec(content.bytes(2)?)?,
                (3, content) => node.status = node_status(content.bytes(3)?)?,
                _ => {}
            }
        }
        Ok(node)
    }
}

fn metadata(message: &[u8]) -> Result<ObjectMeta, Malformed> {
    let mut meta = ObjectMeta::default();
    for field in fields(message) {
        match field? {
            (1, content) => meta.name = set(content.text(1)?),
            (3, content) => meta.namespace = set(content.text(3)?),
            (5, content) => meta.uid = set(content.text(5)?),
            (6, content) => meta.resource_version = set(content.text(6)?),
            _ => {}
        }
    }
    Ok(meta)
}

fn pod_spec(message: &[u8]) -> Result<PodSpecView, Malformed> {
    let mut spec = PodSpecView::default();
    for field in fields(message) {
        match field? {
            (2, content) => spec.containers.push(container(content.bytes(2)?)?),
            (10, content) => spec.node_name = set(content.text(10)?),
            (20, content) => spec.init_containers.push(container(content.bytes(20)?)?),
            (32, content) => put(&mut spec.overhead, content.bytes(32)?)?,
            (40, content) => spec.resources = Some(resources(content.bytes(40)?)?),
            _ => {}
        }
    }
    Ok(spec)
}

fn container(message: &[u8]) -> Result<ContainerView, Malformed> {
    let mut container = ContainerView::default();
    for field in fields(message) {
        match field? {
            (1, content) => container.name = content.text(1)?,
            (8, content) => container.resources = Some(resources(content.bytes(8)?)?),
            (24, content) => container.restart_policy = set(content.text(24)?),
            _ => {}
        }
    }
    Ok(container)
}

fn resources(message: &[u8]) -> Result<ResourcesView, Malformed> {
    let mut resources = ResourcesView::default();
    for field in fields(message) {
        if let (2, content) = field? {
            put(&mut resources.requests, content.bytes(2)?)?;
        }
    }
    Ok(resources)
}

fn pod_status(message: &[u8]) -> Result<PodStatusView, Malformed> {
    let mut status = PodStatusView::default();
    for field in fields(message) {
        match field? {
            (1, content) => status.phase = set(content.text(1)?),
            (2, content) => status.conditions.push(condition(content.bytes(2)?)?),
            (8, content) => {
                let container = container_status(content.bytes(8)?)?;
                status.container_statuses.push(container);
            }
            (10, content) => {
                let container = container_status(content.bytes(10)?)?;
                status.init_container_statuses.push(container);
            }
            _ => {}
        }
    }
    Ok(status)
}

fn container_status(message: &[u8]) -> Result<ContainerStatusView, Malformed> {
    let mut status = ContainerStatusView::default();
    for field in fields(message) {
        match field? {
            (1, content) => status.name = content.text(1)?,
            (10, content) => put(&mut status.allocated_resources, content.bytes(10)?)?,
            (11, content) => status.resources = Some(resources(content.bytes(11)?)?),
            _ => {}
        }
    }
    Ok(status)
}

fn node_spec(message: &[u8]) -> Result<NodeSpecView, Malformed> {
    let mut spec = NodeSpecView::default();
    for field in fields(message) {
        match field? {
            (4, Content::Number(number)) => spec.unschedulable = number != 0,
            (5, content) => spec.taints.push(taint(content.bytes(5)?)?),
            _ => {}
        }
    }
    Ok(spec)
}

fn taint(message: &[u8]) -> Result<TaintView, Malformed> {
    let mut taint = TaintView::default();
    for field in fields(message) {
        match field? {
            (1, content) => taint.key = content.text(1)?,
            (3, content) => taint.effect = content.text(3)?,
            _ => {}
        }
    }
    Ok(taint)
}

fn node_status(message: &[u8]) -> Result<NodeStatusView, Malformed> {
    let mut status = NodeStatusView::default();
    for field in fields(message) {
        match field? {
            (2, content) => put(&mut status.allocatable, content.bytes(2)?)?,
            (4, content) => status.conditions.push(condition(content.bytes(4)?)?),
            _ => {}
        }
    }
    Ok(status)
}

/// Conditions of nodes and pods have these fields under the same numbers.
fn condition(message: &[u8]) -> Result<ConditionView, Malformed> {
    let mut condition = ConditionView::default();
    for field in fields(message) {
        match field? {
            (1, content) => condition.kind = content.text(1)?,
            (2, content) => condition.status = content.text(2)?,
            (5, content) => condition.reason = content.text(5)?,
            _ => {}
        }
    }
    Ok(condition)
}

/// Puts an entry of a map from resource names to quantities into its place.
fn put(amounts: &mut BTreeMap<String, Quantity>, message: &[u8]) -> Result<(), Malformed> {
    let (name, value) = entry(message)?;
    amounts.insert(name, quantity(value)?);
    Ok(())
}

/// Reads a quantity, which is a message around its text; one without text is zero, as in JSON.
fn quantity(content: Option<Content<'_>>) -> Result<Quantity, Malformed> {
    let mut text = None;
    for field in fields(content.map_or(Ok(&[][..]), |content| content.bytes(2))?) {
        if let (1, content) = field? {
            text = set(content.text(1)?);
        }
    }
    Ok(Quantity(text.unwrap_or_else(|| "0".to_owned())))
}

fn set(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
