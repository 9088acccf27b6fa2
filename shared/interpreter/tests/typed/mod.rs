//! Answers of the engine, by their types.

// The lints know test functions, not the functions that they share; no test uses all of them.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

use muster_interpreter::lua::{Engine, Error, Rules};
use muster_interpreter::{Answer, Dependency, Operation, Question, Replicas};
use muster_shared::api::binding::Component;
use serde_json::Value;

/// A function for each operation.
pub trait Typed {
    fn ask(&self, rules: &Rules, question: &Question<'_>) -> Result<Option<Answer>, Error>;

    fn interpret_replica(&self, rules: &Rules, object: &Value) -> Result<Option<Replicas>, Error> {
        let found = self.ask(rules, &Question::new(Operation::InterpretReplica, object))?;
        Ok(found.map(|found| match found {
            Answer::Replicas(replicas) => replicas,
            other => panic!("{other:?}"),
        }))
    }

    fn interpret_component(
        &self,
        rules: &Rules,
        object: &Value,
    ) -> Result<Option<Vec<Component>>, Error> {
        let found = self.ask(rules, &Question::new(Operation::InterpretComponent, object))?;
        Ok(found.map(|found| match found {
            Answer::Components(list) => list,
            other => panic!("{other:?}"),
        }))
    }

    fn interpret_dependency(
        &self,
        rules: &Rules,
        object: &Value,
    ) -> Result<Option<Vec<Dependency>>, Error> {
        let question = Question::new(Operation::InterpretDependency, object);
        Ok(self.ask(rules, &question)?.map(|found| match found {
            Answer::Dependencies(list) => list,
            other => panic!("{other:?}"),
        }))
    }

    fn interpret_status(&self, rules: &Rules, object: &Value) -> Result<Option<Value>, Error> {
        let found = self.ask(rules, &Question::new(Operation::InterpretStatus, object))?;
        Ok(found.and_then(|found| match found {
            Answer::Status(status) => status,
            other => panic!("{other:?}"),
        }))
    }

    fn interpret_health(&self, rules: &Rules, object: &Value) -> Result<Option<bool>, Error> {
        let found = self.ask(rules, &Question::new(Operation::InterpretHealth, object))?;
        Ok(found.map(|found| match found {
            Answer::Health(healthy) => healthy,
            other => panic!("{other:?}"),
        }))
    }

    fn changed(&self, rules: &Rules, question: &Question<'_>) -> Result<Option<Value>, Error> {
        Ok(self.ask(rules, question)?.map(|found| match found {
            Answer::Object(object) => object,
            other => panic!("{other:?}"),
        }))
    }

    fn revise_replica(
        &self,
        rules: &Rules,
        object: &Value,
        replicas: i32,
    ) -> Result<Option<Value>, Error> {
        let question = Question {
            replicas,
            ..Question::new(Operation::ReviseReplica, object)
        };
        self.changed(rules, &question)
    }

    fn retain(
        &self,
        rules: &Rules,
        desired: &Value,
        observed: &Value,
    ) -> Result<Option<Value>, Error> {
        let question = Question {
            observed: Some(observed),
            ..Question::new(Operation::Retain, desired)
        };
        self.changed(rules, &question)
    }

    fn aggregate_status(
        &self,
        rules: &Rules,
        template: &Value,
        items: &[Value],
    ) -> Result<Option<Value>, Error> {
        let items: Vec<_> = items
            .iter()
            .map(|item| serde_json::from_value(item.clone()).unwrap())
            .collect();
        let question = Question {
            items: &items,
            ..Question::new(Operation::AggregateStatus, template)
        };
        self.changed(rules, &question)
    }
}

impl Typed for Engine {
    fn ask(&self, rules: &Rules, question: &Question<'_>) -> Result<Option<Answer>, Error> {
        self.answer(rules, question)
    }
}
