//! Resource models: the default grades, the validation of custom ones, and the grade of a node.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

use crate::{
    api::cluster::{ResourceModel, ResourceModelRange},
    quantity::{Format, ParseError, Quantity},
};

/// Upper end of the last grade.
const UNBOUNDED: Quantity = Quantity::units(i64::MAX, Format::DecimalSi);

/// Resources that grades may have (Karmada's documentation of resource models).
const RESOURCES: [&str; 4] = ["cpu", "memory", "storage", "ephemeral-storage"];

/// Lower ends of the default grades, in cores and GiB of memory. The numbers are Karmada's.
const DEFAULT_FLOORS: [(i64, i64); 9] = [
    (0, 0),
    (1, 4),
    (2, 16),
    (4, 32),
    (8, 64),
    (16, 128),
    (32, 256),
    (64, 512),
    (128, 1024),
];

/// Returns the grades of a cluster whose spec has none.
pub fn default_models() -> Vec<ResourceModel> {
    const GIB: i64 = 1 << 30;
    let cores = |cores| Quantity::units(cores, Format::DecimalSi);
    let memory = |gib| Quantity::units(gib * GIB, Format::BinarySi);
    let range = |name: &str, min: Quantity, max: Quantity| ResourceModelRange {
        name: name.to_owned(),
        min: min.to_wire(),
        max: max.to_wire(),
    };
    (0_u64..)
        .zip(DEFAULT_FLOORS)
        .zip(DEFAULT_FLOORS.into_iter().skip(1).map(Some).chain([None]))
        .map(|((grade, floor), next)| ResourceModel {
            grade,
            ranges: vec![
                range(
                    "cpu",
                    cores(floor.0),
                    next.map_or(UNBOUNDED, |next| cores(next.0)),
                ),
                range(
                    "memory",
                    memory(floor.1),
                    next.map_or(UNBOUNDED, |next| memory(next.1)),
                ),
            ],
        })
        .collect()
}

/// Sorts the grades, and sets the lower end of the first to 0 and the upper end of the last to
/// unbounded. Done whenever models are written.
pub fn standardize(models: &mut [ResourceModel]) {
    models.sort_by_key(|model| model.grade);
    if let Some(first) = models.first_mut() {
        first
            .ranges
            .iter_mut()
            .for_each(|range| range.min = Quantity::ZERO.to_wire());
    }
    if let Some(last) = models.last_mut() {
        last.ranges
            .iter_mut()
            .for_each(|range| range.max = UNBOUNDED.to_wire());
    }
}

/// Error in resource models. Each message names the grade, and the resource if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelFault {
    /// Two grades have the same number.
    #[error("grade {0} is there twice")]
    DuplicateGrade(u64),
    /// Two grades have a different number of resources.
    #[error("grade {0} has another number of resources than the grade before")]
    RangeCountDiffers(u64),
    /// The upper end of a range is not greater than the lower end.
    #[error("grade {0}: max of {1:?} must be greater than min")]
    MaxNotAboveMin(u64, String),
    /// The first grade does not begin at 0, so that smaller nodes would not be counted.
    #[error("grade {0}: min of {1:?} must be 0, since this is the first grade")]
    FirstMinNotZero(u64, String),
    /// Two grades have different resources, or the same ones in another order.
    #[error("grade {0} has {1:?} where the grade before has another resource")]
    ResourceNameDiffers(u64, String),
    /// The resource is none that grades may have.
    #[error("grade {0}: {1:?} is none of cpu, memory, storage, ephemeral-storage")]
    UnsupportedResource(u64, String),
    /// There is a gap or an overlap between two grades.
    #[error("grade {0}: min of {1:?} must be the max of the grade before")]
    NotContiguous(u64, String),
    /// The last grade has an upper end, so that larger nodes would not be counted.
    #[error("grade {0}: max of {1:?} must be 9223372036854775807, since this is the last grade")]
    LastMaxNotUnbounded(u64, String),
    /// An end of a range is not a quantity.
    #[error("grade {0}: {1}")]
    BadQuantity(u64, ParseError),
}

/// Validates models in the order in which Karmada's API server does, and returns the first error.
///
/// Ends of ranges are compared by amount. (Karmada compares the spelling, so that `4Gi` and
/// `4096Mi` leave a gap.) A duplicate grade is found only next to its double, so [`standardize`]
/// comes first.
pub fn validate(models: &[ResourceModel]) -> Result<(), ModelFault> {
    for (at, model) in models.iter().enumerate() {
        let grade = model.grade;
        let (before, last) = (&models[..at], at + 1 == models.len());
        if before
            .last()
            .is_some_and(|previous| previous.grade == grade)
        {
            return Err(ModelFault::DuplicateGrade(grade));
        }
        let previous = before.last().map(|previous| &previous.ranges);
        if previous.is_some_and(|ranges| ranges.len() != model.ranges.len()) {
            return Err(ModelFault::RangeCountDiffers(grade));
        }
        for (place, range) in model.ranges.iter().enumerate() {
            let previous = previous.map(|ranges| &ranges[place]);
            check(grade, range, previous, last)?;
        }
    }
    Ok(())
}

/// Returns an error for the first resource that grades may not have. Karmada documents the rule and
/// does not check it, so it is apart from [`validate`].
pub fn validate_resources(models: &[ResourceModel]) -> Result<(), ModelFault> {
    let names = models
        .iter()
        .flat_map(|model| model.ranges.iter().map(|range| (model.grade, &range.name)));
    let mut unknown = names.filter(|(_, name)| !RESOURCES.contains(&name.as_str()));
    match unknown.next() {
        Some((grade, name)) => Err(ModelFault::UnsupportedResource(grade, name.clone())),
        None => Ok(()),
    }
}

fn check(
    grade: u64,
    range: &ResourceModelRange,
    previous: Option<&ResourceModelRange>,
    last: bool,
) -> Result<(), ModelFault> {
    let read = |end: &Wire| {
        Quantity::from_wire(end).map_err(|fault| ModelFault::BadQuantity(grade, fault))
    };
    let (min, max) = (read(&range.min)?, read(&range.max)?);
    let name = || range.name.clone();
    if max <= min {
        return Err(ModelFault::MaxNotAboveMin(grade, name()));
    }
    match previous {
        None if !min.is_zero() => return Err(ModelFault::FirstMinNotZero(grade, name())),
        Some(previous) if previous.name != range.name => {
            return Err(ModelFault::ResourceNameDiffers(grade, name()));
        }
        Some(previous) if read(&previous.max)? != min => {
            return Err(ModelFault::NotContiguous(grade, name()));
        }
        _ => {}
    }
    if last && max != UNBOUNDED {
        return Err(ModelFault::LastMaxNotUnbounded(grade, name()));
    }
    Ok(())
}

/// Lower ends of the grades, by resource, in nano units.
#[derive(Debug)]
pub(super) struct Grades<'a> {
    floors: Vec<(&'a str, Vec<i128>)>,
}

impl<'a> Grades<'a> {
    /// Reads models. Returns `None` if they are not all about the same number of distinct
    /// resources. Only `min` is read: the grades are contiguous.
    pub fn new(models: &'a [ResourceModel]) -> Option<Self> {
        let first = &models.first()?.ranges;
        let names: Vec<&str> = first.iter().map(|range| range.name.as_str()).collect();
        let distinct = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
        let even = models.iter().all(|model| model.ranges.len() == first.len());
        if names.is_empty() || !distinct || !even {
            return None;
        }
        let floor = |model: &ResourceModel, name: &str| {
            // Of two ranges of one resource the last one counts (Karmada behaviour).
            let range = model.ranges.iter().rfind(|range| range.name == name);
            let min = range.and_then(|range| Quantity::from_wire(&range.min).ok());
            min.unwrap_or_default().nano()
        };
        let floors = names.into_iter().map(|name| {
            (
                name,
                models.iter().map(|model| floor(model, name)).collect(),
            )
        });
        Some(Self {
            floors: floors.collect(),
        })
    }

    /// Returns the resources of the grades.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.floors.iter().map(|(name, _)| *name)
    }

    /// Returns the index of a node's grade from the free amounts of its resources, in the order of
    /// [`Self::names`]: the lowest grade of all resources. `None` if the node is below every grade.
    pub fn grade(&self, free: impl Iterator<Item = i128>) -> Option<usize> {
        let grades = self.floors.iter().zip(free);
        grades
            .map(|((_, floors), free)| floors.iter().rposition(|floor| *floor <= free))
            .try_fold(usize::MAX, |lowest, grade| Some(lowest.min(grade?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Checks the default models against the table of Karmada's documentation of resource models.
    #[test]
    fn the_default_models_are_those_of_the_documentation() {
        let table = [
            (0, ("0", "1"), ("0", "4Gi")),
            (1, ("1", "2"), ("4Gi", "16Gi")),
            (2, ("2", "4"), ("16Gi", "32Gi")),
            (3, ("4", "8"), ("32Gi", "64Gi")),
            (4, ("8", "16"), ("64Gi", "128Gi")),
            (5, ("16", "32"), ("128Gi", "256Gi")),
            (6, ("32", "64"), ("256Gi", "512Gi")),
            (7, ("64", "128"), ("512Gi", "1Ti")),
            (
                8,
                ("128", "9223372036854775807"),
                ("1Ti", "9223372036854775807"),
            ),
        ];
        let range =
            |name: &str, (min, max): (&str, &str)| json!({ "name": name, "min": min, "max": max });
        let documented: Vec<Value> = table
            .into_iter()
            .map(|(grade, cpu, memory)| {
                json!({ "grade": grade, "ranges": [range("cpu", cpu), range("memory", memory)] })
            })
            .collect();
        assert_eq!(json!(default_models()), json!(documented));
    }

    #[test]
    fn the_default_models_are_valid_and_standard() {
        let models = default_models();
        assert_eq!(validate(&models), Ok(()));
        let mut standardized = models.clone();
        standardize(&mut standardized);
        assert_eq!(standardized, models);
    }

    #[test]
    fn of_a_resource_that_stands_twice_in_a_grade_the_last_range_counts() {
        let range = |name: &str, min: &str| json!({ "name": name, "min": min, "max": "64" });
        let models: Vec<ResourceModel> = serde_json::from_value(json!([
            { "grade": 0, "ranges": [range("cpu", "0"), range("memory", "0")] },
            { "grade": 1, "ranges": [range("cpu", "1"), range("cpu", "5")] },
        ]))
        .unwrap();
        let grades = Grades::new(&models).unwrap();
        for (cores, grade) in [(3, 0), (5, 1)] {
            let free = [cores * 1_000_000_000, 0].into_iter();
            assert_eq!(grades.grade(free), Some(grade), "{cores} cores");
        }
    }

    #[test]
    fn only_the_documented_resources_have_grades() {
        for (name, is_known) in [
            ("storage", true),
            ("ephemeral-storage", true),
            ("pods", false),
            ("nvidia.com/gpu", false),
            ("memroy", false),
        ] {
            let mut models = default_models();
            for model in &mut models {
                model.ranges[1].name = name.to_owned();
            }
            let expected = if is_known {
                Ok(())
            } else {
                Err(ModelFault::UnsupportedResource(0, name.to_owned()))
            };
            assert_eq!(validate_resources(&models), expected, "{name}");
            assert_eq!(validate(&models), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_fault_names_the_grade_and_the_resource() {
        let mut models = default_models();
        models[3].ranges[1].min.0 = "31Gi".into();
        let fault = validate(&models).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "grade 3: min of \"memory\" must be the max of the grade before"
        );
    }
}
