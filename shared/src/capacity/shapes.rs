//! Requests of pods, each distinct request stored once, because the replicas of a workload all
//! request the same.

use std::{collections::HashMap, sync::Arc};

use super::amounts::{Amounts, Id};

/// A distinct request: amounts by resource.
pub(super) type Shape = Arc<[(Id, i64)]>;

/// The number of a shape, valid while somebody holds it.
pub(super) type ShapeId = u32;

/// The shapes in use and how many hold each.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    ids: HashMap<Shape, ShapeId>,
    held: Vec<(Shape, u32)>,
    free: Vec<ShapeId>,
}

impl Shapes {
    /// Takes hold of the shape of a request.
    pub fn hold(&mut self, request: &Amounts) -> ShapeId {
        if let Some(id) = self.ids.get(request.0.as_slice()) {
            self.held[*id as usize].1 += 1;
            return *id;
        }
        let shape: Shape = request.0.as_slice().into();
        let entry = (Arc::clone(&shape), 1);
        let id = if let Some(id) = self.free.pop() {
            self.held[id as usize] = entry;
            id
        } else {
            self.held.push(entry);
            ShapeId::try_from(self.held.len() - 1).expect("fewer pods than u32 invariant")
        };
        self.ids.insert(shape, id);
        id
    }

    /// Returns the amounts of a shape.
    pub fn get(&self, id: ShapeId) -> Shape {
        Arc::clone(&self.held[id as usize].0)
    }

    /// Lets a shape go; the last one to do so frees it.
    pub fn release(&mut self, id: ShapeId) {
        let (shape, holders) = &mut self.held[id as usize];
        *holders -= 1;
        if *holders == 0 {
            self.ids.remove(shape);
            *shape = Shape::default();
            self.free.push(id);
        }
    }
}
